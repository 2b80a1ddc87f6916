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

  /// Keys and values of different seeds have nothing in common.
  var seed: UInt64 = 1

  /// The key of row `index`.
  func key(_ index: Int) -> [UInt8] {
    var random = SplitMix(seed: seed, index: index)
    return uuid(&random)
  }

  func append(_ index: Int, to arena: inout RowArena) {
    var random = SplitMix(seed: seed, index: index)
    arena.append(uuid(&random))
    arena.append(words(&random, count: 2, capitalized: true))
    arena.append(
      digits(random.below(9_998) + 1, width: 1) + [0x20] + words(&random, count: 1, capitalized: true) + [0x20]
        + streets[random.below(streets.count)])
    arena.append(cities[random.below(cities.count)])
    var note = phrases[random.below(phrases.count)]
    for _ in 0..<2 { note += Array("; ".utf8) + phrases[random.below(phrases.count)] }
    arena.append(note)
    arena.append(hexadecimal(random.next(), digits: 16))
    arena.append(timestamp(&random))
    arena.append(Int64(random.below(1000)))
    arena.append(Double(random.below(99_900) + 100) / 100)
    arena.append(statuses[random.below(statuses.count)])
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

  private func uuid(_ random: inout SplitMix) -> [UInt8] {
    let (high, low) = uuidBits(&random)
    let text = hexadecimal(high, digits: 16) + hexadecimal(low, digits: 16)
    let dash: [UInt8] = [0x2D]
    return text[0..<8] + dash + text[8..<12] + dash + text[12..<16] + dash + text[16..<20] + dash + text[20...]
  }

  private func words(_ random: inout SplitMix, count: Int, capitalized: Bool) -> [UInt8] {
    var out: [UInt8] = []
    for place in 0..<count {
      if place > 0 { out.append(0x20) }
      let word = vocabulary[random.below(vocabulary.count)]
      out += capitalized ? [word[0] - 32] + word[1...] : word
    }
    return out
  }

  private func timestamp(_ random: inout SplitMix) -> [UInt8] {
    digits(2010 + random.below(16), width: 4) + [0x2D] + digits(1 + random.below(12), width: 2) + [0x2D]
      + digits(1 + random.below(28), width: 2) + [0x54] + digits(random.below(24), width: 2) + [0x3A]
      + digits(random.below(60), width: 2) + [0x3A] + digits(random.below(60), width: 2) + [0x5A]
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
}

private func digits(_ value: Int, width: Int) -> [UInt8] {
  let text = Array(String(value).utf8)
  return Array(repeating: 0x30, count: max(0, width - text.count)) + text
}

private func hexadecimal(_ value: UInt64, digits: Int) -> [UInt8] {
  (0..<digits).map { place in
    let digit = UInt8(truncatingIfNeeded: value >> (4 * UInt64(digits - 1 - place)) & 15)
    return digit < 10 ? 0x30 + digit : 0x57 + digit
  }
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
