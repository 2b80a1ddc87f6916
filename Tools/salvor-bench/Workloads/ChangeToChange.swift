import SQLiteSupport
import SalvorModel
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// One row changed by an application on a device, until an application on another device reads the new value; both watch.
/// The limit: the bare write, the same change in a database without Salvor. Then the same by another program in the server's
/// tables; the limit: a change of a device.
struct ChangeToChange {
  var rows: Int
  var changes: Int

  private static let secondsMax = 0.020
  private static let foreignMax = 2.0
  private static let warmUp = 10

  func run(_ bench: Bench) throws -> WorkloadResult {
    let names = ["server", "first", "second", "bare"].map { bench.path("change-\($0).db") }
    defer { for name in names { bench.discard(name) } }
    bench.say("change-to-change: loading \(grouped(rows)) rows and synchronizing two devices")
    let data = RecordData()
    for path in [names[0], names[3]] { try PlainDatabase.seed(path, .records(data, count: rows)) }
    let pair = try Pair(serverPath: names[0], clientPath: names[1], schemaName: "record-telling")
    defer { pair.end() }
    let other = try ChildProcess(role: "client", [names[2], "record-telling", pair.url, "recover-unsynced-changes"])
    defer { other.end() }
    try other.call("open")
    for device in [pair.client, other] { try device.call("watch") }
    bench.settle()

    let devices = try [names[1], names[2]].map(PlainDatabase.open)
    let bare = try PlainDatabase.open(names[3])
    defer { for connection in devices + [bare] { connection.close() } }
    let count = changes * bench.options.runs
    var bares: [Double] = [], both: [Double] = []
    for number in 0..<ChangeToChange.warmUp + count {
      let place = number * 37 % rows
      let quantity = Int64(10_000 + number)
      let alone = try PlainDatabase.updateQuantities(bare, data, places: [place], quantity: quantity).wall
      // In turns: each device writes as often as the other.
      let (writer, reader) = number % 2 == 0 ? (devices[0], devices[1]) : (devices[1], devices[0])
      let start = Measure.wall()
      try PlainDatabase.updateQuantities(writer, data, places: [place], quantity: quantity)
      try Self.waitFor(quantity, at: data.key(place), in: reader)
      let wall = Measure.wall() - start
      if number >= ChangeToChange.warmUp {
        bares.append(alone)
        both.append(wall)
      }
      // What both still have to say to the server is not the next change's.
      usleep(20_000)
    }
    let program = try PlainDatabase.openAsServer(names[0])
    defer { program.close() }
    var foreign: [Double] = []
    for number in 0..<count {
      let place = number * 53 % rows
      let quantity = Int64(1_000_000 + number)
      let start = Measure.wall()
      try PlainDatabase.updateQuantities(program, data, places: [place], quantity: quantity)
      try Self.waitFor(quantity, at: data.key(place), in: devices[number % 2])
      foreign.append(Measure.wall() - start)
      usleep(20_000)
    }
    let over = zip(both, bares).map { $0 - $1 }
    return WorkloadResult(
      name: "change-to-change", title: "\(grouped(rows)) rows, \(grouped(count)) changes, medians",
      figures: [
        Figure(
          name: "over a bare write", value: over.median, unit: .seconds, target: .value(atMost: Self.secondsMax),
          details: [("p90", .real(percentile(over, 0.9))), ("worst", .real(over.max() ?? 0))]),
        Figure(
          name: "until it is read", value: both.median, unit: .seconds, limit: bares.median, limitName: "bare write"),
        Figure(
          name: "another program's write", value: foreign.median, unit: .seconds, limit: both.median,
          limitName: "a device's", target: .ratio(atMost: Self.foreignMax),
          details: [("p90", .real(percentile(foreign, 0.9))), ("worst", .real(foreign.max() ?? 0))]),
      ])
  }

  static func waitFor(_ quantity: Int64, at key: [UInt8], in connection: SQLiteConnection) throws {
    let end = Measure.wall() + 60
    while try connection.integer("SELECT quantity FROM record WHERE id = ?1", .text(key)) != quantity {
      guard Measure.wall() < end else {
        throw SalvorError(.failed, "A change was not on the other device in a minute.")
      }
      usleep(200)
    }
  }
}
