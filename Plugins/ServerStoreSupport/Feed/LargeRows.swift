import SalvorModel
import SalvorStorage

/// Tables that have had a row which is too large to be sent. Devices do not have it, though its entries of the log say that it was nothing but
/// updated: from then on rows of such a table come whole (`FeedPageMaker.PartColumns`).
package struct LargeRows {
  let connection: any StoreConnection

  package init(connection: any StoreConnection) { self.connection = connection }

  private static let prefix = "large."

  /// Their numbers.
  func tables() throws -> Set<Int64> {
    let rows = try connection.rows(
      "SELECT key FROM salvor_server WHERE substr(key, 1, \(Self.prefix.utf8.count)) = '\(Self.prefix)'")
    return Set(rows.compactMap { $0[0].string.flatMap { Int64($0.dropFirst(Self.prefix.count)) } })
  }

  /// Before the page that leaves them out is sent.
  package func note(_ rows: [RowPlace], _ catalog: Catalog) throws {
    let known = try tables()
    for number in Set(rows.compactMap { catalog.table($0.table)?.number }).subtracting(known) {
      try connection.run(
        connection.dialect.insertingNew("INSERT INTO salvor_server (key, value) VALUES (?1, '')"),
        .text(Array("\(Self.prefix)\(number)".utf8)))
    }
  }
}
