import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Tables of which rows were left out: the rows that they reference did not come (decision 188), the table takes them and others for one
/// (decision 209), or does not take them at all (decision 211). Which rows these are is not kept: when the way may be free, the table is
/// compared with the server, and takes what it lacks.
struct IncompleteTables {
  let context: StoreContext

  init(_ context: StoreContext) { self.context = context }

  /// Those that lack a row which others reference, by number.
  func numbers() throws -> Set<Int64> { try numbers(.incomplete) }

  /// Tables of which rows were left out since a unique index of theirs takes them and others for one (decision 209), by number.
  func crowded() throws -> Set<Int64> { try numbers(.crowded) }

  /// All of them: that a row is not here does not say that somebody has deleted it here.
  func all() throws -> Set<Int64> { try numbers().union(crowded()).union(numbers(.refusing)) }

  private func numbers(_ name: StateName) throws -> Set<Int64> {
    Set(try context.connection.text(name)?.split(separator: ",").compactMap { Int64($0) } ?? [])
  }

  private func set(_ name: StateName, _ numbers: Set<Int64>) throws {
    let text = numbers.sorted().map(String.init).joined(separator: ",")
    try context.connection.setState(name, numbers.isEmpty ? nil : text)
  }

  /// The tables that rows of these reference, by number.
  func parents(of numbers: Set<Int64>) -> Set<Int64> {
    var parents: Set<Int64> = []
    for number in numbers {
      guard let table = context.catalog.table(number: number).flatMap({ context.table($0) }) else { continue }
      parents.formUnion(table.references.compactMap { context.catalog.table($0.table)?.number })
    }
    return parents
  }

  /// Rows of `number` reference rows of `other`, or rows that do.
  private func reaches(from number: Int64, _ other: Int64) -> Bool {
    var found: Set<Int64> = []
    var next = parents(of: [number])
    while !next.isSubset(of: found) {
      found.formUnion(next)
      next = parents(of: next)
    }
    return found.contains(other)
  }

  /// After rows came and were left out. A table whose rows may stand now is compared. So are tables that reference one another, when rows of
  /// both are left out: where they came one after the other, each waits for the other.
  ///
  /// - Parameters:
  ///   - left: tables of which rows were left out now.
  ///   - came: tables of which rows came.
  /// - Returns: a table is to be compared.
  func note(left: Set<Int64>, came: (CapturedTable) throws -> Bool) throws -> Bool {
    let before = try numbers()
    var whole: Set<Int64> = []
    var circle: Set<Int64> = []
    for number in before.sorted() {
      let parents = parents(of: [number]).compactMap { context.catalog.table(number: $0) }
      if try parents.contains(where: came) { whole.insert(number) }
      for other in left where other != number && reaches(from: number, other) && reaches(from: other, number) {
        circle.formUnion([number, other])
      }
    }
    try UnprovenTables(context).takeServers(
      whole.union(circle).sorted().compactMap { context.catalog.table(number: $0) })
    let now = before.subtracting(whole).union(left).subtracting(circle)
    if now != before { try set(.incomplete, now) }
    return !whole.union(circle).isEmpty
  }

  /// The same of tables that take rows for one. Whose rows change, the table is compared, but not by what brought such a row again.
  ///
  /// - Parameters:
  ///   - now: tables of which rows were left out now.
  ///   - changed: a table's rows came or went.
  /// - Returns: a table is to be compared.
  func note(colliding now: Set<Int64>, changed: (CapturedTable) throws -> Bool) throws -> Bool {
    let before = try crowded()
    if before.isEmpty, now.isEmpty { return false }
    let free = try before.subtracting(now).sorted().compactMap { context.catalog.table(number: $0) }.filter(changed)
    try look(again: free, besides: before.union(now))
    return !free.isEmpty
  }

  /// Accepted changes are going to leave the log: what stood in the way may be free. True: a table is to be compared.
  func note(accepted ranges: [RequestRange]) throws -> Bool {
    let before = try crowded()
    if before.isEmpty { return false }
    var changed: Set<Int64> = []
    try context.connection.query(
      "SELECT seq, t FROM salvor_log WHERE t IN (\(before.sorted().map(String.init).joined(separator: ", "))) ORDER BY seq"
    ) { row in
      if ranges.holding(row.int64(0)) != nil { changed.insert(row.int64(1)) }
      return changed.count < before.count
    }
    let free = changed.sorted().compactMap { context.catalog.table(number: $0) }
    try look(again: free, besides: before)
    return !free.isEmpty
  }

  private func look(again free: [CapturedTable], besides all: Set<Int64>) throws {
    try UnprovenTables(context).takeServers(free)
    try set(.crowded, all.subtracting(free.map(\.number)))
  }

  // MARK: Rows that a table does not take

  /// Rows of these tables were left out now.
  func note(refusing now: Set<Int64>) throws {
    let before = try numbers(.refusing)
    guard !now.isSubset(of: before) else { return }
    try set(.refusing, before.union(now))
    if before.isEmpty { try context.connection.setState(.refusingSchema, try constraints()) }
  }

  /// Where a table, an index or a trigger of the application's is another one than when rows were left out, they are compared.
  func lookAgainAtRefusing() throws {
    let refusing = try numbers(.refusing)
    if refusing.isEmpty { return }
    let now = try constraints()
    guard try context.connection.text(.refusingSchema) != now else { return }
    try UnprovenTables(context).takeServers(refusing.sorted().compactMap { context.catalog.table(number: $0) })
    try context.connection.setState(.refusingSchema, now)
  }

  /// What the comparison of these tables found is going to be applied: a row that is refused still is noted then.
  func compared(_ tables: [CapturedTable]) throws {
    let refusing = try numbers(.refusing)
    if !refusing.isEmpty { try set(.refusing, refusing.subtracting(tables.map(\.number))) }
  }

  /// A digest of what may refuse a row: a trigger writes into other tables, too.
  private func constraints() throws -> String {
    let sql = try context.connection.rows(
      "SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL AND name NOT LIKE 'salvor\\_%' ESCAPE '\\' ORDER BY type, name"
    ).compactMap { $0[0].string }
    return digest(Array(sql.joined(separator: "\n").utf8))
  }
}
