import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a person is told of one row: why it is here, or not.
extension SQLiteClientStore: ExplainingClientStore {
  /// Changes nothing. Errors: `not-found` where the schema has no such table.
  public func facts(of table: String, _ key: Key) throws -> DeviceRowFacts {
    let context = try opened()
    guard let captured = context.catalog.table(table) else {
      if let own = context.schema.table(table), own.maintained == .client {
        return try context.clientOnlyFacts(own, key)
      }
      throw SalvorError(
        .notFound,
        "There is no synchronized table \(table) here. There are \(context.catalog.tables.map(\.name).joined(separator: ", ")).",
        context: ["table": table])
    }
    // Requests are sorted to be told apart, and left as they were.
    return try context.connection.rolledBack { try RowInquiry(context: context).facts(of: captured, key) }
  }
}

extension StoreContext {
  fileprivate func clientOnlyFacts(_ table: Table, _ key: Key) throws -> DeviceRowFacts {
    let condition = table.primaryKey.enumerated().map { "\(quoted($1)) IS ?\($0 + 1)" }.joined(separator: " AND ")
    var facts = DeviceRowFacts()
    try connection.query("SELECT 1 FROM \(quoted(table.name)) WHERE \(condition)", key) { _ in
      facts.isThere = true
      return false
    }
    return facts
  }
}

private struct RowInquiry {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  func facts(of table: CapturedTable, _ key: Key) throws -> DeviceRowFacts {
    var facts = DeviceRowFacts()
    facts.isThere = try context.currentRow(table, key) != nil
    facts.requests = try requests(on: table, key)
    if let newest = try context.newestVersion(of: table, key) {
      (facts.version, facts.isOwnVersion, facts.base) = newest
    }
    facts.isLeaving =
      try connection.integer(
        "SELECT 1 FROM salvor_leaving WHERE t = ?1 AND key = ?2", .integer(table.number), .text(payload(key))) != nil
    facts.isUnproven = try UnprovenTables(context).names().contains(table.name)
    return facts
  }

  /// Those in the log, then those of the archive that are not shown in the table.
  private func requests(on table: CapturedTable, _ key: Key) throws -> [QueuedRequest] {
    let listing = try RequestListing(context)
    var found: [QueuedRequest] = []
    var last: Int64 = 0
    for entry in try LogIndex(context).entries(table, key) where entry.seq > last {
      let range = try context.range(of: entry.seq)
      last = range.last
      found += try listing.entries(of: range, isArchived: false)
    }
    for row in try connection.rows(
      "SELECT DISTINCT first FROM salvor_archive WHERE t = ?1 AND key = ?2 ORDER BY first", .integer(table.number),
      .text(payload(key)))
    {
      guard let first = row[0].integer else { continue }
      found += try listing.entries(of: try context.range(of: first), isArchived: true)
    }
    return found.filter { $0.table == table.name && $0.key == key }
  }
}
