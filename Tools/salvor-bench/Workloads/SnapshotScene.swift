import SalvorModel
import SalvorWire

#if canImport(Glibc)
  @preconcurrency import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A server that sends groups as files, and devices without rows that ask it.
final class SnapshotScene {
  let name: String
  let data: DataSet
  let serverPath: String
  let clientPath: String
  private(set) var pair: Pair
  private let bench: Bench
  private let url: String?

  /// Loads the rows; no file is made yet.
  ///
  /// - Parameter url: where the files are, beside the server (`server.snapshots.url`).
  init(_ bench: Bench, _ name: String, _ data: DataSet, url: String? = nil) throws {
    (self.bench, self.name, self.data, self.url) = (bench, name, data, url)
    (serverPath, clientPath) = (bench.path("\(name)-server.db"), bench.path("\(name)-client.db"))
    bench.say("\(name): loading \(grouped(data.rowCount)) rows into a server's database")
    try PlainDatabase.seed(serverPath, data)
    try bench.adopt(serverPath, data.schemaName)
    pair = try Pair(
      serverPath: serverPath, clientPath: clientPath, schemaName: data.schemaName, snapshots: true, files: url)
  }

  /// Where the server keeps its files.
  var folder: String { serverPath + "-snapshots" }

  func end() {
    pair.end()
    bench.discard(serverPath, clientPath)
  }

  /// A server that has done nothing yet: its memory is that of what comes.
  func restart() throws {
    pair.end()
    PlainDatabase.remove(clientPath)
    pair = try Pair(
      serverPath: serverPath, clientPath: clientPath, schemaName: data.schemaName, snapshots: true, files: url)
  }

  /// Another device's first sync, by whatever the server has for it.
  ///
  /// - Parameter way: by which way the rows come.
  func sync(by way: DownloadWay = .product) throws -> SyncMeasurement {
    try pair.renewClient(clientPath, data.schemaName, way: way)
    bench.settle()
    let sync = try pair.sync()
    // What was changed since the file comes once more.
    guard sync.upserts >= data.rowCount else {
      throw SalvorError(.failed, "\(sync.upserts) of \(data.rowCount) rows arrived.")
    }
    return sync
  }

  /// The server forgets its files: the next device is answered by rows, and they are made anew.
  func forgetFiles() { PlainDatabase.removeAll(in: folder) }

  /// What the server's process has used so far.
  func serverCPU() throws -> Double { try pair.server.call("usage").real("cpu") }

  /// There is a file of each group. The server makes them after a device's rows, by itself.
  var isReady: Bool { countFiles() >= Set(data.schema.tables.map(\.group)).count }

  func waitForFiles() throws {
    let end = Measure.wall() + 600
    while !isReady {
      guard Measure.wall() < end else { throw SalvorError(.failed, "No snapshot was made within ten minutes.") }
      usleep(5000)
    }
  }

  private func countFiles() -> Int {
    guard let open = opendir(folder) else { return 0 }
    defer { closedir(open) }
    var count = 0
    while let entry = readdir(open) {
      let name = withUnsafeBytes(of: &entry.pointee.d_name) {
        String(decoding: $0.prefix { $0 != 0 }, as: UTF8.self)
      }
      if name.hasSuffix(".json") { count += 1 }
    }
    return count
  }
}
