import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// The snapshots of one folder of a database's: they outlive the store, as files do.
final class MemorySnapshotFolder: SnapshotFolder {
  private struct Content {
    /// Newest first.
    var files: [(snapshot: Snapshot, bytes: [UInt8])] = []
    /// How often everything was removed.
    var removals = 0
    var copies: [String: [UInt8]] = [:]
  }

  private let content = Mutex(Content())
  private let key = SystemRandom().bytes(32)

  func list() -> [Snapshot] { content.withLock { $0.files.map(\.snapshot) } }

  /// Nothing is ever half done.
  func removeUnfinished() {}

  func make(
    _ order: SnapshotOrder, page: @Sendable (PageRequest) async throws -> FeedPage
  ) async throws -> Snapshot {
    let (began, removals) = (order.clock.now(), content.withLock { $0.removals })
    let subscriptions = order.scope.subscriptions
    var request = PageRequest(
      remote: RemoteID(from: order.random), principal: order.scope.principal, subscriptions: subscriptions,
      groups: [GroupState(name: order.group, subscriptions: subscriptions)], position: nil, bytesTarget: 256 << 10)
    var rows = MemorySnapshotRows(order.schema, group: order.group)
    var end: GroupState?
    while end == nil {
      let next = try await page(request)
      try rows.read(next.bytes)
      request.position = next.position
      if let groups = next.groups {
        guard let found = groups.first(where: { $0.name == order.group }) else {
          throw MemorySnapshotFile.unusable("the server knows no group \(order.group)")
        }
        end = found
      }
    }
    guard let commit = end?.cursor, let scope = end?.scopeDigest else {
      throw MemorySnapshotFile.unusable("the download of the group \(order.group) ended without a position")
    }
    let file = MemorySnapshotFile(group: order.group, commit: commit, scope: scope, lines: rows.lines())
    let plain = file.bytes
    let once = Mutex<[UInt8]?>(plain)
    let pieces = try order.coding.code({ once.withLock { $0.take() } }, Int64(plain.count))
    var coded: [UInt8] = []
    while let piece = try await pieces() { coded += piece }
    guard Int64(coded.count) <= order.bytesMax else {
      throw SalvorError(.tooLarge, "The snapshot of the group \(order.group) is larger than \(order.bytesMax) bytes.")
    }
    let snapshot = Snapshot(
      id: BlobHash(of: coded).text, server: order.server, incarnation: order.incarnation, commit: commit,
      schemaDigest: SyncConfig(order.schema).digest, group: order.group, scope: scope, tables: rows.digests(),
      bytes: Int64(coded.count), size: Int64(plain.count), coding: order.coding.token, made: order.clock.now(),
      milliseconds: max(0, order.clock.now() - began))
    let bytes = coded
    try content.withLock { content in
      guard content.removals == removals else {
        throw SalvorError(
          .overloaded, "Rows were erased while the snapshot was made. Ask again.", retryAfterMilliseconds: 1000)
      }
      content.files.removeAll { $0.snapshot.id == snapshot.id }
      content.files.insert((snapshot, bytes), at: 0)
    }
    return snapshot
  }

  func open(_ snapshot: Snapshot, from offset: Int64, count: Int64, pieceBytes: Int) -> OpenSnapshot? {
    guard let bytes = content.withLock({ $0.files.first { $0.snapshot.id == snapshot.id }?.bytes }) else { return nil }
    let rest = Mutex(bytes.dropFirst(Int(clamping: offset)).prefix(Int(clamping: count)))
    return OpenSnapshot(pieces: {
      rest.withLock { rest in
        let piece = Array(rest.prefix(pieceBytes))
        rest = rest.dropFirst(piece.count)
        return piece.isEmpty ? nil : piece
      }
    })
  }

  /// Keeps it under the path in memory. No file is written.
  func write(_ snapshot: Snapshot, to path: String) throws {
    try content.withLock { content in
      guard let bytes = content.files.first(where: { $0.snapshot.id == snapshot.id })?.bytes else {
        throw SalvorError(.notFound, "This snapshot is not kept any more.")
      }
      content.copies[path] = bytes
    }
  }

  func remove(_ id: String) { content.withLock { $0.files.removeAll { $0.snapshot.id == id } } }

  func removeAll() {
    content.withLock { content in
      content.files = []
      content.removals += 1
    }
  }

  func signature(of text: String) -> String { hexadecimal(hmacSHA256(Array(text.utf8), key: key)) }
}

/// What is in a file of this store: a line that says what it is, and the lines of a download that has every row.
struct MemorySnapshotFile {
  var group: String
  var commit: Commit
  var scope: String
  var lines: [UInt8]

  private var head: JSONValue {
    ["group": .string(group), "commit": commit.json, "scope": .string(scope)]
  }

  var bytes: [UInt8] { head.bytes + [0x0A] + lines }

  init(group: String, commit: Commit, scope: String, lines: [UInt8]) {
    (self.group, self.commit, self.scope, self.lines) = (group, commit, scope, lines)
  }

  /// The decoded bytes of what is offered; throws `snapshot-unusable` where they are not the group's rows in these tables.
  init(_ bytes: [UInt8], _ offer: SnapshotOffer, _ tables: [Table]) throws {
    self.init(
      group: offer.group, commit: offer.commit, scope: offer.scope,
      lines: Array(bytes.drop { $0 != 0x0A }.dropFirst()))
    guard self.bytes == bytes else { throw Self.unusable("it is not what the server has said") }
    var counts: [String: Int64] = [:]
    do {
      try lines.withUnsafeBufferPointer { buffer in
        var reader = DownloadChunkReader(buffer, blobs: BlobCollector())
        var table: Table?
        while let event = try reader.next() {
          switch event {
          case .full(let names) where Set(names) == Set(tables.map(\.name)): continue
          case .table(let name, let columns):
            table = tables.first { $0.name == name && $0.travelling.map(\.name) == columns }
          case .row where table != nil: counts[table?.name ?? "", default: 0] += 1
          default: throw Self.unusable("it has something else than rows of its group")
          }
        }
      }
    } catch let error as SalvorError where error.code != .snapshotUnusable {
      throw Self.unusable(error.message)
    }
    let isAsNamed =
      offer.tables.count == tables.count
      && offer.tables.allSatisfy { named in
        tables.contains { $0.name == named.table } && named.count == counts[named.table, default: 0]
      }
    guard isAsNamed else { throw Self.unusable("it has not as many rows as the server has said") }
  }

  static func unusable(_ what: String) -> SalvorError {
    let what = what.hasSuffix(".") ? String(what.dropLast()) : what
    return SalvorError(.snapshotUnusable, "The snapshot cannot be used: \(what). Its group comes by rows.")
  }
}

/// The rows that the pages of a first download have said in the end. Large values stay references.
private struct MemorySnapshotRows {
  private enum Item {
    case value(Value)
    case reference(BlobReference)
  }

  private let tables: [Table]
  private var rows: [RowName: [String: Item]] = [:]

  init(_ schema: Schema, group: String) {
    tables = schema.parentsFirst(schema.synchronized.filter { $0.group == group })
  }

  mutating func read(_ bytes: [UInt8]) throws {
    try bytes.withUnsafeBufferPointer { buffer in
      var reader = DownloadChunkReader(buffer, blobs: BlobCollector())
      var known: (table: Table, columns: [String])?
      while let event = try reader.next() {
        switch event {
        case .full: continue
        case .table(let name, let columns):
          guard let table = tables.first(where: { $0.name == name }) else {
            throw reader.malformed("rows of a table that is not of the group")
          }
          known = (table, columns)
        case .part: throw reader.malformed("a part of a row in a first download")
        case .row, .key:
          guard let (table, columns) = known else { throw reader.malformed("a row without a table") }
          var items: [Item] = []
          while let item = try reader.item() {
            items.append(reader.lastReference.map(Item.reference) ?? .value(item.value))
          }
          if case .key = event {
            rows[RowName(table: table.name, key: items.map(Self.value))] = nil
          } else {
            let named = Dictionary(zip(columns, items)) { _, last in last }
            rows[RowName(table: table.name, key: table.primaryKey.map { named[$0].map(Self.value) ?? .null })] = named
          }
        }
      }
    }
  }

  private static func value(_ item: Item) -> Value {
    if case .value(let value) = item { value } else { .null }
  }

  private func sorted(_ table: Table) -> [[String: Item]] {
    rows.keys.filter { $0.table == table.name }.sorted { keyPrecedes($0.key, $1.key) }.compactMap { rows[$0] }
  }

  /// Counts of all rows; digests of those without references.
  func digests() -> [TableDigest] {
    tables.map { table in
      let rows = sorted(table)
      let plain = rows.filter { row in
        !row.values.contains { if case .reference = $0 { true } else { false } }
      }
      let sum = plain.reduce(UInt64(0)) { sum, row in
        sum &+ RowDigest(table.travelling.map { row[$0.name].map(Self.value) ?? .null }).value
      }
      return TableDigest(table: table.name, count: Int64(rows.count), digest: RowDigest.text(sum))
    }
  }

  func lines() -> [UInt8] {
    var writer = DownloadChunkWriter()
    writer.full(tables.map(\.name))
    for table in tables {
      for row in sorted(table) {
        writer.table(table.name, columns: table.travelling.map(\.name))
        writer.beginRow(version: nil)
        for column in table.travelling {
          switch row[column.name] {
          case .reference(let reference): writer.value { $0.reference(reference) }
          case .value(let value): writer.value(value, isKey: table.primaryKey.contains(column.name))
          case nil: writer.value(.null)
          }
        }
        writer.endRow()
      }
    }
    return writer.finish()
  }
}
