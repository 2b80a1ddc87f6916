import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

/// Brings a database that was opened in line with the ledger beside it: what a restore has brought back of purged rows goes
/// again, before anybody is answered.
struct PurgeReplay {
  let connection: SQLiteConnection
  let catalog: Catalog
  let server: ServerID
  let ledger: PurgeLedger
  /// The side file says that the database came from a backup.
  let isRestored: Bool

  /// In a transaction of its own. What is to be said to the operator.
  func run() throws -> [String] {
    let book = try PurgeBook(connection)
    let known = try book.entries()
    guard let found = try ledger.read() else {
      guard let key = book.key, !known.isEmpty else { return [] }
      try ledger.write(server, key, known)
      return [
        "\(ledger.path), the ledger of purged rows, was not there. It was made anew from the database, which knows \(known.count) acts."
      ]
    }
    try check(found, against: known)
    var notices: [String] = []
    if found.isTorn {
      try ledger.cut(to: found.wholeBytes)
      notices.append("\(ledger.path) ended in half a line, of a purge that was not done. The half line was removed.")
    }
    let missing = found.entries.dropFirst(known.count)
    guard !missing.isEmpty else { return notices }
    let rows = try connection.transaction(.immediate) { try apply(missing, try book.keyed(found.key)) }
    notices.append(
      "The database lacks \(missing.count) acts of \(ledger.path): it came from a backup. They were applied; \(rows) rows that were erased for good before are gone again."
    )
    return notices
  }

  private func check(_ found: PurgeLedger.Content, against known: [PurgeEntry]) throws {
    guard found.server == server else {
      throw SalvorError(
        .storage,
        "\(ledger.path) is the ledger of purged rows of another server (\(found.server)); this one is \(server). The server does not start. Put the right one there, or move it away where this database never had one.",
        context: ["file": ledger.path])
    }
    if found.entries.count < known.count {
      throw ledger.damaged(
        "it has \(found.entries.count) acts, and the database knows \(known.count). Where it is lost, remove what is left: the next start makes it anew from the database"
      )
    }
    if let last = known.last, found.entries[known.count - 1].seal != last.seal {
      throw ledger.damaged("it is not the one that the database's purges were written into")
    }
    // A purge ends only when its line is whole and the database has it.
    if found.isTorn, isRestored || found.entries.count > known.count {
      throw ledger.damaged("its last line is cut off")
    }
  }

  private func apply(_ missing: ArraySlice<PurgeEntry>, _ book: PurgeBook) throws -> Int64 {
    for entry in missing { try book.keep(entry) }
    try connection.execute("PRAGMA defer_foreign_keys = ON")
    var purge = Purge(connection, catalog)
    // Only hashes are known: each row that is there is asked. Children first.
    for place in catalog.tables.indices.reversed() {
      for key in try purgedKeys(place, book) { try purge.erase(place, key) }
    }
    for row in try connection.rows("SELECT DISTINCT \"table\", key FROM salvor_conflict") {
      guard let place = catalog.place(of: row[0].string ?? ""),
        let key = try JSONValue(parsing: Array((row[1].string ?? "").utf8)).array?.compactMap(\.rowValue),
        key.count == catalog.tables[place].keyCount, try book.isPurged(catalog.tables[place], key)
      else { continue }
      try purge.erase(place, key)
    }
    try purge.forgetOnTheWay()
    return purge.report.rows
  }

  private func purgedKeys(_ place: Int, _ book: PurgeBook) throws -> [Key] {
    let table = catalog.tables[place]
    var keys: [Key] = []
    let columns = table.table.primaryKey.map(quoted).joined(separator: ", ")
    try connection.query("SELECT \(columns) FROM \(table.sql)") { row in
      let key = (0..<table.keyCount).map { row.value($0) }
      if try book.isPurged(table, key) { keys.append(key) }
      return true
    }
    return keys
  }
}
