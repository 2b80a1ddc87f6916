import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What becomes of the values that rows of the application's own tables reference, while Salvor writes with foreign keys off:
/// SQLite's ON UPDATE and ON DELETE do not act then. Triggers of this connection alone note what they would have seen; such
/// triggers fire where those of the database are switched off.
///
/// The key of a synchronized row never changes, and `TouchedRows` knows which rows are gone: what references that needs no note.
final class ReferencedValues {
  enum Fate: Int64 {
    case changed, removed
    /// The row with the value was put aside.
    case aside
  }

  /// Columns of a table that own rows reference.
  fileprivate struct Source {
    var parent: String
    var columns: [String]
    /// How SQLite compares them, as they would be declared.
    var types: [String]
    /// Nil: the application's own.
    var captured: CapturedTable?

    /// The name has all that its columns depend on: no other shape is ever under it.
    func notes(_ place: Int) -> String {
      quoted("salvor_noted_\(place)_\(captured?.keyCount ?? 0)_\(types.joined(separator: "_"))")
    }
    var keys: [String] { captured.map { $0.key.map(\.name) } ?? [] }
    func slots(_ letter: String) -> String { columns.indices.map { "\(letter)\($0)" }.joined(separator: ", ") }
    func values(_ alias: String, of names: [String]) -> String {
      names.map { "\(alias).\(quoted($0))" }.joined(separator: ", ")
    }
    func equal(_ notes: String, _ columns: [String]) -> String {
      columns.enumerated().map { "\(notes).o\($0) = \($1)" }.joined(separator: " AND ")
    }
  }

  private let connection: SQLiteConnection
  private var sources: [Source] = []
  /// By the place of the rule.
  private var sourceOf: [Int: Int] = [:]
  /// Up to which note a rule has been followed.
  private var read: [Int: Int64] = [:]
  private var isWatching = false

  init(_ context: StoreContext, _ rules: [ReferenceRule]) throws {
    connection = context.connection
    for (place, rule) in rules.enumerated() where rule.capturedChild == nil {
      if rule.capturedParent != nil && rule.parentColumnsAreKey { continue }
      guard let shape = try connection.tableShape(rule.parent),
        let types = Self.types(shape, rule.parentColumns)
      else { continue }
      let source = Source(
        parent: rule.parent, columns: rule.parentColumns, types: types, captured: rule.capturedParent)
      if let known = sources.firstIndex(where: { $0.parent == source.parent && $0.columns == source.columns }) {
        sourceOf[place] = known
      } else {
        sourceOf[place] = sources.count
        sources.append(source)
      }
    }
  }

  /// Nil: no unique index is on just these columns, or the application compares them.
  private static func types(_ shape: TableShape, _ columns: [String]) -> [String]? {
    let names = columns.map { $0.folded }
    var collations: [String: String] = [:]
    if shape.hasRowidKey, names == shape.primaryKey.map({ $0.folded }) {
      collations = [names[0]: "BINARY"]
    } else {
      let index = shape.uniqueIndexes.first { index in
        index.condition == nil && Set(index.columns.compactMap { $0.name?.folded }) == Set(names)
          && index.columns.count == names.count
      }
      for part in index?.columns ?? [] { collations[part.name?.folded ?? ""] = part.collation.uppercased() }
    }
    let types = names.compactMap { name -> String? in
      guard let collation = collations[name], ["BINARY", "NOCASE", "RTRIM"].contains(collation) else { return nil }
      let affinity = shape.column(name)?.affinity ?? .blob
      return "\(affinity.rawValue.uppercased()) COLLATE \(collation)"
    }
    return types.count == names.count ? types : nil
  }

  // MARK: Noting

  /// From here on. In a transaction.
  func watch() throws {
    guard !sources.isEmpty, !isWatching else { return }
    try forgetTriggers()
    for (place, source) in sources.enumerated() {
      let notes = source.notes(place)
      let keys = source.keys.indices.map { "k\($0), " }.joined()
      let olds = source.types.enumerated().map { "o\($0) \($1)" }.joined(separator: ", ")
      try connection.execute(
        "CREATE TABLE IF NOT EXISTS temp.\(notes) (id INTEGER PRIMARY KEY, fate, \(keys)\(olds), \(source.slots("n"))); DELETE FROM temp.\(notes);"
      )
      let changed = source.columns.map { "OLD.\(quoted($0)) IS NOT NEW.\(quoted($0)) COLLATE BINARY" }
        .joined(separator: " OR ")
      // Of a synchronized row the first note says what the value was before: it may be written more than once.
      let key = source.keys.map { "OLD.\(quoted($0)), " }.joined()
      let known = zip(source.keys.indices, source.keys).map { "w.k\($0) IS OLD.\(quoted($1))" }.joined(
        separator: " AND ")
      let once = known.isEmpty ? "" : " WHERE NOT EXISTS (SELECT 1 FROM \(notes) w WHERE \(known))"
      func note(_ event: String, _ fate: Fate, _ condition: String, _ news: String) throws {
        try connection.execute(
          """
          CREATE TRIGGER temp.\(quoted("salvor_noting_\(place)_\(fate)")) AFTER \(event) ON main.\(quoted(source.parent)) \(condition) BEGIN
            INSERT INTO \(notes) (fate, \(keys)\(source.slots("o")), \(source.slots("n"))) SELECT \(fate.rawValue), \(key)\(source.values("OLD", of: source.columns)), \(news)\(once);
          END
          """)
      }
      try note(
        "UPDATE OF \(quotedList(source.columns))", .changed, "WHEN \(changed)", source.values("NEW", of: source.columns)
      )
      try note("DELETE", .removed, "", source.columns.map { _ in "NULL" }.joined(separator: ", "))
    }
    isWatching = true
  }

  /// The synchronized rows are as they are going to be: what became of them.
  func settle() throws {
    guard isWatching else { return }
    for (place, source) in sources.enumerated() where source.captured != nil {
      let notes = source.notes(place)
      let isRow = zip(source.keys.indices, source.keys).map { "p.\(quoted($1)) = w.k\($0)" }.joined(separator: " AND ")
      let row = "FROM main.\(quoted(source.parent)) p WHERE \(isRow)"
      let now = zip(source.columns.indices, source.columns).map { "n\($0) = (SELECT p.\(quoted($1)) \(row))" }
        .joined(separator: ", ")
      let isSame = source.columns.indices.map { "o\($0) IS n\($0) COLLATE BINARY" }.joined(separator: " AND ")
      try connection.execute(
        """
        UPDATE temp.\(notes) AS w SET fate = CASE WHEN EXISTS (SELECT 1 \(row)) THEN \(Fate.changed.rawValue) ELSE \(Fate.removed.rawValue) END, \(now);
        DELETE FROM temp.\(notes) WHERE fate = \(Fate.changed.rawValue) AND \(isSame);
        """)
    }
  }

  func stop() throws {
    guard isWatching else { return }
    isWatching = false
    try forgetTriggers()
  }

  private func forgetTriggers() throws {
    for row in try connection.rows(
      "SELECT name FROM sqlite_temp_schema WHERE type = 'trigger' AND name LIKE 'salvor\\_noting\\_%' ESCAPE '\\'")
    {
      guard let name = row[0].string else { continue }
      try connection.execute("DROP TRIGGER temp.\(quoted(name))")
    }
  }

  // MARK: Following

  /// What a rule has not followed yet.
  struct Unread {
    fileprivate var notes: String
    fileprivate var range: String
    fileprivate var source: Source

    /// The row `x` of the rule's child references a value of this fate.
    func matches(_ rule: ReferenceRule, _ fate: Fate) -> String {
      "EXISTS (SELECT 1 \(from(rule, fate)))"
    }

    /// What to set the row `x` to: the values of today.
    func news(_ rule: ReferenceRule) -> String {
      rule.childColumns.enumerated().map { place, column in
        "\(quoted(column)) = (SELECT w.n\(place) \(from(rule, .changed)) ORDER BY w.id LIMIT 1)"
      }.joined(separator: ", ")
    }

    private func from(_ rule: ReferenceRule, _ fate: Fate) -> String {
      "FROM temp.\(notes) w WHERE \(range) AND w.fate = \(fate.rawValue) AND "
        + source.equal("w", rule.childColumns.map { "x.\(quoted($0))" })
    }
  }

  /// Whether what the rule references is noted.
  func isNoted(_ place: Int) -> Bool { isWatching && sourceOf[place] != nil }

  /// Nil: nothing is new.
  func unread(_ place: Int) throws -> Unread? {
    guard isWatching, let number = sourceOf[place] else { return nil }
    let source = sources[number], notes = source.notes(number)
    let start = read[place] ?? 0
    let end = try last(notes)
    guard end > start else { return nil }
    read[place] = end
    return Unread(notes: notes, range: "w.id > \(start) AND w.id <= \(end)", source: source)
  }

  /// What `body` removes from a table of the application's own is put aside.
  func puttingAside(_ table: String, _ body: () throws -> Void) throws {
    let noted = try sources.enumerated().filter { isWatching && $0.element.parent == table }
      .map { ($0.element.notes($0.offset), try last($0.element.notes($0.offset))) }
    try body()
    for (notes, last) in noted {
      try connection.run("UPDATE temp.\(notes) SET fate = \(Fate.aside.rawValue) WHERE id > ?1", .integer(last))
    }
  }

  private func last(_ notes: String) throws -> Int64 {
    try connection.integer("SELECT max(id) FROM temp.\(notes)") ?? 0
  }
}
