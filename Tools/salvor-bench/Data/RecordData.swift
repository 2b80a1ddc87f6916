import SalvorModel

/// The table that the peers were measured with (docs/reference/benchmarks.md): 10 columns, a 36-character UUID as text
/// key, 214 bytes a row, words, hexadecimal digits, numbers and times. Row `i` of a seed is always the same, whatever
/// was made before it.
struct RecordData {
  static let table = Table(
    "record", primaryKey: ["id"],
    columns: [
      Column("id", .text), Column("name", .text), Column("address", .text), Column("city", .text),
      Column("note", .text), Column("token", .text), Column("created", .timestamp), Column("quantity", .integer),
      Column("price", .real), Column("status", .text),
    ])
  static let schema = Schema(tables: [table])
  /// The same, compared by key sets.
  static var keySetSchema: Schema {
    var table = table
    table.download = .keySet
    return Schema(tables: [table])
  }
  /// The same, and the server tells of its changes.
  static let tellingSchema = Schema(
    groups: [Schema.Group(name: Schema.defaultGroup, serverInitiated: true)], tables: [table])

  /// The same, and its rows are seen by the members of the project that `quantity` names.
  static let memberSchema = memberSchema(by: "quantity", .integer)
  /// The same, and the project is what `status` names, which no workload changes.
  static let statusMemberSchema = memberSchema(by: "status", .text)

  private static func memberSchema(by column: String, _ type: ColumnType) -> Schema {
    var record = table
    record.scope = [ScopeColumn(column: column, source: .via(table: "member", column: "project"))]
    let member = Table(
      "member", primaryKey: ["id"],
      columns: [Column("id", .text), Column("project", type), Column("person", .text)],
      scope: [ScopeColumn(column: "person", source: .principal)])
    return Schema(tables: [record, member])
  }

  /// The same, and devices choose its rows by the project that `quantity` names.
  static let chosenSchema: Schema = {
    var record = table
    record.scope = [ScopeColumn(column: "quantity", source: .parameter("project"))]
    return Schema(parameters: [Schema.Parameter(name: "project", type: .integer)], tables: [record])
  }()

  /// Keys and values of different seeds have nothing in common.
  var seed: UInt64 = 1

  /// The key of row `index`.
  func key(_ index: Int) -> [UInt8] {
    var random = SplitMix(seed: seed, index: index)
    var text: [UInt8] = []
    text.appendUUID(uuidBits(&random))
    return text
  }

  func append(_ index: Int, to arena: inout RowArena) {
    var random = SplitMix(seed: seed, index: index)
    arena.appendText { $0.appendUUID(uuidBits(&random)) }
    arena.appendText {
      $0.appendCapitalized(random.pick(vocabulary))
      $0.append(0x20)
      $0.appendCapitalized(random.pick(vocabulary))
    }
    arena.appendText {
      $0.appendDigits(random.below(9_998) + 1, width: 1)
      $0.append(0x20)
      $0.appendCapitalized(random.pick(vocabulary))
      $0.append(0x20)
      $0 += random.pick(streets)
    }
    arena.appendText { $0 += random.pick(cities) }
    arena.appendText {
      $0 += random.pick(phrases)
      for _ in 0..<2 {
        $0.append(0x3B)
        $0.append(0x20)
        $0 += random.pick(phrases)
      }
    }
    arena.appendText { $0.appendHexadecimal(random.next(), from: 0, to: 16) }
    arena.appendText { $0.appendTimestamp(&random) }
    arena.append(Int64(random.below(1000)))
    arena.append(Double(random.below(99_900) + 100) / 100)
    arena.appendText { $0 += random.pick(statuses) }
  }

  /// The places of `count` rows, all different, spread over `total` in no order that a key has.
  static func spread(_ count: Int, of total: Int) -> [Int] {
    let step = total / count
    return (0..<count).map { $0 * step + ($0 * 7) % step }
  }

  /// The places of the first `count` rows in the order of their keys.
  func keyOrder(_ count: Int) -> [Int32] {
    let keys = (0..<count).map { place in
      var random = SplitMix(seed: seed, index: place)
      return uuidBits(&random)
    }
    return (0..<Int32(count)).sorted { keys[Int($0)] < keys[Int($1)] }
  }

  /// A version 4 UUID. Its text sorts as its bits do.
  private func uuidBits(_ random: inout SplitMix) -> (UInt64, UInt64) {
    let high = random.next() & 0xFFFF_FFFF_FFFF_0FFF | 0x4000
    let low = random.next() & 0x3FFF_FFFF_FFFF_FFFF | 0x8000_0000_0000_0000
    return (high, low)
  }
}

extension [UInt8] {
  fileprivate mutating func appendUUID(_ bits: (high: UInt64, low: UInt64)) {
    appendHexadecimal(bits.high, from: 0, to: 8)
    append(0x2D)
    appendHexadecimal(bits.high, from: 8, to: 12)
    append(0x2D)
    appendHexadecimal(bits.high, from: 12, to: 16)
    append(0x2D)
    appendHexadecimal(bits.low, from: 0, to: 4)
    append(0x2D)
    appendHexadecimal(bits.low, from: 4, to: 16)
  }

  /// The digits at these places of the 16 that `value` has.
  fileprivate mutating func appendHexadecimal(_ value: UInt64, from: Int, to: Int) {
    for place in from..<to {
      let digit = UInt8(truncatingIfNeeded: value >> (4 * UInt64(15 - place)) & 15)
      append(digit < 10 ? 0x30 + digit : 0x57 + digit)
    }
  }

  fileprivate mutating func appendDigits(_ value: Int, width: Int) {
    var scale = 1
    for _ in 1..<width { scale *= 10 }
    while value / scale >= 10 { scale *= 10 }
    while scale > 0 {
      append(0x30 + UInt8(value / scale % 10))
      scale /= 10
    }
  }

  fileprivate mutating func appendCapitalized(_ word: [UInt8]) {
    append(word[0] - 32)
    append(contentsOf: word.dropFirst())
  }

  /// 2010-01-01T00:00:00Z to 2025-12-28T23:59:59Z.
  fileprivate mutating func appendTimestamp(_ random: inout SplitMix) {
    let parts: [(value: Int, width: Int, mark: UInt8)] = [
      (2010 + random.below(16), 4, 0x2D), (1 + random.below(12), 2, 0x2D), (1 + random.below(28), 2, 0x54),
      (random.below(24), 2, 0x3A), (random.below(60), 2, 0x3A), (random.below(60), 2, 0x5A),
    ]
    for part in parts {
      appendDigits(part.value, width: part.width)
      append(part.mark)
    }
  }
}

/// Steele, Lea and Flood's SplitMix64; each row has a stream of its own.
struct SplitMix {
  private var state: UInt64

  init(seed: UInt64, index: Int) {
    state = seed &* 0xD1B5_4A32_D192_ED03 &+ UInt64(index) &* 0x2545_F491_4F6C_DD1D
    _ = next()
  }

  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }

  mutating func below(_ bound: Int) -> Int { Int(next() % UInt64(bound)) }

  mutating func pick(_ items: [[UInt8]]) -> [UInt8] { items[below(items.count)] }
}

private let vocabulary: [[UInt8]] = {
  let text =
    """
    batch bin book bread bucket butter ceiling cheese clean cloth code cold cook counter crack date delivery door drain \
    driver fan fee fill filter fish fix floor follow freezer fridge fruit gauge grease grill grout hand handle hood hot \
    inspection invoice kitchen label leak light lock log manager mark meat menu milk mop notice order oven owner paint \
    paper permit pest pipe probe rack range record repair replace report rice salad sample sanitizer sauce screen seal \
    server shelf sign sink soap soup staff storage strip supplier surface temperature test tile towel training tray vent \
    visit wall wash waste water window
    """
  return text.split(separator: " ").map { Array($0.utf8) }
}()

/// 64 sentences of four to six words, about 30 bytes each.
private let phrases: [[UInt8]] = (0..<64).map { place in
  var random = SplitMix(seed: 64, index: place)
  let words = (0..<4 + place % 3).map { _ in vocabulary[random.below(vocabulary.count)] }
  return Array(words.joined(separator: [0x20]))
}

private let streets: [[UInt8]] = ["Street", "Avenue", "Road", "Lane"].map { Array($0.utf8) }
private let statuses: [[UInt8]] = ["open", "closed", "pending", "review"].map { Array($0.utf8) }
private let cities: [[UInt8]] = ["North", "South", "East", "West", "Old", "New", "Upper", "Lower"].flatMap { first in
  ["ton", "field", "ville", "bridge", "port", " Park", "dale", "wood"].map { Array((first + $0).utf8) }
}
