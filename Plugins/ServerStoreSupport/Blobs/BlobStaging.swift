import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// Blobs that principals have sent and no upload has used yet, in parts as they came.
package struct BlobStaging {
  let connection: any StoreConnection

  package init(connection: any StoreConnection) {
    self.connection = connection
  }

  package static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_blob (
      id INTEGER PRIMARY KEY, principal TEXT NOT NULL, hash TEXT NOT NULL, size INTEGER NOT NULL,
      received INTEGER NOT NULL, time INTEGER NOT NULL, used INTEGER NOT NULL DEFAULT 0, UNIQUE (principal, hash));
    CREATE TABLE IF NOT EXISTS salvor_blob_part (
      blob INTEGER NOT NULL, first INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (blob, first));
    \(BlobHints.table)
    """

  private struct Entry {
    var id: Int64
    var size: Int64
    var received: Int64
  }

  package enum Outcome {
    case staged(Int64)
    /// Nothing of it is kept.
    case mismatch
  }

  private func entry(_ hash: BlobHash, _ principal: Principal) throws -> Entry? {
    var found: Entry?
    try connection.query(
      "SELECT id, size, received FROM salvor_blob WHERE principal = ?1 AND hash = ?2",
      [.text(principal.name), .text(hash.text)]
    ) {
      found = Entry(id: $0.int64(0), size: $0.int64(1), received: $0.int64(2))
      return false
    }
    return found
  }

  /// In a transaction, to be committed whatever the outcome.
  ///
  /// - Parameter inUse: the hashes of blobs that do not make room for others.
  package func stage(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal, _ limits: Limits,
    now: Int64, inUse: () throws -> Set<String>
  ) throws -> Outcome {
    guard reference.size <= limits.blobBytesMax else {
      throw SalvorError(
        .tooLarge, "The blob has \(reference.size) bytes, more than \(limits.blobBytesMax) (blobBytesMax).")
    }
    guard offset >= 0, !part.isEmpty, offset <= reference.size - Int64(part.count) else {
      throw SalvorError(.malformed, "A part of a blob has at least one byte, and lies within the blob.")
    }
    let end = offset + Int64(part.count)
    try forget(before: now - blobStagingMilliseconds)
    var known = try entry(reference.hash, principal)
    if let other = known, other.size != reference.size {
      try remove("id = ?1", [.integer(other.id)])
      known = nil
    }
    let received = known?.received ?? 0
    if end <= received { return .staged(received) }
    guard offset == received else {
      throw SalvorError(
        .chunkMissing, "\(received) bytes of this blob are here. Go on from there.",
        context: ["received": "\(received)"]
      )
    }
    try makeRoom(for: reference.size - received, besides: reference.hash, principal, limits, inUse)
    let id = try known?.id ?? insert(reference, principal)
    try add(part, to: id, at: offset)
    try connection.run(
      "UPDATE salvor_blob SET received = ?2, time = ?3 WHERE id = ?1", .integer(id), .integer(end), .integer(now))
    guard end == reference.size, try hash(id) != reference.hash else { return .staged(end) }
    try remove("id = ?1", [.integer(id)])
    return .mismatch
  }

  /// Empties what nobody works with, the least recently staged first. Throws where that is not enough.
  private func makeRoom(
    for need: Int64, besides hash: BlobHash, _ principal: Principal, _ limits: Limits, _ inUse: () throws -> Set<String>
  ) throws {
    let staged =
      try connection.integer(
        "SELECT coalesce(sum(received), 0) FROM salvor_blob WHERE principal = ?1", .text(principal.name)) ?? 0
    var excess = staged + need - Int64(limits.blobStagingBytesMax)
    guard excess > 0 else { return }
    let used = try inUse()
    for row in try connection.rows(
      "SELECT id, hash, received FROM salvor_blob WHERE principal = ?1 AND hash <> ?2 ORDER BY time, id",
      .text(principal.name), .text(hash.text))
    {
      guard excess > 0 else { break }
      guard let other = row[1].string, !used.contains(other) else { continue }
      try remove("id = ?1", [row[0]])
      excess -= row[2].integer ?? 0
    }
    guard excess <= 0 else { throw SalvorError.noRoomForBlob(limits) }
  }

  /// Stages a blob whole, whose content is known to be right.
  func keep(_ content: [UInt8], as reference: BlobReference, for principal: Principal) throws {
    try remove("principal = ?1 AND hash = ?2", [.text(principal.name), .text(reference.hash.text)])
    let id = try insert(reference, principal)
    try add(content, to: id, at: 0)
    try connection.run("UPDATE salvor_blob SET received = size WHERE id = ?1", .integer(id))
  }

  private func insert(_ reference: BlobReference, _ principal: Principal) throws -> Int64 {
    try connection.integer(
      connection.dialect.insertingNumbered(
        "INSERT INTO salvor_blob (principal, hash, size, received, time) VALUES (?1, ?2, ?3, 0, 0)", id: "id"),
      .text(principal.name), .text(reference.hash.text), .integer(reference.size)) ?? 0
  }

  private func add(_ part: [UInt8], to id: Int64, at offset: Int64) throws {
    let statement = try connection.cached("INSERT INTO salvor_blob_part (blob, first, bytes) VALUES (?1, ?2, ?3)")
    try statement.bind([.integer(id), .integer(offset)])
    try part.withUnsafeBytes { bytes in
      try statement.bindBlob(3, bytes, copying: false)
      try statement.run()
    }
    statement.clearBindings()
  }

  private func hash(_ id: Int64) throws -> BlobHash {
    let hasher = ContentHasher()
    try eachPart(id) { hasher.update($0) }
    return hasher.hash()
  }

  private func eachPart(_ id: Int64, _ body: (UnsafeRawBufferPointer) -> Void) throws {
    try connection.query("SELECT bytes FROM salvor_blob_part WHERE blob = ?1 ORDER BY first", [.integer(id)]) { row in
      row.withBlob(0) { body($0) }
      return true
    }
  }

  /// How many bytes of it are staged.
  func received(_ reference: BlobReference, for principal: Principal) throws -> Int64 {
    guard let entry = try entry(reference.hash, principal), entry.size == reference.size else { return 0 }
    return entry.received
  }

  /// Calls `body` with the content. False: it is not staged whole.
  func withContent(
    of reference: BlobReference, for principal: Principal, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws -> Bool {
    guard let entry = try entry(reference.hash, principal), entry.size == reference.size, entry.received == entry.size
    else { return false }
    var whole: [UInt8] = []
    try connection.query(
      "SELECT bytes FROM salvor_blob_part WHERE blob = ?1 ORDER BY first", [.integer(entry.id)]
    ) { row in
      row.withBlob(0) { bytes in
        if bytes.count == reference.size {
          body(bytes)
        } else {
          if whole.isEmpty { whole.reserveCapacity(Int(reference.size)) }
          whole.append(contentsOf: bytes)
        }
      }
      return true
    }
    if !whole.isEmpty { whole.withUnsafeBytes { body($0) } }
    return true
  }

  /// The upload that is processed refers to it.
  func markUsed(_ reference: BlobReference, for principal: Principal) throws {
    try connection.run(
      "UPDATE salvor_blob SET used = 1 WHERE principal = ?1 AND hash = ?2", .text(principal.name),
      .text(reference.hash.text))
  }

  /// The upload was processed.
  func forgetUsed(of principal: Principal) throws {
    try remove("principal = ?1 AND used = 1", [.text(principal.name)])
  }

  package func forget(before milliseconds: Int64) throws { try remove("time < ?1", [.integer(milliseconds)]) }

  private func remove(_ condition: String, _ values: [Value]) throws {
    guard try connection.integer("SELECT 1 FROM salvor_blob WHERE \(condition) LIMIT 1", values) != nil else { return }
    try connection.run(
      "DELETE FROM salvor_blob_part WHERE blob IN (SELECT id FROM salvor_blob WHERE \(condition))", values)
    try connection.run("DELETE FROM salvor_blob WHERE \(condition)", values)
  }
}
