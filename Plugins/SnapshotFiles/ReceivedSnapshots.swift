import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// A snapshot's database on a device, examined and not taken over yet.
public struct OpenedSnapshot: Sendable {
  /// What the snapshot is. Of a file that came with the application: what the file says of itself.
  public let offer: SnapshotOffer
  /// Parents first, as the device's SyncConfig has them.
  public let tables: [Table]
  let path: String

  /// The lines of each row that stands apart.
  public func eachApart(_ body: ([UInt8]) throws -> Void) throws {
    let connection = try SQLiteConnection(address, mode: .readOnly)
    defer { connection.close() }
    connection.setDefensive(true)
    try connection.pragma("trusted_schema", "OFF")
    try connection.query("SELECT payload FROM \(SnapshotFormat.apartTable)") { row in
      try row.withText(0) { try body(Array($0)) }
      return true
    }
  }

  /// What `ATTACH` takes. Nobody writes the file, so SQLite takes no lock, and no journal beside it counts.
  public var address: String { ReceivedSnapshots.address(path) }
}

/// The files of snapshots beside a device's database: `NAME-snapshot-ID.part` is what has come, `NAME-snapshot-ID.db` what is in
/// it. Private from the first moment.
public struct ReceivedSnapshots: Sendable {
  private let database: String

  /// - Parameter database: the path of the device's database.
  public init(database: String) { self.database = database }

  private func part(_ id: String) -> String { "\(database)-snapshot-\(id).part" }
  private func plain(_ id: String) -> String { "\(database)-snapshot-\(id).db" }

  /// By ID: how much of each is here. What is here of others goes.
  public func received(_ offers: [SnapshotOffer]) throws -> [String: Int64] {
    try remove { name in !offers.contains { name.hasSuffix("-snapshot-\($0.id).part") } }
    var received: [String: Int64] = [:]
    var needed: Int64 = 0
    for offer in offers {
      let size = FileSystem.size(part(offer.id)) ?? 0
      received[offer.id] = size <= offer.bytes ? size : 0
      // The file, what is in it, and the same once in the database's log and once in the database.
      needed += offer.bytes - (received[offer.id] ?? 0) + 3 * offer.size
    }
    if let free = FileSystem.freeBytes(at: FileSystem.parts(of: database).folder), free < needed {
      throw SalvorError(
        .storageFull, "A snapshot needs \(needed) bytes of room beside the database, and there are \(free).")
    }
    return received
  }

  /// Writes a piece at `offset`, in bytes, and cuts off what was beyond it before. Errors: `snapshot-unusable` where
  /// the piece would end after the offer's length; what has come of the file is gone then.
  public func keep(_ piece: [UInt8], of offer: SnapshotOffer, at offset: Int64) throws {
    guard offset + Int64(piece.count) <= offer.bytes else {
      try FileSystem.remove(part(offer.id))
      throw SnapshotFormat.unusable("it is longer than the server has said")
    }
    let file = try OpenFile(writing: part(offer.id))
    if file.size != offset { try file.truncate(to: offset) }
    file.seek(to: offset)
    try file.write(piece)
  }

  /// Removes every file, or those alone that were opened.
  public func removeAll(partsToo: Bool) throws { try remove { partsToo || !$0.hasSuffix(".part") } }

  private func remove(where isOld: (String) -> Bool) throws {
    let (folder, name) = FileSystem.parts(of: database)
    for found in FileSystem.names(in: folder) where found.hasPrefix(name + "-snapshot-") && isOld(found) {
      try FileSystem.remove("\(folder)/\(found)")
    }
  }

  /// Throws `snapshot-unusable`, and removes the file, where anything is not as it should be. The error's context has the ID
  /// (`SnapshotOffer.itselfUnusable`) where these are the very bytes that the server named: the same from elsewhere is of no use.
  public func open(
    _ offer: SnapshotOffer, decoding: SnapshotCoding, bytesMax: Int64, _ config: SyncConfig
  ) async throws -> OpenedSnapshot {
    let hash = PieceHash()
    do {
      try await unpack(offer, decoding, bytesMax, hash)
      return OpenedSnapshot(
        offer: offer, tables: try Self.examine(plain(offer.id), offer, config), path: plain(offer.id))
    } catch let error as SalvorError where error.code == .storageFull || error.code == .cancelled {
      try? FileSystem.remove(plain(offer.id))
      throw error
    } catch {
      for path in [part(offer.id), plain(offer.id)] { try? FileSystem.remove(path) }
      var unusable = SnapshotFormat.unusable((error as? SalvorError)?.message ?? "it cannot be read")
      if let error = error as? SalvorError, error.code == .snapshotUnusable { unusable = error }
      if hash.text == offer.id { unusable.context[SnapshotOffer.itselfUnusable] = offer.id }
      throw unusable
    }
  }

  /// A snapshot's database that stands somewhere else, and stays there.
  public static func openSeed(_ path: String, _ config: SyncConfig) throws -> OpenedSnapshot {
    do {
      let connection = try SQLiteConnection(address(path), mode: .readOnly)
      defer { connection.close() }
      connection.setDefensive(true)
      try connection.pragma("trusted_schema", "OFF")
      let facts = try Self.facts(connection)
      guard let group = facts["group"], let scope = facts["scope"],
        let commit = try facts["commit"].map({ try Commit(JSONValue(parsing: Array($0.utf8))) }),
        let tables = try facts["tables"].map({ try JSONValue(parsing: Array($0.utf8)) })?.array
      else { throw SnapshotFormat.unusable("\(path) does not say what it is") }
      let size = FileSystem.size(path) ?? 0
      let offer = SnapshotOffer(
        id: String(repeating: "0", count: 64), group: group, commit: commit, scope: scope, coding: "identity",
        bytes: size, size: size, tables: try tables.map { try TableDigest($0) }, link: "")
      let examined = try examine(path, offer, config)
      try proveContent(connection, offer, examined, apart: facts["apart"])
      return OpenedSnapshot(offer: offer, tables: examined, path: path)
    } catch let error as SalvorError where error.code != .snapshotUnusable {
      throw SnapshotFormat.unusable(error.message)
    }
  }

  /// - Parameter hash: of all that is in the file, also where it cannot be decoded.
  private func unpack(
    _ offer: SnapshotOffer, _ decoding: SnapshotCoding, _ bytesMax: Int64, _ hash: PieceHash
  ) async throws {
    guard offer.size <= bytesMax else {
      throw SnapshotFormat.unusable("it is larger than \(bytesMax) bytes (client.limits.downloadBytesMax)")
    }
    guard let file = try OpenFile(reading: part(offer.id)), file.size == offer.bytes else {
      throw SnapshotFormat.unusable("it has not come whole")
    }
    let target = try OpenFile(writing: plain(offer.id))
    try target.truncate(to: 0)
    let source = file.pieces()
    let hashed: BytePieces = {
      let piece = try await source()
      if let piece { hash.update(piece) }
      return piece
    }
    var size: Int64 = 0
    do {
      let decoded = try decoding.code(hashed, nil)
      while let piece = try await decoded() {
        size += Int64(piece.count)
        guard size <= offer.size else { throw SnapshotFormat.unusable("it becomes larger than the server has said") }
        try target.write(piece)
      }
    } catch {
      let code = (error as? SalvorError)?.code
      if code != .storageFull, code != .cancelled { while try await hashed() != nil {} }
      throw error
    }
    while try await hashed() != nil {}
    guard hash.text == offer.id else { throw SnapshotFormat.unusable("its SHA-256 is another one") }
    guard size == offer.size else { throw SnapshotFormat.unusable("it becomes smaller than the server has said") }
  }

  // MARK: What is in it

  /// Looks at the database as at the work of someone who means harm, and gives its tables.
  static func examine(_ path: String, _ offer: SnapshotOffer, _ config: SyncConfig) throws -> [Table] {
    let connection = try SQLiteConnection(address(path), mode: .readOnly)
    defer { connection.close() }
    connection.setDefensive(true)
    connection.triggersEnabled = false
    for (name, value) in [
      ("trusted_schema", "OFF"), ("cell_size_check", "ON"), ("query_only", "ON"), ("mmap_size", "0"),
      ("cache_size", "-4096"),
    ] {
      try connection.pragma(name, value)
    }
    let wanted = SnapshotFormat.statements(offer.group, config)
    var missing = Dictionary(wanted.map { ($0.name, $0.sql) }) { first, _ in first }
    for row in try connection.rows("SELECT type, name, tbl_name, sql FROM sqlite_schema") {
      let (type, name, table, sql) = (row[0].string, row[1].string ?? "", row[2].string ?? "", row[3])
      if type == "table", let statement = missing[name], sql == .text(statement) {
        missing[name] = nil
      } else if type != "index" || sql != .null || !name.hasPrefix("sqlite_autoindex_")
        || !wanted.contains(where: { $0.name == table })
      {
        throw SnapshotFormat.unusable("it has other tables than this device would make")
      }
    }
    guard missing.isEmpty else { throw SnapshotFormat.unusable("it lacks tables that this device has") }
    guard try connection.scalar("PRAGMA encoding") == .text("UTF-8") else {
      throw SnapshotFormat.unusable("its texts are not UTF-8")
    }
    guard try connection.scalar("PRAGMA quick_check(1)") == .text("ok") else {
      throw SnapshotFormat.unusable("its database is damaged")
    }
    try checkFacts(connection, offer)
    let tables = SnapshotFormat.tables(of: offer.group, in: config)
    try checkApart(connection, tables)
    guard tables.count == offer.tables.count else { throw SnapshotFormat.unusable("it has other tables than it says") }
    for table in tables {
      let count = try connection.integer("SELECT count(*) FROM \(quoted(table.name))") ?? 0
      guard
        try count + connection.apartCount(of: table.name)
          == offer.tables.first(where: { $0.table == table.name })?.count
      else {
        throw SnapshotFormat.unusable("it has not as many rows as the server has said")
      }
    }
    return tables
  }

  /// No server has named the bytes of a file that came with the application: its rows are those that it was made with.
  private static func proveContent(
    _ connection: SQLiteConnection, _ offer: SnapshotOffer, _ tables: [Table], apart: String?
  ) throws {
    for table in tables {
      let digest = try connection.snapshotDigest(of: table).digest
      guard digest == offer.tables.first(where: { $0.table == table.name })?.digest else {
        throw SnapshotFormat.unusable("the rows of \(table.name) are not those that it was made with")
      }
    }
    let hasApart = try connection.scalar("SELECT 1 FROM \(SnapshotFormat.apartTable) LIMIT 1") != nil
    guard try apart == connection.apartDigest() || (apart == nil && !hasApart) else {
      throw SnapshotFormat.unusable("its large rows are not those that it was made with")
    }
  }

  /// Each is one row of the table that it stands for.
  private static func checkApart(_ connection: SQLiteConnection, _ tables: [Table]) throws {
    let names = Set(tables.map(\.name))
    try connection.query("SELECT \"table\", payload FROM \(SnapshotFormat.apartTable)") { row in
      let table = row.string(0)
      var rows = 0
      try row.withText(1) { text in
        var reader = DownloadChunkReader(
          UnsafeBufferPointer(start: text.baseAddress?.assumingMemoryBound(to: UInt8.self), count: text.count),
          blobs: BlobCollector())
        while let event = try reader.next() {
          switch event {
          case .table(let name, _) where name == table && names.contains(name): continue
          case .row: rows += 1
          default: throw SnapshotFormat.unusable("a row that stands apart is none of its table")
          }
          while try reader.item() != nil {}
        }
      }
      guard rows == 1 else { throw SnapshotFormat.unusable("a row that stands apart is none") }
      return true
    }
  }

  private static func facts(_ connection: SQLiteConnection) throws -> [String: String] {
    var facts: [String: String] = [:]
    for row in try connection.rows("SELECT key, value FROM salvor_snapshot LIMIT 100") {
      if let key = row[0].string { facts[key] = row[1].string }
    }
    return facts
  }

  private static func checkFacts(_ connection: SQLiteConnection, _ offer: SnapshotOffer) throws {
    let facts = try facts(connection)
    let expected = [
      "format": "\(SnapshotFormat.version)", "commit": offer.commit.json.text, "group": offer.group,
      "scope": offer.scope,
    ]
    for (key, value) in expected where facts[key] != value {
      throw SnapshotFormat.unusable("its \(key) is not the one that the server has said")
    }
  }

  static func address(_ path: String) -> String {
    let plain = path.utf8.map { byte -> String in
      let isPlain = (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte)
      return isPlain || [0x2F, 0x2E, 0x2D, 0x5F].contains(byte)
        ? String(UnicodeScalar(byte)) : "%" + hexadecimal([byte])
    }
    return "file:\(plain.joined())?mode=ro&immutable=1"
  }
}

/// A hash that one reader feeds.
private final class PieceHash: @unchecked Sendable {
  private let hasher = ContentHasher()
  func update(_ piece: [UInt8]) { piece.withUnsafeBytes { hasher.update($0) } }
  /// Nothing comes after it.
  private(set) lazy var text = hasher.hash().text
}
