import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Tables of which rows were left out, because the rows that they reference did not come (decision 188). Which rows these are is not kept:
/// when a row of a referenced table comes, the table is compared with the server, and takes what it lacks.
struct IncompleteTables {
  let context: StoreContext

  init(_ context: StoreContext) { self.context = context }

  /// By number.
  func numbers() throws -> Set<Int64> {
    Set(try context.connection.text(.incomplete)?.split(separator: ",").compactMap { Int64($0) } ?? [])
  }

  /// Tables of which rows were left out since a unique index of theirs takes them and others for one (decision 209), by number.
  func crowded() throws -> Set<Int64> {
    Set(try context.connection.text(.crowded)?.split(separator: ",").compactMap { Int64($0) } ?? [])
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

  /// After rows came and were left out.
  ///
  /// - Parameters:
  ///   - left: tables of which rows were left out now.
  ///   - came: tables of which rows came.
  /// - Returns: a table is to be compared.
  func note(left: Set<Int64>, came: (CapturedTable) throws -> Bool) throws -> Bool {
    let before = try numbers()
    var whole: Set<Int64> = []
    for number in before.sorted() {
      let parents = parents(of: [number]).compactMap { context.catalog.table(number: $0) }
      if try parents.contains(where: came) { whole.insert(number) }
    }
    try UnprovenTables(context).takeServers(whole.compactMap { context.catalog.table(number: $0) })
    let now = before.subtracting(whole).union(left)
    if now != before {
      let text = now.sorted().map(String.init).joined(separator: ",")
      try context.connection.setState(.incomplete, now.isEmpty ? nil : text)
    }
    return !whole.isEmpty
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
    let free = try before.sorted().compactMap { context.catalog.table(number: $0) }.filter { table in
      try ranges.contains { range in
        try context.connection.integer(
          "SELECT 1 FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND t = ?3 LIMIT 1",
          [.integer(range.first), .integer(range.last), .integer(table.number)]) != nil
      }
    }
    try look(again: free, besides: before)
    return !free.isEmpty
  }

  private func look(again free: [CapturedTable], besides all: Set<Int64>) throws {
    try UnprovenTables(context).takeServers(free)
    let text = all.subtracting(free.map(\.number)).sorted().map(String.init).joined(separator: ",")
    try context.connection.setState(.crowded, text.isEmpty ? nil : text)
  }
}
