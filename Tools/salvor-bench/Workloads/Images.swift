import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Image files, in the order of their names.
struct ImageData {
  static let table = Table(
    "image", primaryKey: ["id"],
    columns: [
      Column("id", .text), Column("seen", .integer, defaultValue: 0), Column("content", .blob, nullable: true),
    ])
  static let schema = Schema(tables: [table])

  let paths: [String]
  private(set) var bytes: Int64 = 0

  /// - Parameter directory: its PNG and JPEG files, at most `count` of them: the largest.
  init(directory: String, count: Int) throws {
    guard let entries = opendir(directory) else {
      throw SalvorError(.usage, "\(directory) cannot be read: name a directory of images with --images.")
    }
    defer { closedir(entries) }
    var found: [(path: String, size: Int64)] = []
    while let entry = readdir(entries) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      guard [".png", ".jpg", ".jpeg"].contains(where: name.lowercased().hasSuffix) else { continue }
      var info = stat()
      guard stat(directory + "/" + name, &info) == 0 else { continue }
      found.append((directory + "/" + name, Int64(info.st_size)))
    }
    let chosen = found.sorted { ($1.size, $0.path) < ($0.size, $1.path) }.prefix(count)
    paths = chosen.map(\.path).sorted()
    bytes = chosen.reduce(0) { $0 + $1.size }
    guard !paths.isEmpty else { throw SalvorError(.usage, "\(directory) has no PNG or JPEG file.") }
  }

  static func content(of path: String) throws -> [UInt8] {
    guard let file = fopen(path, "rb") else { throw SalvorError(.failed, "\(path) cannot be read.") }
    defer { fclose(file) }
    var content: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 1 << 20)
    while true {
      let count = fread(&piece, 1, piece.count, file)
      if count == 0 { return content }
      content += piece[..<count]
    }
  }

  /// Each file a row, in one transaction.
  func insert(into path: String, makingTables: Bool) throws {
    let connection = try PlainDatabase.open(path)
    defer { connection.close() }
    if makingTables {
      try connection.execute(TableDDL(softForeignKeys: true).createTable(Self.table, in: Self.schema))
    }
    let insert = try connection.prepare("INSERT INTO image (id, content) VALUES (?1, ?2)")
    try connection.transaction {
      for path in paths {
        try insert.bind(1, path)
        try insert.bind(2, .blob(try Self.content(of: path)))
        try insert.run()
      }
    }
  }

  /// Throws unless every file is a row, byte for byte.
  func requireEqual(_ path: String) throws {
    let connection = try PlainDatabase.open(path)
    defer { connection.close() }
    let select = try connection.prepare("SELECT content FROM image WHERE id = ?1")
    for file in paths {
      try select.bind(1, file)
      let isThere = try select.step()
      let content = try Self.content(of: file)
      guard isThere, select.withBlob(0, { $0.elementsEqual(content) }) else {
        throw SalvorError(.failed, "\(path) does not have the bytes of \(file).")
      }
      select.reset()
    }
    guard try connection.integer("SELECT count(*) FROM image") == Int64(paths.count) else {
      throw SalvorError(.failed, "\(path) has other rows, too.")
    }
  }
}

/// A device takes images in, the server gets them, another device gets them from there; then one column of every row changes.
///
/// The limits: the same files inserted into a plain database in one transaction, and copied as `cp` does.
struct Images {
  var name: String
  var count: Int

  func run(_ bench: Bench) throws -> WorkloadResult {
    let data = try ImageData(directory: bench.options.images, count: count)
    let (serverPath, firstPath) = (bench.path("\(name)-server.db"), bench.path("\(name)-first.db"))
    let (secondPath, plainPath) = (bench.path("\(name)-second.db"), bench.path("\(name)-plain.db"))
    defer { bench.discard(serverPath, firstPath, secondPath, plainPath) }
    var ups: [SyncMeasurement] = []
    var downs: [SyncMeasurement] = []
    var changes: [SyncMeasurement] = []
    var inserts: [Cost] = []
    var copies: [Cost] = []
    for run in 1...bench.options.runs {
      for path in [serverPath, firstPath, secondPath, plainPath] { PlainDatabase.remove(path) }
      inserts.append(try Cost.of { try data.insert(into: plainPath, makingTables: true) })
      copies.append(
        try Cost.of {
          for (place, path) in data.paths.enumerated() {
            try PlainDatabase.copyFile(path, to: bench.path("copy-\(place)"))
          }
        })
      for place in data.paths.indices { unlink(bench.path("copy-\(place)")) }

      let pair = try Pair(serverPath: serverPath, clientPath: firstPath, schemaName: "image")
      defer { pair.end() }
      try data.insert(into: firstPath, makingTables: false)
      bench.settle()
      ups.append(try pair.sync())
      let second = try ChildProcess(
        role: "client", [secondPath, "image", pair.url, "recover-unsynced-changes"])
      defer { second.end() }
      try second.call("open")
      bench.settle()
      let before = try pair.server.call("usage").real("cpu")
      var down = try SyncMeasurement(try second.call("sync"))
      let after = try pair.server.call("usage")
      down.serverCPU = try after.real("cpu") - before
      down.serverPeak = try after.integer("peak")
      downs.append(down)
      for path in [serverPath, firstPath, secondPath] { try data.requireEqual(path) }
      let application = try PlainDatabase.open(firstPath)
      try application.execute("UPDATE image SET seen = 1")
      application.close()
      let sent = try pair.sync()
      var received = try SyncMeasurement(try second.call("sync"))
      received.bodySent += sent.bodySent
      received.bodyReceived += sent.bodyReceived
      received.wall += sent.wall
      changes.append(received)
      for path in [serverPath, secondPath] { try data.requireEqual(path) }
      bench.say("\(name): run \(run) of \(bench.options.runs): \(TableReport.amount(ups[run - 1].wall, .seconds)) up")
    }
    return result(data, ups, downs, changes, inserts, copies, runs: bench.options.runs)
  }

  private func result(
    _ data: ImageData, _ ups: [SyncMeasurement], _ downs: [SyncMeasurement], _ changes: [SyncMeasurement],
    _ inserts: [Cost], _ copies: [Cost], runs: Int
  ) -> WorkloadResult {
    let limit = inserts.map(\.wall).median
    func wall(_ name: String, _ syncs: [SyncMeasurement]) -> Figure {
      Figure(
        name: name, value: syncs.median(\.wall), unit: .seconds, limit: limit, limitName: "inserts",
        details: syncs.details)
    }
    func bytes(_ name: String, _ value: Int64) -> Figure {
      Figure(
        name: name, value: Double(value), unit: .bytes, limit: Double(data.bytes), limitName: "the files",
        target: .ratio(atMost: 1.02))
    }
    return WorkloadResult(
      name: name, title: "\(grouped(data.paths.count)) images, \(grouped(Int(data.bytes))) bytes, medians of \(runs)",
      figures: [
        wall("up, wall", ups), wall("down, wall", downs),
        Figure(name: "cp", value: copies.map(\.wall).median, unit: .seconds),
        bytes("up, wire", ups.median { $0.bodySent + $0.bodyReceived }),
        bytes("down, wire", downs.median { $0.bodySent + $0.bodyReceived }),
        Figure(
          name: "another column of every row, both devices, wire",
          value: Double(changes.median { $0.bodySent + $0.bodyReceived }), unit: .bytes),
        Figure(name: "client peak memory", value: Double((ups + downs).map(\.clientPeak).max() ?? 0), unit: .bytes),
        Figure(name: "server peak memory", value: Double((ups + downs).map(\.serverPeak).max() ?? 0), unit: .bytes),
      ])
  }
}
