import Foundation
import SQLiteServerStore
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// A store on a fresh file, another program's connection to it, and devices that upload and download by hand.
final class ServerDesk {
  let path: String
  let schema: Schema
  private let policies: [String: any ConflictPolicy]
  var store: SQLiteServerStore
  var opening: ServerOpening
  private(set) var log = LogLines()
  private let clock: any SalvorModel.Clock

  final class LogLines: @unchecked Sendable {
    private let lock = NSLock()
    private var lines: [String] = []
    func add(_ line: String) { lock.withLock { lines.append(line) } }
    var all: [String] { lock.withLock { lines } }
  }

  /// - Parameter before: another program's statements, before Salvor ever saw the file.
  init(
    _ schema: Schema, policies: [String: any ConflictPolicy] = [:], before: String? = nil,
    busyTimeoutMilliseconds: Int64 = 5000, clock: any SalvorModel.Clock = SystemClock()
  ) async throws {
    path = try freshDatabase()
    self.policies = policies
    self.clock = clock
    self.schema = schema
    if let before { try SQLiteConnection(path).execute(before) }
    let log = log
    store = SQLiteServerStore(
      SQLiteServerStore.Options(
        path: path, durability: .normal, busyTimeoutMilliseconds: busyTimeoutMilliseconds,
        clock: clock, log: Log.lines { log.add($0) }))
    opening = try await store.open(ServerSetup(schema: schema, conflictPolicies: policies))
  }

  func restart() async throws {
    await store.close()
    let log = log
    store = SQLiteServerStore(
      SQLiteServerStore.Options(path: path, durability: .normal, clock: clock, log: Log.lines { log.add($0) }))
    opening = try await store.open(ServerSetup(schema: schema, conflictPolicies: policies))
  }

  /// Another program.
  func other() throws -> SQLiteConnection { try SQLiteConnection(path) }

  func device(_ name: String = "anna", _ parameters: [String: [Value]] = [:]) async throws -> Handset {
    let device = Handset(self, Principal(name: name, parameters: parameters))
    try await store.register(device.remote, principal: name)
    return device
  }

  /// - Parameters:
  ///   - version: it is offered as this version.
  ///   - offers: so many of its changes are, from the first on; nil: all.
  func uploaded(
    _ device: Handset, _ sent: [HandChange], made: Int64? = nil, perChunk: Int = 1000, version: LostVersion? = nil,
    offers: Int? = nil
  ) async throws -> UploadResults {
    var chunks: [UploadChunk] = []
    let stamp = RequestStamp(from: SystemRandom())
    var index = 0
    while index < sent.count {
      var writer = UploadChunkWriter()
      let count = min(perChunk, (offers ?? sent.count) - index)
      if let version, count > 0 {
        writer.lost([version.incarnation])
        writer.offer(first: device.counter + 1, last: device.counter + Int64(count), Offer(version))
      }
      for change in sent[index..<min(index + perChunk, sent.count)] {
        device.counter += 1
        change.write(device.counter, stamp, made ?? device.groups.compactMap(\.cursor?.number).min() ?? 0, &writer)
      }
      index += perChunk
      let bytes = writer.finish()
      chunks.append(
        UploadChunk(
          bytes: bytes, firstCounter: writer.firstCounter, lastCounter: writer.lastCounter,
          changeCount: writer.changeCount, isLast: index >= sent.count))
    }
    return try await store.process(
      ProcessRequest(
        remote: device.remote, sequence: SequenceID(from: SystemRandom()), principal: device.principal, chunks: chunks))
  }
}

final class Handset {
  let remote = RemoteID(from: SystemRandom())
  let principal: Principal
  private let desk: ServerDesk
  var groups: [GroupState]
  var counter: Int64 = 0

  init(_ desk: ServerDesk, _ principal: Principal) {
    self.desk = desk
    self.principal = principal
    groups = desk.schema.groups.map { GroupState(name: $0.name) }
  }

  /// The lines of a download: `table key…` of rows, with `-` before those deleted and `<` before those that left.
  @discardableResult
  func download(bytesTarget: Int = 1 << 16) async throws -> [String] {
    var position: String?
    var lines: [String] = []
    repeat {
      let page = try await desk.store.page(
        PageRequest(
          remote: remote, principal: principal, groups: groups, position: position, bytesTarget: bytesTarget))
      lines += try page.bytes.withUnsafeBufferPointer { try Self.lines($0) }
      if let groups = page.groups { self.groups = groups }
      position = page.position
    } while position != nil
    return lines
  }

  static func lines(_ bytes: UnsafeBufferPointer<UInt8>) throws -> [String] {
    var reader = DownloadChunkReader(bytes)
    var lines: [String] = []
    var table = ""
    while let event = try reader.next() {
      var mark = ""
      switch event {
      case .full(let tables):
        lines.append("full \(tables.joined(separator: ","))")
        continue
      case .table(let name, _):
        table = name
        continue
      case .row: break
      case .part: mark = "~"
      case .key(let departure, _): mark = [.deleted: "-", .left: "<", .lost: "?"][departure] ?? ""
      }
      var values: [String] = []
      while let item = try reader.item() { values.append(item.value.description) }
      lines.append(mark + ([table] + values).joined(separator: " "))
    }
    return lines
  }
}

enum HandChange {
  case insert(String, [(String, Value)])
  case update(String, Key, [(String, Value, Value)])
  case delete(String, Key)

  func write(_ counter: Int64, _ stamp: RequestStamp, _ made: Int64, _ writer: inout UploadChunkWriter) {
    func begin(_ table: String, _ operation: SalvorModel.Operation, _ columns: [String]) {
      let place = writer.place(of: UploadShape(table: table, operation: operation, columns: columns))
      writer.beginChange(shape: place, stamp: stamp, counter: counter, made: made)
    }
    switch self {
    case .insert(let table, let values):
      begin(table, .insert, values.map(\.0))
      for (_, value) in values { writer.value(value) }
    case .update(let table, let key, let columns):
      begin(table, .update, columns.map(\.0))
      for value in key { writer.value(value) }
      for (_, old, new) in columns {
        writer.value(old)
        writer.value(new)
      }
    case .delete(let table, let key):
      begin(table, .delete, [])
      for value in key { writer.value(value) }
    }
    writer.endChange()
  }
}

/// Makes one chunk under a stamp of the test's own.
struct UploadChunkWriterBox {
  private var writer = UploadChunkWriter()
  let stamp: RequestStamp

  init(stamp: RequestStamp) { self.stamp = stamp }

  mutating func group(_ first: Int64, _ last: Int64) { writer.request(first: first, last: last, tag: nil) }

  mutating func add(_ change: HandChange, _ counter: Int64) { change.write(counter, stamp, 0, &writer) }

  mutating func chunk() -> UploadChunk {
    let bytes = writer.finish()
    return UploadChunk(
      bytes: bytes, firstCounter: writer.firstCounter, lastCounter: writer.lastCounter,
      changeCount: writer.changeCount, isLast: true)
  }
}
