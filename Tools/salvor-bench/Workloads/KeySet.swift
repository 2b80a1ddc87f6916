import GzipCompression
import SQLiteSupport
import SalvorModel
import SalvorTransport
import SalvorWire

/// Key-set download of a table in which few rows differ: changed, added and deleted by another program, with triggers or
/// without any. The limit: the list of the table's keys, compressed alike.
struct KeySet {
  var rows: Int
  var differences: Int

  private static let ratioMax = 0.05

  func run(_ bench: Bench) async throws -> WorkloadResult {
    let runs = bench.options.runs
    let data = RecordData()
    let serverPath = bench.path("key-set-server.db")
    let clientPath = bench.path("key-set-client.db")
    defer { bench.discard(serverPath, clientPath) }
    bench.say("key-set: loading \(grouped(rows)) rows and synchronizing them")
    try PlainDatabase.seed(serverPath, .records(data, count: rows))
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: "record-key-set")
    defer { pair.end() }
    _ = try pair.sync()
    let server = try PlainDatabase.open(serverPath)
    defer { server.close() }
    let keys = try await keyList(data)
    var compared: [SyncMeasurement] = []
    var idle: [SyncMeasurement] = []
    for run in 1...runs {
      // Others each time; every second time the change log hears nothing of it.
      server.triggersEnabled = run.isMultiple(of: 2)
      let places = RecordData.spread(differences, of: rows).map { ($0 + run * 17) % rows }
      try PlainDatabase.updateQuantities(server, data, places: places, quantity: Int64(2000 + run))
      let sync = try pair.sync()
      guard sync.upserts == differences else {
        throw SalvorError(.failed, "\(sync.upserts) rows came, of \(differences) that differ.")
      }
      compared.append(sync)
      idle.append(try pair.sync())
    }
    guard idle.allSatisfy({ $0.upserts == 0 && $0.roundTrips == 1 }) else {
      throw SalvorError(.failed, "A sync with nothing new took more than one round trip.")
    }
    try PlainDatabase.requireEqual(serverPath, clientPath, RecordData.schema)
    return WorkloadResult(
      name: "key-set", title: "\(grouped(rows)) rows of which \(differences) differ, medians of \(runs)",
      figures: [
        Figure(
          name: "wire, both directions", value: Double(compared.median { $0.bytes }), unit: .bytes,
          limit: Double(keys), limitName: "key list", target: .ratio(atMost: KeySet.ratioMax),
          details: compared.details),
        Figure(
          name: "wall", value: compared.median(\.wall), unit: .seconds, limit: idle.median(\.wall),
          limitName: "nothing new"),
        Figure(
          name: "nothing new, wire", value: Double(idle.median { $0.bytes }), unit: .bytes, details: idle.details),
      ])
  }

  /// The bytes of the JSON list of all keys, in key order, compressed.
  private func keyList(_ data: RecordData) async throws -> Int {
    var writer = PayloadWriter()
    writer.raw("[")
    for (place, index) in data.keyOrder(rows).enumerated() {
      if place > 0 { writer.comma() }
      writer.value(.text(data.key(Int(index))))
    }
    writer.raw("]")
    return try await ByteStream.bytes(writer.bytes).compressed(by: GzipCompression()).collect(upTo: Int.max).count
  }
}
