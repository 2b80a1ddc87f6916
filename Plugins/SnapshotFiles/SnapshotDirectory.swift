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

  public func list() throws -> [Snapshot] {
    var found: [Snapshot] = []
    let names = FileSystem.names(in: path)
    for name in names where name.hasSuffix(".json") {
      guard let bytes = try FileSystem.readAll("\(path)/\(name)", limit: 1 << 20),
        let json = try? JSONValue(parsing: bytes), let snapshot = try? Snapshot(json),
        SnapshotOffer.isID(snapshot.id), name == snapshot.id + ".json",
        FileSystem.size(file(snapshot)) == snapshot.bytes
      else { continue }
      found.append(snapshot)
    }
    let kept = Set(found.flatMap { ["\($0.id).json", "\($0.id).\($0.coding)"] } + ["key", ".", ".."])
    for name in names where !kept.contains(name) && Self.isOurs(name) { try FileSystem.remove("\(path)/\(name)") }
    return found.sorted { $0.made > $1.made }
  }

  /// Nothing else is removed from a folder that somebody names.
  private static func isOurs(_ name: String) -> Bool {
    name.hasPrefix("making-") || SnapshotOffer.isID(String(name.prefix { $0 != "." }))
  }

  public func make(
    _ order: SnapshotOrder, page: @Sendable (PageRequest) async throws -> FeedPage
  ) async throws -> Snapshot {
    let snapshot = try await SnapshotMaker(folder: path).make(order, page)
    try FileSystem.write(snapshot.json.bytes, to: facts(snapshot.id))
    return snapshot
  }

  public func open(_ id: String, from offset: Int64, count: Int64) throws -> BytePieces? {
    guard SnapshotOffer.isID(id),
      let name = FileSystem.names(in: path).first(where: { $0.hasPrefix(id + ".") && !$0.hasSuffix(".json") }),
      let file = try OpenFile(reading: "\(path)/\(name)")
    else { return nil }
    file.seek(to: offset)
    return file.pieces(count: count)
  }

  public func remove(_ id: String) throws {
    guard SnapshotOffer.isID(id) else { return }
    // What says that the other is whole goes first.
    try FileSystem.remove(facts(id))
    for name in FileSystem.names(in: path) where name.hasPrefix(id + ".") { try FileSystem.remove("\(path)/\(name)") }
  }

  public func signature(of text: String) throws -> String { hexadecimal(hmacSHA256(Array(text.utf8), key: key)) }
}
