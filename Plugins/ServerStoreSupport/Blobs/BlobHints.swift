import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// A row that held a blob when it was seen last. Whether it still does is proved by hashing what is there.
package struct BlobHint: Sendable {
  var hash: BlobHash
  var place: BlobPlace
}

/// Where blobs were seen in the real tables: one for each place, written as uploads are processed and rows are fed.
package struct BlobHints {
  let connection: any StoreConnection

  package init(connection: any StoreConnection) {
    self.connection = connection
  }

  static let table = """
    CREATE TABLE IF NOT EXISTS salvor_blob_hint (
      "table" TEXT NOT NULL, key TEXT NOT NULL, "column" TEXT NOT NULL, hash TEXT NOT NULL,
      PRIMARY KEY ("table", key, "column")) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS salvor_blob_hint_hash ON salvor_blob_hint (hash);
    """

  /// Of one blob so many rows are tried.
  private static let placesMax: Int64 = 16

  func isKnown(_ hint: BlobHint) throws -> Bool {
    try connection.scalar(
      "SELECT hash FROM salvor_blob_hint WHERE \"table\" = ?1 AND key = ?2 AND \"column\" = ?3",
      .text(hint.place.table), .text(hint.place.keyText), .text(hint.place.column))?.string == hint.hash.text
  }

  package func note(_ hint: BlobHint) throws {
    try connection.run(
      "INSERT INTO salvor_blob_hint VALUES (?1, ?2, ?3, ?4) ON CONFLICT (\"table\", key, \"column\") DO UPDATE SET hash = ?4",
      .text(hint.place.table), .text(hint.place.keyText), .text(hint.place.column), .text(hint.hash.text))
  }

  func places(_ hash: BlobHash) throws -> [BlobPlace] {
    try connection.rows(
      "SELECT \"table\", key, \"column\" FROM salvor_blob_hint WHERE hash = ?1 LIMIT \(Self.placesMax)",
      .text(hash.text)
    ).compactMap { row in
      guard let table = row[0].string, let key = row[1].string, let column = row[2].string else { return nil }
      return BlobPlace(table: table, keyText: key, column: column)
    }
  }
}
