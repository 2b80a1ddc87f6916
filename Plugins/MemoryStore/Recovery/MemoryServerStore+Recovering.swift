import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// What the consolidated database does for devices that recover (semantics 9).
extension MemoryServerStore: RecoveringServerStore {
  /// The number of the oldest commit whose tables are kept.
  public func trimmed() throws -> Int64 {
    try read().trimmed
  }

  /// By group. Groups that the schema does not have are left out.
  public func scopes(of groups: [String], for scope: ReadScope) throws -> [String: String] {
    let check = ScopeCheck(schema: try read().schema, scope: scope)
    let known = groups.filter { group in check.schema.groups.contains { $0.name == group } }
    return Dictionary(known.map { ($0, check.digest(ofGroup: $0)) }) { first, _ in first }
  }

  public func rowCount(of groups: [String], for scope: ReadScope) throws -> Int64 {
    let state = try read()
    let check = ScopeCheck(schema: state.schema, scope: scope)
    let tables = state.schema.synchronized.filter { groups.contains($0.group) }
    return Int64(check.visible(tables, in: state.tables).count)
  }

  public func rows(matching query: RowQuery, for scope: ReadScope) throws -> [UInt8] {
    let state = try numbered()
    let table = try synchronized(query.table, in: state)
    let rows = visibleRows(of: table, for: scope, in: state)
    var writer = DownloadChunkWriter(
      blobs: BlobSink(bytesMin: limits.blobReferenceBytesMin), rowBytesMax: limits.sentRowBytesMax,
      blobBytesMax: limits.blobBytesMax)
    func write(_ row: Row) -> Bool {
      writer.table(table.name, columns: table.travelling.map(\.name))
      writer.beginRow(version: nil)
      writer.row(row, of: table)
      return writer.endRow()
    }
    func write(_ key: Key, _ departure: Departure) {
      writer.table(table.name, columns: table.travelling.map(\.name))
      writer.beginKey(departure, version: nil)
      for value in key { writer.value(value, isKey: true) }
      writer.endRow()
    }
    let allowed = visibleRows(of: table, for: ReadScope(scope.principal), in: state)
    for (place, key) in query.keys.enumerated() {
      guard let row = rows[key] else {
        let isThere = state.tables[RowName(table: table.name, key: key)] != nil
        write(key, allowed[key] != nil ? .dropped : isThere ? .left : .lost)
        continue
      }
      if !query.digests.isEmpty, RowDigest(table.travelling(row)).text == query.digests[place] { continue }
      // One that is too large to be sent.
      if !write(row) { write(key, .dropped) }
    }
    if let range = query.range {
      for key in rows.keys.sorted(by: keyPrecedes) where range.contains(key) && !query.keys.contains(key) {
        if let row = rows[key] { _ = write(row) }
      }
    }
    return writer.finish()
  }

  /// Over all rows of the table that the scope shows. Errors: `malformed` where the schema has no such synchronized
  /// table.
  public func digest(of name: String, for scope: ReadScope) throws -> TableDigest {
    let page = try ranges(RangeQuestion(table: name, rowsPerRange: .max), limit: 1, for: scope)
    return TableDigest(table: name, count: page.ranges[0].count, digest: page.ranges[0].digest)
  }

  /// In the order of the keys, `question.rowsPerRange` rows each. Errors: `malformed` where the schema has no such
  /// synchronized table.
  public func ranges(_ question: RangeQuestion, limit: Int, for scope: ReadScope) throws -> RangePage {
    let state = try numbered()
    let table = try synchronized(question.table, in: state)
    let rows = visibleRows(of: table, for: scope, in: state)
    let rowsPerRange = question.rowsPerRange
    var rest = rows.keys.sorted(by: keyPrecedes).filter { question.range.contains($0) }[...]
    var page = RangePage(columns: table.travelling.map(\.name), ranges: [], isLast: false)
    while page.ranges.count < limit && !page.isLast {
      let keys = rest.prefix(rowsPerRange)
      rest = rest.dropFirst(rowsPerRange)
      page.isLast = rest.isEmpty
      let sum = keys.reduce(UInt64(0)) { $0 &+ RowDigest(table.travelling(rows[$1] ?? [])).value }
      page.ranges.append(
        RangeDigest(
          last: page.isLast ? question.range.last : keys.last, count: Int64(keys.count), digest: RowDigest.text(sum)))
    }
    return page
  }

  /// False where the remote is not known or blocked.
  public func demandReset(_ remote: RemoteID) throws -> Bool {
    try setDemand(of: remote) { _ in random.positiveNumber() }
  }

  /// Nil: of every principal. Returns how many remotes there are that are not deleted.
  public func demandResets(of principal: String?) throws -> Int64 {
    var state = try read()
    let demand = random.positiveNumber()
    var count: Int64 = 0
    for (remote, known) in state.remotes
    where !known.record.isDeleted && (principal == nil || principal.map(known.record.principal.isSameName) == true) {
      state.remotes[remote]?.record.resetDemand = demand
      count += 1
    }
    write(state)
    return count
  }

  /// A demand that came later stays. False where the remote is not known or blocked.
  public func settleReset(_ remote: RemoteID, demand: Int64) throws -> Bool {
    try setDemand(of: remote) { $0 == demand ? nil : $0 }
  }

  private func setDemand(of remote: RemoteID, _ next: (Int64?) -> Int64?) throws -> Bool {
    var state = try read()
    guard var known = state.remotes[remote], !known.record.isBlocked else { return false }
    known.record.resetDemand = next(known.record.resetDemand)
    state.remotes[remote] = known
    write(state)
    return true
  }

  /// Keeps the state in the `MemoryServerDatabase` under this path. No file is written.
  public func backup(to path: String) throws { database.keep(try numbered(), at: path) }

  private func numbered() throws -> ServerState {
    let state = try swept()
    write(state)
    return state
  }

  private func synchronized(_ name: String, in state: ServerState) throws -> Table {
    guard let table = state.schema.table(name), table.maintained != .client else {
      throw SalvorError(.malformed, "The server has no synchronized table \(name). Check the schema.")
    }
    return table
  }

  private func visibleRows(of table: Table, for scope: ReadScope, in state: ServerState) -> [Key: Row] {
    let check = ScopeCheck(schema: state.schema, scope: scope)
    return state.tables.rows(of: table.name).filter { check.finding($0.value, of: table, in: state.tables) == .inside }
  }
}
