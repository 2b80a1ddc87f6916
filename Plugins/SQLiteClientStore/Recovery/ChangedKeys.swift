import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What a device asks the server about (docs/architecture/recovery.md, *What is fetched*).
struct ChangedKeys {
  let context: StoreContext

  /// Groups that were synchronized, each with its start.
  func starts(shared: Commit?, trimmed: Int64) throws -> [GroupStart] {
    try context.connection.groupStates(context.schema.groups).compactMap { group in
      guard let cursor = group.cursor else { return nil }
      guard let shared else { return GroupStart(name: group.name, commit: nil) }
      let isBehind = cursor.number <= shared.number
      let start = isBehind ? cursor : shared
      // Rows of a group that came whole have no version: which of them are newer than the shared commit is not known. In a table that has come
      // from another group rows may be missing that were not in its scope there.
      let isKnown = try !group.hasMovedTables && (isBehind || context.connection.cameWhole(group.name) <= shared.number)
      return GroupStart(name: group.name, commit: start.number >= trimmed && isKnown ? start : nil)
    }
  }

  /// Each key once, in the order of the tables and of their keys: what stands by its key is then met in its order, on both
  /// sides. Place: of a key in that order.
  func keys(after starts: [GroupStart], place: Int64, limit: Int) throws -> (queries: [RowQuery], place: Int64)? {
    let connection = context.connection
    var bounds: [Int64: Int64] = [:]
    for start in starts {
      guard let commit = start.commit else { continue }
      for table in context.tables(of: [start.name]) { bounds[table.number] = commit.number }
    }
    guard !bounds.isEmpty else { return nil }
    let width = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    let keys = (0..<width).map { "v\($0)" }.joined(separator: ", ")
    let isKept = try connection.integer("SELECT 1 FROM sqlite_temp_schema WHERE name = 'salvor_changed_key'") == 1
    if place == 0 || !isKept { try collect(bounds, keys) }
    var queries: [RowQuery] = []
    var last = place
    try connection.query(
      "SELECT place, t, \(keys) FROM temp.salvor_changed_key WHERE place > ?1 ORDER BY place LIMIT ?2",
      [.integer(place), .integer(Int64(limit))]
    ) { row in
      last = row.int64(0)
      guard let table = context.catalog.table(number: row.int64(1)) else { return true }
      let key = row.values(from: 2, count: table.keyCount)
      if let known = queries.firstIndex(where: { $0.table == table.name }) {
        queries[known].keys.append(key)
      } else {
        queries.append(RowQuery(table: table.name, keys: [key]))
      }
      return true
    }
    if queries.isEmpty { try connection.execute("DROP TABLE temp.salvor_changed_key") }
    return queries.isEmpty ? nil : (queries, last)
  }

  /// The history is read once for all pages; again where the recovery goes on in another process.
  private func collect(_ bounds: [Int64: Int64], _ keys: String) throws {
    let cases = bounds.sorted { $0.key < $1.key }.map { "WHEN \($0.key) THEN \($0.value)" }.joined(separator: " ")
    try context.connection.execute(
      """
      DROP TABLE IF EXISTS temp.salvor_changed_key;
      CREATE TEMP TABLE salvor_changed_key (place INTEGER PRIMARY KEY, t, \(keys));
      INSERT INTO temp.salvor_changed_key (t, \(keys)) SELECT DISTINCT t, \(keys) FROM salvor_history
        WHERE version > CASE t \(cases) ELSE 9223372036854775807 END ORDER BY t, \(keys);
      """)
  }
}
