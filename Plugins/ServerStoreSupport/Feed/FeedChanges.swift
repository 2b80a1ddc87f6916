import SalvorModel
import SalvorStorage
import SalvorWire

/// The feed proper: the change log in windows of entries, each key once per window, in the state it has now.
extension FeedPageMaker {
  /// Entries between two places of the log; which of them are of one's own making.
  private struct Window {
    var first: Int64
    var last: Int64
    /// Ascending: last entry and number of the commits of the window.
    var commits: [(last: Int64, number: Int64)] = []
    /// Ranges of entries that this very remote sent before the download began (first exclusive, last inclusive): they are
    /// left out.
    var own: [(first: Int64, last: Int64)] = []
    /// Of all that it sent: a download that was cut goes on after a later upload, too.
    var sent: [(first: Int64, last: Int64)] = []

    func number(of sequence: Int64) -> Int64 {
      var low = 0, high = commits.count
      while low < high {
        let middle = (low + high) / 2
        if commits[middle].last >= sequence { high = middle } else { low = middle + 1 }
      }
      return low < commits.count ? commits[low].number : 0
    }
  }

  private static var ownRangesMax: Int { 100 }
  private static var entriesMax: Int64 { 8192 }

  /// Subscriptions narrow what the device sees: it may have written what it does not, and is told so.
  private var tellsOwn: Bool { filters.contains { $0?.hasChoices == true } }

  mutating func feedChanges() throws {
    let tellsOwn = tellsOwn
    var entries = min(max(Int64(request.bytesTarget) / 64, 1), 64)
    while position.fed < state.headSequence && !isFull {
      let window = try window(of: entries, passesOwn: !tellsOwn)
      // Nothing but what this device sent.
      if !tellsOwn, window.own.count == 1, window.own[0].first <= window.first, window.own[0].last >= window.last {
        position.fed = window.last
        continue
      }
      let before = writer
      let bytesBefore = writer.byteCount
      guard try feed(window) else {
        // Rows larger than thought: the same again with fewer entries.
        writer = before
        entries = max(1, (window.last - window.first) / 8)
        continue
      }
      position.fed = window.last
      let perEntry = max(1, Int64(writer.byteCount - bytesBefore) / max(1, window.last - window.first))
      let left = max(1, Int64(request.bytesTarget - writer.byteCount))
      entries = min(max(min(left / perEntry, entries * 4), 1), Self.entriesMax)
    }
  }

  private func window(of entries: Int64, passesOwn: Bool) throws -> Window {
    var window = Window(first: position.fed, last: min(position.fed + entries, state.headSequence))
    var previous = window.first
    try connection.query(
      "SELECT last_seq, number, remote = ?3 AND number <= ?4 AND number > "
        + "coalesce((SELECT own_after FROM salvor_remote WHERE id = ?3), 0), remote = ?3 FROM salvor_commit "
        + "WHERE last_seq > ?1 AND last_seq <= coalesce((SELECT min(last_seq) FROM salvor_commit WHERE last_seq >= ?2), ?2) "
        + "ORDER BY last_seq, number",
      [
        .integer(window.first), .integer(window.last), .text(request.remote.text),
        .integer(min(position.ownUpTo ?? .max, position.start.number)),
      ]
    ) { row in
      let last = row.int64(0)
      window.commits.append((last, row.int64(1)))
      if row.int64(3) == 1, last > previous { window.sent.append((previous, last)) }
      if row.int64(2) == 1, last > previous {
        if let end = window.own.last?.last, end == previous {
          window.own[window.own.count - 1].last = last
        } else {
          window.own.append((previous, last))
        }
        if window.own.count >= Self.ownRangesMax {
          window.last = min(window.last, last)
          return false
        }
      }
      previous = max(previous, last)
      return true
    }
    // A long upload of one's own is passed over in one step.
    if passesOwn, let own = window.own.first, own.first <= window.first, own.last > window.last, window.own.count == 1 {
      window.last = own.last
    }
    return window
  }

  /// False: what was written is far more than a page.
  private mutating func feed(_ window: Window) throws -> Bool {
    var numbers: Set<Int64> = []
    try connection.query(
      "SELECT DISTINCT t FROM salvor_change WHERE seq > ?1 AND seq <= ?2",
      [.integer(window.first), .integer(window.last)]
    ) {
      numbers.insert($0.int64(0))
      return true
    }
    let bytesMax = writer.byteCount + 2 * max(request.bytesTarget, 1)
    let isDivisible = window.last - window.first > 1
    for place in catalog.tables.indices where numbers.contains(catalog.tables[place].number) {
      guard let floor = position.floor(of: catalog.tables[place].table), floor < window.last else { continue }
      let first = max(window.first, floor)
      if try !feedRows(place, window, after: first, bytesMax: isDivisible ? bytesMax : .max) { return false }
      if catalog.tables[place].isScoped { try feedDepartures(place, window, after: first) }
      if filters[place]?.hasChoices == true { try feedOwnOutside(place, window, after: first) }
    }
    return true
  }

  /// `AND NOT (seq > ? AND seq <= ?)` for each range of one's own.
  ///
  /// - Parameter besides: what of one's own is fed all the same.
  private func others(_ window: Window, besides: String? = nil) -> (sql: String, values: [Value]) {
    let condition = window.own.map { _ in "NOT (seq > ? AND seq <= ?)" }.joined(separator: " AND ")
    return (
      condition.isEmpty ? "" : " AND " + (besides.map { "(\($0) OR \(condition))" } ?? condition),
      window.own.flatMap { [.integer($0.first), .integer($0.last)] }
    )
  }

  private mutating func feedRows(_ place: Int, _ window: Window, after first: Int64, bytesMax: Int) throws -> Bool {
    let table = catalog.tables[place]
    let filter = filters[place]
    // A device that was told of a row outside of its subscriptions does not have it, though it still shows its change of it.
    let others = others(window, besides: filter?.hasChoices == true ? "op = \(LogOperation.move)" : nil)
    let keys = table.logKey()
    // A scoped row that is gone, or out of scope, is told by `salvor_gone` alone.
    let join = table.isScoped ? "JOIN" : "LEFT JOIN"
    let inScope = filter.map { " WHERE " + $0.sql { "x.\(quoted($0))" } } ?? ""
    // A row that moved with what its scope asks for is news to those to whom it came.
    let reached = reached(place)
    let came = reached.sql.map { " OR EXISTS (SELECT 1 FROM salvor_came g WHERE g.seq = s.seq AND \($0))" } ?? ""
    let isNews = table.isScoped ? " AND (s.op <> \(LogOperation.scopeMoved)\(came))" : ""
    let parts = partColumns(place)
    // That another device holds something else than what is not there deletes nothing: the server may have lost the row with a restore.
    let isTold =
      "op <> \(LogOperation.differs) OR EXISTS (SELECT 1 FROM salvor_gone g WHERE g.seq = s.seq AND g.remote = ?)"
    let telling = table.isScoped ? "" : ", max(CASE WHEN \(isTold) THEN 1 ELSE 0 END) AS told"
    let key = "x.\(quoted(table.table.primaryKey[0]))"
    let condition = table.isScoped ? inScope : " WHERE (\(key) IS NOT NULL OR c.told = 1)"
    let statement = try connection.cached(
      "SELECT c.seq, \(key) IS NULL, c.m, \(table.logKey("c")), \(table.columnList("x")) "
        + "FROM (SELECT max(seq) AS seq, \(parts?.mask ?? "0") AS m, \(keys)\(telling) "
        + "FROM salvor_change s WHERE seq > ? AND seq <= ? "
        + "AND t = \(table.number)\(others.sql)\(isNews) GROUP BY \(keys)) c "
        + "\(join) \(table.sql) x ON \(table.keyMatches("x", log: "c"))\(condition) ORDER BY \(parts == nil ? "" : "c.m, ")c.seq"
    )
    let remote: [Value] = table.isScoped ? [] : [.text(request.remote.text)]
    try statement.bind(
      remote + [.integer(first), .integer(window.last)] + others.values + (table.isScoped ? reached.values : [])
        + (filter?.values ?? []))
    defer { statement.reset() }
    let columns = 3 + table.keyCount
    while try statement.step() {
      let version = window.number(of: statement.int64(0))
      if statement.int64(1) == 1 {
        beginTable(place)
        writer.beginKey(.deleted, version: version)
        for key in 0..<table.keyCount { writer.value(of: statement, 3 + key, isKey: true) }
        writer.endRow()
      } else if let changed = parts?.columns(statement.int64(2)) {
        try writePart(place, statement, from: columns, changed, version: version)
      } else {
        beginTable(place)
        try writeRow(table, statement, from: columns, version: version)
      }
      if writer.byteCount > bytesMax { return false }
    }
    return true
  }

  /// The scopes by which the device may have had a row, or gets it: what is wanted, and what its cursor was made with where
  /// that is something else.
  private func scopesReached(_ place: Int) -> [ScopeFilter?] {
    let table = catalog.tables[place]
    guard position.hasAnotherScope(table.table), let scope = scopes[table.table.group] else { return [filters[place]] }
    return [filters[place], ScopeFilter(table, scope.had, catalog)]
  }

  /// Where a row came to be, as `salvor_came` has it: in one of these scopes. One that shows everything shows nothing by a
  /// move; nil: no other does.
  private func reached(_ place: Int) -> (sql: String?, values: [Value]) {
    let filters = scopesReached(place).compactMap(\.self)
    let terms = filters.map { "(\($0.sqlForDimensions("g")))" }
    return (terms.isEmpty ? nil : "(\(terms.joined(separator: " OR ")))", filters.flatMap(\.values))
  }

  /// Where the device may have had a row, as `salvor_gone` has it.
  private func wasSeen(_ place: Int) -> (sql: String, values: [Value]) {
    let scopes = scopesReached(place)
    let filters = scopes.compactMap(\.self)
    guard filters.count == scopes.count else { return ("", []) }
    let terms = filters.map { "(\($0.sqlForDimensions("g")))" }
    return (" AND (\(terms.joined(separator: " OR ")))", filters.flatMap(\.values))
  }

  /// What the row `x` is to a device that does not see it: whether it is outside of the subscriptions alone.
  private func isDropped(_ place: Int) -> (sql: String, values: [Value]) {
    guard filters[place]?.hasChoices == true else { return ("FALSE", []) }
    guard let allowed = ScopeFilter(catalog.tables[place], ReadScope(request.principal), catalog) else {
      return ("TRUE", [])
    }
    return ("(\(allowed.sql { "x.\(quoted($0))" })) IS TRUE", allowed.values)
  }

  /// Keys of rows that this device could see and now cannot: deleted, or moved out of the scope.
  private mutating func feedDepartures(_ place: Int, _ window: Window, after first: Int64) throws {
    let table = catalog.tables[place]
    let others = others(window)
    let filter = filters[place]
    let seen = wasSeen(place), dropped = isDropped(place)
    // Who could see where the row was; or one device that holds what the server does not.
    let was = " AND (g.remote = ? OR g.remote IS NULL\(seen.sql))"
    let key = "x.\(quoted(table.table.primaryKey[0]))"
    let isOut = filter.map { " OR (\($0.sql { "x.\(quoted($0))" })) IS NOT TRUE" } ?? ""
    let newest = catalog.dialect.oneOfEach(
      key: table.logKey("g"), numbered: "g.seq", .last, ["g.deleted AS deleted", table.logKey("g")],
      from: "salvor_gone g", where: "g.seq > ? AND g.seq <= ? AND g.t = \(table.number)\(others.sql)\(was)")
    let statement = try connection.cached(
      "SELECT c.seq, CASE WHEN \(key) IS NULL THEN c.deleted WHEN \(dropped.sql) THEN 2 ELSE 0 END, \(table.logKey("c")) "
        + "FROM (\(newest)) c "
        + "LEFT JOIN \(table.sql) x ON \(table.keyMatches("x", log: "c")) WHERE \(key) IS NULL\(isOut) ORDER BY c.seq")
    try statement.bind(
      dropped.values + [.integer(first), .integer(window.last)] + others.values + [.text(request.remote.text)]
        + seen.values + (filter?.values ?? []))
    try writeKeys(place, window, statement)
  }

  /// Keys of rows that this device wrote and that no subscription of it covers. A row that it deleted itself is none.
  private mutating func feedOwnOutside(_ place: Int, _ window: Window, after first: Int64) throws {
    guard !window.sent.isEmpty, let filter = filters[place] else { return }
    let table = catalog.tables[place]
    let dropped = isDropped(place)
    let key = "x.\(quoted(table.table.primaryKey[0]))"
    let own = window.sent.map { _ in "seq > ? AND seq <= ?" }.joined(separator: " OR ")
    let newest = catalog.dialect.oneOfEach(
      key: table.logKey(), numbered: "seq", .last, ["op", table.logKey()], from: "salvor_change",
      where: "seq > ? AND seq <= ? AND t = \(table.number) AND (\(own))")
    let statement = try connection.cached(
      "SELECT c.seq, CASE WHEN \(key) IS NULL THEN 1 WHEN \(dropped.sql) THEN 2 ELSE 0 END, \(table.logKey("c")) "
        + "FROM (\(newest)) c "
        + "LEFT JOIN \(table.sql) x ON \(table.keyMatches("x", log: "c")) "
        + "WHERE c.op <> \(LogOperation.delete) AND (\(filter.sql { "x.\(quoted($0))" })) IS NOT TRUE ORDER BY c.seq")
    try statement.bind(
      dropped.values + [.integer(first), .integer(window.last)]
        + window.sent.flatMap { [.integer($0.first), .integer($0.last)] } + filter.values)
    try writeKeys(place, window, statement)
  }

  /// Rows of: entry, how it went (0 left, 1 deleted, 2 dropped), key.
  private mutating func writeKeys(_ place: Int, _ window: Window, _ statement: any StoreStatement) throws {
    defer { statement.reset() }
    while try statement.step() {
      beginTable(place)
      let departure: Departure =
        switch statement.int64(1) {
        case 1: .deleted
        case 2: .dropped
        default: .left
        }
      writer.beginKey(departure, version: window.number(of: statement.int64(0)))
      for key in 0..<catalog.tables[place].keyCount { writer.value(of: statement, 2 + key, isKey: true) }
      writer.endRow()
    }
  }
}
