import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// Answers what a device that recovers asks about the rows that its principal sees (docs/architecture/recovery.md). One
/// answer is one snapshot.
package struct RecoveryQueries {
  package let connection: any StoreConnection
  let catalog: Catalog
  let scope: ReadScope
  /// Of these it looks at `blobReferenceBytesMin` and at what bounds a row.
  let limits: Limits

  package init(connection: any StoreConnection, catalog: Catalog, scope: ReadScope, limits: Limits) {
    self.connection = connection
    self.catalog = catalog
    self.scope = scope
    self.limits = limits
  }

  /// Everything committed has its number. What has none may be taken back before it gets one, and a row that came by it is then in no entry of
  /// the log.
  package func isSealed() throws -> Bool { try CommitLog.state(connection).isSealed }

  package func trimmed() throws -> Int64 { try FeedPageMaker.trimmed(connection) }

  package func scopes(of groups: [String]) -> [String: String] {
    let known = groups.filter { name in catalog.schema.groups.contains { $0.name == name } }
    return Dictionary(known.map { ($0, catalog.digest(ofGroup: $0, for: scope)) }) { first, _ in first }
  }

  package func rowCount(of groups: [String]) throws -> Int64 {
    var count: Int64 = 0
    for table in catalog.tables where groups.contains(table.table.group) {
      let filter = ScopeFilter(table, scope, catalog)
      let condition = filter.map { " WHERE " + $0.sql { "x.\(quoted($0))" } } ?? ""
      count +=
        try connection.integer("SELECT count(*) FROM \(table.sql) x\(condition)", filter?.values ?? []) ?? 0
    }
    return count
  }

  // MARK: Rows

  package func rows(_ query: RowQuery) throws -> [UInt8] {
    let table = try table(query.table)
    for key in query.keys { try check(key, table) }
    var answer = Answer(table, limits)
    var unseen = Set(query.keys.indices)
    if let range = query.range {
      try check(range.after, table)
      try check(range.last, table)
      let places = Dictionary(query.keys.enumerated().map { ($1, $0) }) { first, _ in first }
      var others = 0
      try read(table, after: range.after, last: range.last) { row in
        let place = places[table.keyPlaces.map { row.value($0) }]
        if let place { unseen.remove(place) } else { others += 1 }
        guard others <= RecoveryLimits.rangeRowsMax else {
          throw SalvorError(
            .tooLarge,
            "The range holds more than \(RecoveryLimits.rangeRowsMax) rows that were not named. Ask for the table's ranges first.",
            context: ["table": table.name])
        }
        answer.add(
          row, unless: place.flatMap { query.digests.isEmpty ? nil : query.digests[$0] }, isAsked: place != nil)
        return true
      }
    }
    let question = question(table)
    for place in query.keys.indices where unseen.contains(place) {
      let isThere = try read(question, key: query.keys[place]) { row in
        answer.add(row, unless: query.digests.isEmpty ? nil : query.digests[place], isAsked: true)
      }
      if !isThere { answer.departed(query.keys[place], try departure(of: query.keys[place], table)) }
    }
    return answer.finish()
  }

  /// What a row that the scope does not show is to a device that had it: outside of its subscriptions alone, there for others, or nowhere.
  private func departure(of key: Key, _ table: ServerTable) throws -> Departure {
    if !scope.subscriptions.isEmpty {
      let all = RecoveryQueries(
        connection: connection, catalog: catalog, scope: ReadScope(scope.principal), limits: limits)
      if try all.read(table, key: key, { _ in }) { return .dropped }
    }
    if table.alternatives.isEmpty { return .lost }
    let isThere = "SELECT 1 FROM \(table.sql) AS x WHERE \(table.keyMatches("x") { "?\($0 + 1)" })"
    return try connection.rows(isThere, key).isEmpty ? .lost : .left
  }

  private struct Answer {
    private let name: String
    private let columns: [String]
    private let isKey: [Bool]
    private let keyPlaces: [Int]
    private var writer: DownloadChunkWriter

    init(_ table: ServerTable, _ limits: Limits) {
      keyPlaces = table.keyPlaces
      name = table.name
      columns = table.columns.map(\.name)
      isKey = table.columns.indices.map { table.keyPlaces.contains($0) }
      writer = DownloadChunkWriter(
        blobs: BlobSink(bytesMin: limits.blobReferenceBytesMin), rowBytesMax: limits.sentRowBytesMax,
        blobBytesMax: limits.blobBytesMax, lineBytesTarget: min(limits.chunkBytesTarget, limits.chunkBytesMax / 4))
    }

    /// - Parameter isAsked: its key was named. One that is too large to be sent is none of this device's then.
    mutating func add(_ row: any StoreStatement, unless digest: String?, isAsked: Bool) {
      if let digest, RecoveryQueries.digest(of: row, count: columns.count).text == digest { return }
      begin()
      writer.beginRow(version: nil)
      for column in columns.indices { writer.value(of: row, column, isKey: isKey[column]) }
      if !writer.endRow(), isAsked { departed(keyPlaces.map { row.value($0) }, .dropped) }
    }

    mutating func departed(_ key: Key, _ departure: Departure) {
      begin()
      writer.beginKey(departure, version: nil)
      for value in key { writer.value(value, isKey: true) }
      writer.endRow()
    }

    private mutating func begin() { writer.table(name, columns: columns) }

    mutating func finish() -> [UInt8] { writer.finish() }
  }

  // MARK: Ranges

  package func ranges(_ question: RangeQuestion, limit: Int) throws -> RangePage {
    let table = try table(question.table)
    try check(question.range.after, table)
    try check(question.range.last, table)
    let rowsPerRange = question.rowsPerRange
    let columns = table.columns.map(\.name)
    var ranges: [RangeDigest] = []
    var count = 0
    var sum: UInt64 = 0
    var last: Key = []
    var isFull = false
    try read(table, after: question.range.after, last: question.range.last) { row in
      // A full range ends only where another row follows: the last one goes to the end of what was asked for.
      if count == rowsPerRange {
        ranges.append(RangeDigest(last: last, count: Int64(count), digest: RowDigest.text(sum)))
        (count, sum) = (0, 0)
        isFull = ranges.count >= limit
        if isFull { return false }
      }
      sum &+= Self.digest(of: row, count: columns.count).value
      count += 1
      if count == rowsPerRange { last = table.keyPlaces.map { row.value($0) } }
      return true
    }
    if !isFull {
      ranges.append(RangeDigest(last: question.range.last, count: Int64(count), digest: RowDigest.text(sum)))
    }
    return RangePage(columns: columns, ranges: ranges, isLast: !isFull)
  }

  /// All rows that the principal sees, in whatever order.
  package func digest(of name: String) throws -> TableDigest {
    let table = try table(name)
    var count: Int64 = 0
    var sum: UInt64 = 0
    try read(table, inOrder: false) { row in
      count += 1
      sum &+= Self.digest(of: row, count: table.columns.count).value
      return true
    }
    return TableDigest(table: name, count: count, digest: RowDigest.text(sum))
  }

  static func digest(of row: any StoreStatement, count: Int) -> RowDigest {
    var digest = RowDigest()
    for column in 0..<count {
      switch row.storageClass(column) {
      case .null: digest.addNull()
      case .integer: digest.add(row.int64(column))
      case .real: digest.add(row.double(column))
      case .text: row.withText(column) { digest.addText($0) }
      case .blob: row.withBlob(column) { digest.addBlob($0) }
      }
    }
    return digest
  }

  // MARK: Reading

  /// The rows that the principal sees after `after` up to `last`, in binary key order, as long as `body` answers true.
  private func read(
    _ table: ServerTable, after: Key? = nil, last: Key? = nil, inOrder: Bool = true,
    _ body: (any StoreStatement) throws -> Bool
  ) throws {
    var conditions: [String] = []
    if let after { conditions.append(table.binaryKey("x", is: ">", after.count)) }
    if let last { conditions.append(table.binaryKey("x", is: "<=", last.count)) }
    let filter = ScopeFilter(table, scope, catalog)
    if let filter { conditions.append(filter.sql { "x.\(quoted($0))" }) }
    let statement = try connection.stream(
      "SELECT \(table.columnList("x")) FROM \(table.sql) x"
        + (conditions.isEmpty ? "" : " WHERE " + conditions.joined(separator: " AND "))
        + (inOrder ? " ORDER BY \(table.binaryKeyList("x"))" : ""))
    try statement.bind((after ?? []) + (last ?? []) + (filter?.values ?? []))
    defer { statement.reset() }
    while try statement.step() {
      guard try body(statement) else { return }
    }
  }

  /// How rows of a table are asked for by their keys. The key's parameters are numbered; the filter's values follow them.
  private func question(_ table: ServerTable) -> (sql: String, values: [Value]) {
    let filter = ScopeFilter(table, scope, catalog)
    return (table.rowByKey + (filter.map { " AND " + $0.sql { "x.\(quoted($0))" } } ?? ""), filter?.values ?? [])
  }

  /// False: there is no such row, or the principal does not see it.
  func read(_ table: ServerTable, key: Key, _ body: (any StoreStatement) -> Void) throws -> Bool {
    try read(question(table), key: key, body)
  }

  private func read(
    _ question: (sql: String, values: [Value]), key: Key, _ body: (any StoreStatement) -> Void
  ) throws -> Bool {
    let statement = try connection.cached(question.sql)
    try statement.bind(key + question.values)
    defer { statement.reset() }
    guard try statement.step() else { return false }
    body(statement)
    return true
  }

  private func table(_ name: String) throws -> ServerTable {
    guard let table = catalog.table(name) else {
      throw SalvorError(
        .malformed, "The server has no synchronized table \(name). Check the schema.", context: ["table": name])
    }
    return table
  }

  private func check(_ key: Key?, _ table: ServerTable) throws {
    guard let key, key.count != table.keyCount else { return }
    throw SalvorError(
      .malformed, "A key of \(table.name) has \(table.keyCount) values, not \(key.count).",
      context: ["table": table.name])
  }
}

extension ServerTable {
  /// The key's columns as binary order compares them, whatever their collations.
  func binaryKeyList(_ alias: String) -> String {
    if keyIsBinary { return keyList(alias) }
    let folded = Set(
      uniqueIndexes.filter(\.isPrimaryKey).flatMap(\.columns).filter { !$0.isBinary }.compactMap(\.name))
    return table.primaryKey.map { name in
      let column = "\(alias).\(quoted(name))"
      return folded.contains(name) ? dialect.byteOrdered(column) : column
    }.joined(separator: ", ")
  }

  /// `(x."a", x."b") > (?, ?)`
  func binaryKey(_ alias: String, is comparison: String, _ count: Int) -> String {
    if count == 1 { return "\(binaryKeyList(alias)) \(comparison) ?" }
    return "(\(binaryKeyList(alias))) \(comparison) (\((0..<count).map { _ in "?" }.joined(separator: ", ")))"
  }
}
