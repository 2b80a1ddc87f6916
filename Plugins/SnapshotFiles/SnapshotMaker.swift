import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Makes one snapshot, on a thread of its own: what writes a file makes nobody wait who is answered.
actor SnapshotMaker {
  private nonisolated let queue = SQLiteQueue("snapshot")
  nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }
  private let folder: String

  init(folder: String) { self.folder = folder }

  func make(
    _ order: SnapshotOrder, _ page: @Sendable (PageRequest) async throws -> FeedPage
  ) async throws -> Snapshot {
    let began = order.clock.now()
    let stem = "\(folder)/making-\(hexadecimal(order.random.bytes(8)))"
    let (plain, coded) = (stem + ".db", stem + ".coded")
    defer { for file in [plain, plain + "-journal", coded] { try? FileSystem.remove(file) } }
    let config = SyncConfig(order.schema)
    let writer = try SnapshotWriter(plain, group: order.group, config)
    let end = try await download(order, into: writer, page)
    guard let commit = end.cursor, let scope = end.scopeDigest else {
      throw SnapshotFormat.unusable("the download of the group \(order.group) ended without a position")
    }
    let digest = config.digest
    let tables = try writer.finish { tables in
      [
        ("format", "\(SnapshotFormat.version)"), ("server", order.server.text),
        ("incarnation", order.incarnation.text), ("commit", commit.json.text),
        ("schemaVersion", "\(config.schemaVersion)"), ("schema", digest), ("group", order.group), ("scope", scope),
        ("tables", JSONValue.array(tables.map(\.json)).text), ("sqlite", sqliteLibrary["SQLite"] ?? ""),
      ]
    }
    let size = FileSystem.size(plain) ?? 0
    let (id, bytes) = try await code(plain, of: size, to: coded, order)
    let snapshot = Snapshot(
      id: id, server: order.server, incarnation: order.incarnation, commit: commit, schemaDigest: digest,
      group: order.group, scope: scope, tables: tables, bytes: bytes, size: size, coding: order.coding.token,
      made: order.clock.now(), milliseconds: max(0, order.clock.now() - began),
      format: SnapshotFormat.version)
    try FileSystem.move(coded, to: "\(folder)/\(id).\(snapshot.coding)")
    return snapshot
  }

  /// Page after page, as a device gets them. After each a pause that is twice as long as it took, and a millisecond: others come
  /// first.
  private func download(
    _ order: SnapshotOrder, into writer: SnapshotWriter, _ page: @Sendable (PageRequest) async throws -> FeedPage
  ) async throws -> GroupState {
    let subscriptions = order.scope.subscriptions
    var request = PageRequest(
      remote: RemoteID(from: order.random), principal: order.scope.principal, subscriptions: subscriptions,
      groups: [GroupState(name: order.group, subscriptions: subscriptions)], position: nil, bytesTarget: 256 << 10)
    while true {
      try Task.checkCancellation()
      let began = order.clock.now()
      let page = try await page(request)
      try writer.read(page.bytes)
      if let groups = page.groups {
        guard let end = groups.first(where: { $0.name == order.group }) else {
          throw SnapshotFormat.unusable("the server knows no group \(order.group)")
        }
        return end
      }
      request.position = page.position
      // The wall clock may be set meanwhile.
      try await order.clock.sleep(milliseconds: min(max(1, 2 * (order.clock.now() - began)), 5000))
    }
  }

  private func code(
    _ plain: String, of size: Int64, to coded: String, _ order: SnapshotOrder
  ) async throws -> (id: String, bytes: Int64) {
    guard let source = try OpenFile(reading: plain) else { throw OpenFile.failure("read", plain) }
    let target = try OpenFile(writing: coded)
    let hasher = ContentHasher()
    var bytes: Int64 = 0
    let pieces = try order.coding.code(source.pieces(), size)
    while let piece = try await pieces() {
      bytes += Int64(piece.count)
      guard bytes <= order.bytesMax else {
        throw SalvorError(
          .tooLarge,
          "The snapshot of the group \(order.group) is larger than \(order.bytesMax) bytes (server.snapshots.bytesMax)."
        )
      }
      piece.withUnsafeBytes { hasher.update($0) }
      try target.write(piece)
      await Task.yield()
    }
    try target.sync()
    return (hasher.hash().text, bytes)
  }
}
