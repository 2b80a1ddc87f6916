import SalvorModel
import SalvorWire

/// Gives the next bytes of something that is pulled, never empty; nil at the end.
public typealias BytePieces = @Sendable () async throws -> [UInt8]?

/// One direction of a content coding, for whoever writes or reads a snapshot's file.
public struct SnapshotCoding: Sendable {
  /// The token of `Content-Encoding`.
  public var token: String
  /// The bytes that come of those that are given. `bytes`: exactly how many are given, where that is known.
  public var code: @Sendable (_ pieces: @escaping BytePieces, _ bytes: Int64?) throws -> BytePieces

  /// A coding by its token, and what it does with bytes.
  public init(
    token: String, code: @escaping @Sendable (_ pieces: @escaping BytePieces, _ bytes: Int64?) throws -> BytePieces
  ) {
    self.token = token
    self.code = code
  }
}

/// The rows of one group in one scope as of one commit, as a file (docs/architecture/snapshots.md).
public struct Snapshot: Sendable, Hashable {
  /// The SHA-256 of the file as it is sent, as 64 hexadecimal digits.
  public var id: String
  /// The server that made it.
  public var server: ServerID
  /// The incarnation that made it.
  public var incarnation: IncarnationID
  /// The rows are as of this commit: the group's cursor of whoever takes the file over.
  public var commit: Commit
  /// Of the tables (`SyncConfig.digest`).
  public var schemaDigest: String
  /// The name of the group.
  public var group: String
  /// Whoever has this scope digest in the group sees these rows, and no others.
  public var scope: String
  /// Count and digest of the rows of each table.
  public var tables: [TableDigest]
  /// Of the file as it is sent.
  public var bytes: Int64
  /// Of the database in it.
  public var size: Int64
  /// The token of its content coding.
  public var coding: String
  /// Milliseconds since 1970.
  public var made: Int64
  /// How long it took.
  public var milliseconds: Int64
  /// Of the database in the file (`SnapshotFormat`); 1 where nothing is said.
  public var format: Int64

  /// How many rows it has in all tables.
  public var rows: Int64 { tables.reduce(0) { $0 + $1.count } }

  /// By default the database in the file has the format 1.
  public init(
    id: String, server: ServerID, incarnation: IncarnationID, commit: Commit, schemaDigest: String, group: String,
    scope: String, tables: [TableDigest], bytes: Int64, size: Int64, coding: String, made: Int64, milliseconds: Int64,
    format: Int64 = 1
  ) {
    self.format = format
    self.id = id
    self.server = server
    self.incarnation = incarnation
    self.commit = commit
    self.schemaDigest = schemaDigest
    self.group = group
    self.scope = scope
    self.tables = tables
    self.bytes = bytes
    self.size = size
    self.coding = coding
    self.made = made
    self.milliseconds = milliseconds
  }

  /// As it stands beside the file, and as the administration lists it.
  public var json: JSONValue {
    [
      "id": .string(id), "server": .string(server.text), "incarnation": .string(incarnation.text),
      "commit": commit.json, "schema": .string(schemaDigest), "group": .string(group), "scope": .string(scope),
      "rows": .integer(rows), "tables": .array(tables.map(\.json)), "bytes": .integer(bytes), "size": .integer(size),
      "coding": .string(coding), "made": .integer(made), "milliseconds": .integer(milliseconds),
      "format": .integer(format),
    ]
  }

  /// Reads what `json` has written. Throws `malformed` where a member is missing or cannot be.
  public init(_ json: JSONValue) throws(SalvorError) {
    id = try json.name("id")
    server = try json.identifier("server")
    incarnation = try json.identifier("incarnation")
    commit = try Commit(json["commit"] ?? .null)
    schemaDigest = try json.name("schema")
    group = try json.name("group")
    scope = try json.name("scope")
    tables = []
    for entry in try json.array("tables") { tables.append(try TableDigest(entry)) }
    bytes = try json.integer("bytes")
    size = try json.integer("size")
    coding = try json.name("coding")
    made = try json.integer("made")
    milliseconds = try json.integer("milliseconds")
    format = json["format"]?.integer ?? 1
  }
}

/// What a snapshot is to be made of.
public struct SnapshotOrder: Sendable {
  /// The server's schema; the file has the group's tables of it.
  public var schema: Schema
  /// The server that makes it.
  public var server: ServerID
  /// The incarnation that makes it.
  public var incarnation: IncarnationID
  /// The name of the group.
  public var group: String
  /// Whose rows.
  public var scope: ReadScope
  /// How the file is encoded, once: it is sent as it lies.
  public var coding: SnapshotCoding
  /// Of the file as it is sent; a larger one is given up.
  public var bytesMax: Int64
  /// For the time that is written down, and for the pauses between turns of work.
  public var clock: any Clock
  /// For the name of the unfinished file, and the remote ID with which pages are asked for.
  public var random: any RandomSource

  /// Everything that a file depends on, beside the rows.
  public init(
    schema: Schema, server: ServerID, incarnation: IncarnationID, group: String, scope: ReadScope,
    coding: SnapshotCoding, bytesMax: Int64, clock: any Clock, random: any RandomSource
  ) {
    self.schema = schema
    self.server = server
    self.incarnation = incarnation
    self.group = group
    self.scope = scope
    self.coding = coding
    self.bytesMax = bytesMax
    self.clock = clock
    self.random = random
  }
}

/// A server store whose groups may be had as files.
public protocol SnapshotServerStore: RecoveringServerStore {
  /// How many entries of the change log are newer than a commit, counted no further than `limit`. Nil: no feed can go on from the
  /// commit, since this server did not make it or has trimmed what came after it.
  func changes(since commit: Commit, limit: Int64) async throws -> Int64?

  /// The folder of this database's snapshots; made where it is not there.
  ///
  /// - Parameter path: nil: beside the database; throws `configuration` where that is no file.
  func snapshotFolder(at path: String?) throws -> any SnapshotFolder
}

/// A snapshot's file that is being read.
public struct OpenSnapshot: Sendable {
  /// The bytes in order, from the offset that was asked for; nil at the end.
  public var pieces: BytePieces
  /// The open file, for a system that sends it by itself; it stays open as long as `pieces` is held. Nil: there is none.
  public var descriptor: Int32?

  /// By default there is no descriptor: whoever sends it reads the pieces.
  public init(pieces: @escaping BytePieces, descriptor: Int32? = nil) {
    self.pieces = pieces
    self.descriptor = descriptor
  }
}

/// A folder of finished snapshots.
public protocol SnapshotFolder: Sendable {
  /// What is whole, newest first. Another process may add and remove files at any time.
  func list() throws -> [Snapshot]

  /// Removes what an earlier process left half done. Before anything is made.
  func removeUnfinished() throws

  /// Makes one from the pages of an ordinary download, so that it has the very rows that a device would have by rows. Throws
  /// `unsupported` where this group's rows do not fit into a file.
  func make(
    _ order: SnapshotOrder, page: @Sendable (PageRequest) async throws -> FeedPage
  ) async throws -> Snapshot

  /// Opens the file, so that it can be read to its end whatever becomes of it. Nil: it is not there any more, or not as long as it
  /// was.
  ///
  /// - Parameter pieceBytes: no piece is longer.
  func open(_ snapshot: Snapshot, from offset: Int64, count: Int64, pieceBytes: Int) throws -> OpenSnapshot?

  /// Copies the file, as it is, to a place where there is none. Private from its first moment.
  func write(_ snapshot: Snapshot, to path: String) async throws

  /// Removes it; one that is being read goes on.
  func remove(_ id: String) throws

  /// Removes every file; one that is being made meanwhile, by whatever process, is given up (`overloaded`).
  func removeAll() throws

  /// A keyed hash that only this folder's servers can make.
  func signature(of text: String) throws -> String
}

/// A device's store that can take a group over from a file.
public protocol SnapshotTakingClientStore: ClientStore {
  /// False: groups come by rows for now.
  var takesSnapshots: Bool { get async }

  /// How much of the file is here from an attempt before. What is here of files that are not named is removed. Throws `storage-full`
  /// where the disk has no room for the rest and for what comes of it.
  func snapshotsReceived(_ offers: [SnapshotOffer]) async throws -> [String: Int64]

  /// Writes a piece at `offset`; what was beyond it is cut off.
  func keepSnapshot(_ piece: [UInt8], of offer: SnapshotOffer, at offset: Int64) async throws

  /// Checks the file, decodes it, and examines the database in it as the work of someone who means harm. It is taken over by the
  /// next `apply`, or the next `recover` that makes the tables anew, in the same transaction. Throws `snapshot-unusable` where
  /// something does not hold; the file is gone then.
  ///
  /// - Parameters:
  ///   - bytesMax: of the decoded database.
  ///   - config: what the tables are going to be; nil: what they are.
  func openSnapshot(
    _ offer: SnapshotOffer, decoding: SnapshotCoding, bytesMax: Int64, as config: SyncConfig?
  ) async throws

  /// Examines a snapshot that the application brought along, a database that nobody has coded, in the same way. The file stays.
  ///
  /// - Returns: what it says of itself, as if a server had offered it.
  func openSeed(_ path: String) async throws -> SnapshotOffer

  /// Nothing that was opened is taken over any more. What has come of files that are not whole stays unless `removing`.
  func closeSnapshots(removing: Bool) async
}
