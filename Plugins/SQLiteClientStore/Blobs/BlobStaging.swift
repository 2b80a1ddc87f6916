import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The blobs that a download refers to: which are wanted where, and what has come of them, in parts.
///
/// What came stays until something is applied, whatever download it came for: content is content.
struct BlobStaging {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  static let tables = """
    -- Blobs that what is staged refers to, each with the columns that it is for.
    CREATE TABLE IF NOT EXISTS salvor_blob_wanted (hash TEXT NOT NULL, "table" TEXT NOT NULL, key TEXT NOT NULL, "column" TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (hash, "table", key, "column")) WITHOUT ROWID;
    -- What has come of them.
    CREATE TABLE IF NOT EXISTS salvor_blob (hash TEXT NOT NULL PRIMARY KEY, size INTEGER NOT NULL, received INTEGER NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS salvor_blob_part (hash TEXT NOT NULL, first INTEGER NOT NULL, bytes BLOB NOT NULL, PRIMARY KEY (hash, first));
    -- Columns that held a blob when it travelled last: proved by hashing what is there.
    CREATE TABLE IF NOT EXISTS salvor_blob_hint ("table" TEXT NOT NULL, key TEXT NOT NULL, "column" TEXT NOT NULL, hash TEXT NOT NULL, PRIMARY KEY ("table", key, "column")) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS salvor_blob_hint_hash ON salvor_blob_hint (hash);
    """

  /// Those that hold what has not been applied yet.
  static let stagingTables = ["salvor_blob_wanted", "salvor_blob", "salvor_blob_part"]

  /// Of one blob so many columns are tried.
  private static let placesMax = 16

  // MARK: Wanted

  /// Takes note of what a download payload refers to.
  func want(_ payload: [UInt8]) throws {
    let placed = try placedBlobs(inDownload: payload) { context.schema.table($0)?.primaryKey }
    for (reference, place) in placed {
      try connection.run(
        "INSERT OR REPLACE INTO salvor_blob_wanted VALUES (?1, ?2, ?3, ?4, ?5)", .text(reference.hash.text),
        .text(place.table), .text(place.keyText), .text(place.column), .integer(reference.size))
    }
  }

  /// What is staged is given up.
  func forgetWanted() throws { try connection.run("DELETE FROM salvor_blob_wanted") }

  /// What was staged is applied.
  func finish() throws {
    // What came for a download that was given up goes, too.
    guard
      try connection.integer(
        "SELECT 1 WHERE EXISTS (SELECT 1 FROM salvor_blob_wanted) OR EXISTS (SELECT 1 FROM salvor_blob)") != nil
    else { return }
    try connection.run(
      "INSERT OR REPLACE INTO salvor_blob_hint SELECT \"table\", key, \"column\", hash FROM salvor_blob_wanted")
    for table in Self.stagingTables { try connection.run("DELETE FROM \(table)") }
  }

  /// Wanted blobs that are not here whole, at most `limit`, after those that this database holds were taken from there.
  func missing(limit: Int) throws -> [MissingBlob] {
    while true {
      let unseen = try wanted("b.hash IS NULL", limit: 100)
      if unseen.isEmpty { break }
      for blob in unseen { try takeFromRows(blob.reference) }
    }
    return try wanted("b.received < w.size", limit: limit)
  }

  private func wanted(_ condition: String, limit: Int) throws -> [MissingBlob] {
    var found: [MissingBlob] = []
    try connection.query(
      "SELECT w.hash, w.size, w.\"table\", w.key, w.\"column\", coalesce(b.received, 0) FROM salvor_blob_wanted w "
        + "LEFT JOIN salvor_blob b ON b.hash = w.hash WHERE \(condition) GROUP BY w.hash ORDER BY w.hash LIMIT ?1",
      [.integer(Int64(limit))]
    ) { row in
      guard let hash = BlobHash(row.string(0)),
        let place = BlobPlace(table: row.string(2), keyText: row.string(3), column: row.string(4))
      else { return true }
      found.append(
        MissingBlob(
          reference: BlobReference(hash: hash, size: row.int64(1)), place: place, received: row.int64(5)))
      return true
    }
    return found
  }

  /// Looks for a blob in the rows that it is for, and in those that held it. From here on it is known: whole, or empty.
  private func takeFromRows(_ reference: BlobReference) throws {
    var isHere = false
    for place in try places(reference.hash) where !isHere {
      isHere = try withContent(of: reference, at: place) { try add($0, to: reference, at: 0) }
    }
    try setReceived(isHere ? reference.size : 0, of: reference)
  }

  private func places(_ hash: BlobHash) throws -> [BlobPlace] {
    let columns = "\"table\", key, \"column\""
    return try ["salvor_blob_wanted", "salvor_blob_hint"].flatMap { table in
      try connection.rows("SELECT \(columns) FROM \(table) WHERE hash = ?1 LIMIT \(Self.placesMax)", .text(hash.text))
    }.compactMap { row in
      guard let table = row[0].string, let key = row[1].string, let column = row[2].string else { return nil }
      return BlobPlace(table: table, keyText: key, column: column)
    }
  }

  /// False: there is no such row, or it holds something else.
  private func withContent(
    of reference: BlobReference, at place: BlobPlace, _ body: (UnsafeRawBufferPointer) throws -> Void
  ) throws -> Bool {
    guard let table = context.catalog.table(place.table), place.key.count == table.keyCount,
      let slot = table.columns.firstIndex(where: { $0.name.folded == place.column.folded })
    else { return false }
    var isThere = false
    try connection.query(context.rowQuery(table), place.key) { row in
      try row.withBlob(slot) { bytes in
        guard bytes.count == reference.size, BlobHash(of: bytes) == reference.hash else { return }
        try body(bytes)
        isThere = true
      }
      return false
    }
    return isThere
  }

  /// A blob that an upload takes from a column: it will be found there again.
  func note(_ hints: [(hash: BlobHash, place: BlobPlace)]) throws {
    for (hash, place) in hints {
      try connection.run(
        "INSERT OR REPLACE INTO salvor_blob_hint VALUES (?1, ?2, ?3, ?4)", .text(place.table), .text(place.keyText),
        .text(place.column), .text(hash.text))
    }
  }

  /// A row holds the blob: the one that it is for, or one that held it.
  func isHere(_ reference: BlobReference, _ place: BlobPlace) throws -> Bool {
    for place in try [place] + places(reference.hash) {
      if try withContent(of: reference, at: place, { _ in }) { return true }
    }
    return false
  }

  // MARK: Parts

  enum Outcome {
    case staged(Int64)
    /// Nothing of it is kept.
    case mismatch
  }

  /// In a transaction, to be committed whatever the outcome.
  func stage(_ part: [UInt8], of reference: BlobReference, at offset: Int64) throws -> Outcome {
    let received =
      try connection.integer("SELECT received FROM salvor_blob WHERE hash = ?1", .text(reference.hash.text)) ?? 0
    let end = offset + Int64(part.count)
    guard offset == received, end <= reference.size else {
      throw SalvorError(.chunkMissing, "The parts of a blob must follow on. Go on after the last one that is here.")
    }
    try part.withUnsafeBytes { try add($0, to: reference, at: offset) }
    try setReceived(end, of: reference)
    guard end == reference.size, try hash(reference) != reference.hash else { return .staged(end) }
    try connection.run("DELETE FROM salvor_blob_part WHERE hash = ?1", .text(reference.hash.text))
    try setReceived(0, of: reference)
    return .mismatch
  }

  private func setReceived(_ received: Int64, of reference: BlobReference) throws {
    try connection.run(
      "INSERT OR REPLACE INTO salvor_blob (hash, size, received) VALUES (?1, ?2, ?3)", .text(reference.hash.text),
      .integer(reference.size), .integer(received))
  }

  private func add(_ bytes: UnsafeRawBufferPointer, to reference: BlobReference, at offset: Int64) throws {
    let statement = try connection.cached(
      "INSERT OR REPLACE INTO salvor_blob_part (hash, first, bytes) VALUES (?1, ?2, ?3)")
    try statement.bind([.text(reference.hash.text), .integer(offset)])
    try statement.bindBlob(3, bytes, copying: false)
    defer { statement.clearBindings() }
    try statement.run()
  }

  private func hash(_ reference: BlobReference) throws -> BlobHash {
    let hasher = ContentHasher()
    try eachPart(reference) { hasher.update($0) }
    return hasher.hash()
  }

  private func eachPart(_ reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void) throws {
    try connection.query(
      "SELECT bytes FROM salvor_blob_part WHERE hash = ?1 ORDER BY first", [.text(reference.hash.text)]
    ) { row in
      row.withBlob(0) { body($0) }
      return true
    }
  }

  /// Calls `body` with the content. False: it is not staged whole.
  func withStaged(_ reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void) throws -> Bool {
    let received = try connection.integer(
      "SELECT received FROM salvor_blob WHERE hash = ?1 AND size = ?2", .text(reference.hash.text),
      .integer(reference.size))
    guard received == reference.size else { return false }
    var whole: [UInt8] = []
    try eachPart(reference) { bytes in
      if bytes.count == reference.size {
        body(bytes)
      } else {
        if whole.isEmpty { whole.reserveCapacity(Int(reference.size)) }
        whole.append(contentsOf: bytes)
      }
    }
    if !whole.isEmpty { whole.withUnsafeBytes { body($0) } }
    return true
  }

  /// Calls `body` with the content, from the rows that held it.
  func withHinted(_ reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void) throws -> Bool {
    for place in try places(reference.hash) {
      if try withContent(of: reference, at: place, { body($0) }) { return true }
    }
    return false
  }
}

/// Gives a download that is applied the bytes of its blobs.
struct StagedBlobs: BlobResolver {
  let staging: BlobStaging
  /// A rehearsal fetches no blobs: what this database does not hold is zeros.
  let rehearses: Bool

  func withContent(
    of reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws(SalvorError) {
    do {
      if try staging.withStaged(reference, body) { return }
      guard rehearses else { throw SalvorError.blobMissing(reference) }
      if try staging.withHinted(reference, body) { return }
      let zeros = [UInt8](repeating: 0, count: Int(min(reference.size, Int64(Limits().blobBytesMax))))
      zeros.withUnsafeBytes { body($0) }
    } catch let error as SalvorError {
      throw error
    } catch {
      throw SalvorError(.storage, "A blob could not be read.")
    }
  }
}
