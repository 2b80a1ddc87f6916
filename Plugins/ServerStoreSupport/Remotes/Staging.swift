import SalvorModel
import SalvorStorage
import SalvorWire

/// Chunks of uploads that are not processed yet. What is staged of a remote stands beside it in `salvor_remote`: whose
/// sequence ID, how many chunks and bytes, since when; so a chunk's cost does not grow with those before it.
///
/// Chunks that do not belong to that sequence ID count for nothing. They are removed slice by slice (`removeLeftOver`), so
/// that nobody waits long for the write lock.
package struct Staging {
  let connection: any StoreConnection

  package init(connection: any StoreConnection) {
    self.connection = connection
  }

  /// About 4 MiB.
  private static let chunksPerSlice: Int64 = 16

  private struct State {
    var sequence: String?
    var chunks: Int
    var bytes: Int64
  }

  private func state(of remote: RemoteID) throws -> State {
    var state = State(chunks: 0, bytes: 0)
    try connection.query(
      "SELECT staged_sequence, staged_chunks, staged_bytes FROM salvor_remote WHERE id = ?1", [.text(remote.text)]
    ) {
      state = State(sequence: $0.optionalString(0), chunks: Int($0.int64(1)), bytes: $0.int64(2))
      return false
    }
    return state
  }

  /// The remote is registered, and nothing of another upload is left over.
  package func stage(
    _ chunk: UploadChunk, index: Int, _ remote: RemoteRecord, _ sequence: SequenceID, _ limits: Limits, now: Int64
  ) throws {
    let id = Value.text(remote.id.text), place = Value.integer(Int64(index))
    let stored = try state(of: remote.id)
    let before = stored.sequence == sequence.text ? stored : State(chunks: 0, bytes: 0)
    if index > 0 {
      let last = try connection.integer(
        "SELECT last FROM salvor_staging WHERE remote = ?1 AND chunk = ?2", id, .integer(Int64(index) - 1))
      guard index <= before.chunks, let last, last < chunk.firstCounter else {
        throw SalvorError(
          .chunkMissing, "Chunk \(index) does not follow the chunks before it. Send the missing ones first.")
      }
    }
    guard index < limits.uploadChunksMax else { throw SalvorError.chunkQuota(limits) }
    let replaced =
      index < before.chunks
      ? try connection.integer("SELECT length(bytes) FROM salvor_staging WHERE remote = ?1 AND chunk = ?2", id, place)
        ?? 0 : 0
    let bytes = before.bytes - replaced + Int64(chunk.bytes.count)
    guard bytes <= limits.uploadBytesMax else { throw SalvorError.uploadTooLarge(limits) }
    let principals = try connection.integer(
      "SELECT coalesce(sum(staged_bytes), 0) FROM salvor_remote WHERE principal = ?1 AND staged_bytes > 0",
      .text(remote.principal))
    let others = (principals ?? 0) - stored.bytes
    guard others + bytes <= limits.principalStagedBytesMax else {
      throw SalvorError.stagingQuota(limits, others: others)
    }
    try write(chunk, index, remote.id, sequence)
    try connection.run(
      "UPDATE salvor_remote SET staged_sequence = ?2, staged_chunks = ?3, staged_bytes = ?4, staged_time = ?5 WHERE id = ?1",
      id, .text(sequence.text), .integer(Int64(max(before.chunks, index + 1))), .integer(bytes), .integer(now))
  }

  private func write(_ chunk: UploadChunk, _ index: Int, _ remote: RemoteID, _ sequence: SequenceID) throws {
    let statement = try connection.cached(
      """
      INSERT INTO salvor_staging (remote, sequence, chunk, first, last, changes, is_last, bytes)
      VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT (remote, chunk) DO UPDATE SET
        sequence = ?2, first = ?4, last = ?5, changes = ?6, is_last = ?7, bytes = ?8
      """)
    try statement.bind(
      [
        .text(remote.text), .text(sequence.text), .integer(Int64(index)), .integer(chunk.firstCounter),
        .integer(chunk.lastCounter), .integer(Int64(chunk.changeCount)), .integer(chunk.isLast ? 1 : 0),
      ])
    try chunk.bytes.withUnsafeBytes { bytes in
      try statement.bindBlob(8, bytes, copying: false)
      try statement.run()
    }
    statement.clearBindings()
  }

  // MARK: Reading

  package func staged(_ remote: RemoteID, _ sequence: SequenceID) throws -> StagedUpload {
    let state = try state(of: remote)
    guard state.sequence == sequence.text, state.chunks > 0 else { return StagedUpload() }
    var staged = StagedUpload(chunks: state.chunks, bytes: state.bytes)
    try connection.query(
      "SELECT last, is_last FROM salvor_staging WHERE remote = ?1 AND chunk = ?2",
      [.text(remote.text), .integer(Int64(state.chunks) - 1)]
    ) {
      (staged.lastCounter, staged.isWhole) = ($0.int64(0), $0.int64(1) == 1)
      return false
    }
    return staged
  }

  /// Throws `chunk-missing` unless the upload is staged from its first chunk to its last.
  package func requireWhole(_ remote: RemoteID, _ sequence: SequenceID) throws {
    guard try staged(remote, sequence).isWhole else {
      throw SalvorError(
        .chunkMissing,
        "The upload is not staged whole, and its session has ended. Begin again: the answer says which chunks are there."
      )
    }
  }

  package func chunk(_ index: Int, _ remote: RemoteID, _ sequence: SequenceID) throws -> [UInt8]? {
    guard try state(of: remote).sequence == sequence.text else { return nil }
    var bytes: [UInt8]?
    try connection.query(
      "SELECT bytes FROM salvor_staging WHERE remote = ?1 AND sequence = ?2 AND chunk = ?3",
      [.text(remote.text), .text(sequence.text), .integer(Int64(index))]
    ) { row in
      bytes = row.withBlob(0) { Array($0) }
      return false
    }
    return bytes
  }

  /// Calls `body` with each chunk in order.
  package func forEachChunk(_ remote: RemoteID, _ sequence: SequenceID, _ body: ([UInt8]) throws -> Void) throws {
    guard try state(of: remote).sequence == sequence.text else { return }
    let statement = try connection.stream(
      "SELECT bytes FROM salvor_staging WHERE remote = ?1 AND sequence = ?2 ORDER BY chunk")
    try statement.bind([.text(remote.text), .text(sequence.text)])
    defer { statement.reset() }
    while try statement.step() { try body(statement.withBlob(0) { Array($0) }) }
  }

  /// The blobs of a principal's that somebody works with: `wanted`, and those of uploads under way.
  package func blobs(
    ofPrincipal principal: Principal, wanted: Set<BlobHash>, isUnderWay: (RemoteID) -> Bool
  ) throws -> Set<String> {
    var used = Set(wanted.map(\.text))
    try forEachChunk(ofPrincipal: principal) { remote, chunk in
      guard isUnderWay(remote) else { return }
      try eachReferredBlob(inUpload: chunk) { blob, _ in used.insert(blob.hash.text) }
    }
    return used
  }

  /// Calls `body` with each chunk of a principal's remotes.
  private func forEachChunk(ofPrincipal principal: Principal, _ body: (RemoteID, [UInt8]) throws -> Void) throws {
    let statement = try connection.prepare(
      """
      SELECT s.remote, s.bytes FROM salvor_remote r \(connection.dialect.orderedJoin) salvor_staging s
        ON s.remote = r.id AND s.sequence = r.staged_sequence WHERE r.principal = ?1 AND r.staged_bytes > 0
      """)
    try statement.bind([.text(principal.name)])
    while try statement.step() {
      guard let remote = RemoteID(statement.string(0)) else { continue }
      try body(remote, statement.withBlob(1) { Array($0) })
    }
  }

  // MARK: Emptying

  /// What is staged of the remote counts for nothing any more. Its chunks are left over.
  package func forget(_ remote: RemoteID) throws {
    try connection.run(
      """
      UPDATE salvor_remote SET staged_sequence = NULL, staged_bytes = 0, staged_chunks = 0, staged_time = NULL
      WHERE id = ?1 AND staged_sequence IS NOT NULL
      """, .text(remote.text))
  }

  package func forget(_ remote: RemoteID, _ sequence: SequenceID) throws {
    if try state(of: remote).sequence == sequence.text { try forget(remote) }
  }

  package func forgetAll() throws {
    try connection.run(
      """
      UPDATE salvor_remote SET staged_sequence = NULL, staged_bytes = 0, staged_chunks = 0, staged_time = NULL
      WHERE staged_sequence IS NOT NULL
      """)
  }

  /// The remotes whose last chunk came before `milliseconds`.
  package func left(before milliseconds: Int64) throws -> [RemoteID] {
    try connection.rows(
      "SELECT id FROM salvor_remote WHERE staged_sequence IS NOT NULL AND staged_time < ?1", .integer(milliseconds)
    ).compactMap { $0[0].string.flatMap { RemoteID($0) } }
  }

  /// The first remote after `remote` that has chunks.
  package func remote(after remote: String) throws -> String? {
    try connection.scalar("SELECT min(remote) FROM salvor_staging WHERE remote > ?1", .text(remote))?.string
  }

  /// Whether chunks of the remote are there that belong to no upload, or to another one than `sequence`.
  package func hasLeftOver(_ remote: RemoteID, besides sequence: SequenceID?) throws -> Bool {
    let state = try state(of: remote)
    if let found = state.sequence, sequence == nil || found == sequence?.text { return false }
    return try connection.integer("SELECT 1 FROM salvor_staging WHERE remote = ?1 LIMIT 1", .text(remote.text)) == 1
  }

  /// Removes some chunks of what `hasLeftOver` has found.
  package func removeLeftOver(_ remote: RemoteID, besides sequence: SequenceID?) throws {
    guard try hasLeftOver(remote, besides: sequence) else { return }
    try forget(remote)
    try connection.run(
      """
      DELETE FROM salvor_staging WHERE remote = ?1 AND chunk >= (
        SELECT min(chunk) FROM (SELECT chunk FROM salvor_staging WHERE remote = ?1 ORDER BY chunk DESC LIMIT ?2) AS c)
      """, .text(remote.text), .integer(Self.chunksPerSlice))
  }
}
