import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// A folder of finished snapshots: for each the file as it is sent, named by its ID and coding, and `ID.json`, which says what it
/// is. Private to the server's user. A file without the other is what a killed process left.
public final class SnapshotDirectory: SnapshotFolder {
  private let path: String
  private let key: [UInt8]

  /// - Parameter path: of the folder; made where it is not there.
  public init(_ path: String) throws {
    self.path = path
    try FileSystem.makeFolder(path)
    let keyPath = path + "/key"
    if let known = try FileSystem.readAll(keyPath, limit: 1024), known.count == 32 {
      key = known
    } else {
      let drawn = SystemRandom().bytes(32)
      try FileSystem.write(drawn, to: keyPath)
      key = drawn
    }
  }

  private func facts(_ id: String) -> String { "\(path)/\(id).json" }
  private func file(_ snapshot: Snapshot) -> String { "\(path)/\(snapshot.id).\(snapshot.coding)" }

  /// The snapshots of this format's version whose facts can be read and whose file has the length that the facts say,
  /// newest first.
  public func list() throws -> [Snapshot] {
    var found: [Snapshot] = []
    let names = FileSystem.names(in: path)
    for name in names where name.hasSuffix(".json") {
      guard let bytes = try FileSystem.readAll("\(path)/\(name)", limit: 1 << 20),
        let json = try? JSONValue(parsing: bytes), let snapshot = try? Snapshot(json),
        SnapshotOffer.isID(snapshot.id), name == snapshot.id + ".json",
        snapshot.format == SnapshotFormat.version, FileSystem.size(file(snapshot)) == snapshot.bytes
      else { continue }
      found.append(snapshot)
    }
    return found.sorted { ($0.made, $0.id) > ($1.made, $1.id) }
  }

  /// Removes files that a snapshot's making left, and files of snapshots that `list` does not show. Files of other
  /// names stay.
  public func removeUnfinished() throws {
    let kept = Set(try list().flatMap { ["\($0.id).json", "\($0.id).\($0.coding)"] })
    for name in FileSystem.names(in: path) where !kept.contains(name) && Self.isOurs(name) {
      try FileSystem.remove("\(path)/\(name)")
    }
  }

  /// Nothing else is removed from a folder that somebody names.
  private static func isOurs(_ name: String) -> Bool {
    name.hasPrefix("making-") || SnapshotOffer.isID(String(name.prefix { $0 != "." }))
  }

  /// Errors: `overloaded` where `removeAll` came meanwhile, then nothing is kept; those of `page`; `unsupported` where
  /// the group's rows do not fit into a file.
  public func make(
    _ order: SnapshotOrder, page: @Sendable (PageRequest) async throws -> FeedPage
  ) async throws -> Snapshot {
    let before = try FileSystem.readAll(discarded, limit: 1024)
    let snapshot: Snapshot
    do {
      snapshot = try await SnapshotMaker(folder: path).make(order, page)
    } catch {
      // The unfinished file was removed under it.
      try refuseErased(since: before)
      throw error
    }
    do {
      try FileSystem.write(snapshot.json.bytes, to: facts(snapshot.id))
      try refuseErased(since: before)
    } catch {
      try? remove(snapshot.id)
      throw error
    }
    return snapshot
  }

  private func refuseErased(since before: [UInt8]?) throws {
    guard try FileSystem.readAll(discarded, limit: 1024) != before else { return }
    throw SalvorError(
      .overloaded, "Rows were erased while the snapshot was made. Ask again.", retryAfterMilliseconds: 1000)
  }

  /// - Parameters:
  ///   - offset: in bytes from the file's beginning.
  ///   - count: in bytes; the pieces end sooner where the file does.
  ///   - pieceBytes: the length of the longest piece.
  /// - Returns: nil where the file is gone or has another length than the facts say.
  public func open(
    _ snapshot: Snapshot, from offset: Int64, count: Int64, pieceBytes: Int
  ) throws -> OpenSnapshot? {
    guard SnapshotOffer.isID(snapshot.id), let file = try OpenFile(reading: file(snapshot)),
      file.size == snapshot.bytes
    else { return nil }
    file.seek(to: offset)
    return OpenSnapshot(pieces: file.pieces(count: count, atMost: pieceBytes), descriptor: file.descriptor)
  }

  /// Errors: `not-found` where the snapshot's file is gone. A copy that fails leaves no file at `path`.
  public func write(_ snapshot: Snapshot, to path: String) async throws {
    guard let pieces = try open(snapshot, from: 0, count: .max, pieceBytes: OpenFile.pieceBytes)?.pieces else {
      throw SalvorError(.notFound, "This snapshot is not kept any more.")
    }
    let file = try OpenFile(writing: path)
    do {
      while let piece = try await pieces() { try file.write(piece) }
      try file.sync()
    } catch {
      try? FileSystem.remove(path)
      throw error
    }
  }

  /// Does nothing where `id` is no snapshot's ID, or no file has it.
  public func remove(_ id: String) throws {
    guard SnapshotOffer.isID(id) else { return }
    // What says that the other is whole goes first.
    try FileSystem.remove(facts(id))
    for name in FileSystem.names(in: path) where name.hasPrefix(id + ".") { try FileSystem.remove("\(path)/\(name)") }
  }

  /// Another text each time that everything was removed.
  private var discarded: String { path + "/discarded" }

  /// A snapshot that is being made meanwhile, by whatever process, is not kept: its `make` throws `overloaded`. What a killed
  /// process left goes, too: it has the same rows.
  public func removeAll() throws {
    try FileSystem.write(SystemRandom().bytes(16), to: discarded)
    for snapshot in try list() { try remove(snapshot.id) }
    for name in FileSystem.names(in: path) where Self.isOurs(name) { try FileSystem.remove("\(path)/\(name)") }
  }

  /// HMAC-SHA-256 of the text with this folder's key, as 64 hexadecimal digits.
  public func signature(of text: String) throws -> String { hexadecimal(hmacSHA256(Array(text.utf8), key: key)) }
}
