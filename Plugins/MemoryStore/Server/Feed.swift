import SalvorModel
import SalvorStorage
import SalvorWire

/// Where a download stands. Everything a page needs besides the database.
struct FeedPosition {
  struct Group {
    var name: String
    /// The commit to feed from; nil: the group's tables are scanned, and then fed from `start`.
    var cursor: Int64?
    var scopeDigest: String
    /// Of the scope that the cursor was made with, where the subscriptions have changed since.
    var hadDigest: String?
  }

  /// The digest of the synchronized tables when the download began.
  var schema: String
  /// M0: the head when the download began.
  var start: Int64
  var groups: [Group]
  /// The commit to feed a table from, whatever its group's is, because the device has compared it, or gets it whole.
  var floors: [String: Int64] = [:]
  /// Tables that are scanned, whatever their group is.
  var whole: Set<String> = []
  /// This remote's own commits up to this one are left out; nil: up to the start.
  var ownUpTo: Int64?
  /// The next row of the scan, which looks at each table twice: for rows that come, and for rows that are dropped. Nil: it
  /// has ended.
  var scan: (step: Int, after: Key)?
  /// The last place of the feed that was sent.
  var fed: (commit: Int64, table: Int, key: Key)

  var text: String {
    let json: JSONValue = [
      "schema": .string(schema),
      "start": .integer(start),
      "groups": .array(
        groups.map {
          [
            "name": .string($0.name), "cursor": .integer($0.cursor ?? -1), "scope": .string($0.scopeDigest),
            "had": $0.hadDigest.map(JSONValue.string) ?? .null,
          ]
        }),
      "scan": scan.map { .array([.integer(Int64($0.step)), .array($0.after.map(JSONValue.init))]) } ?? .null,
      "fed": .array([.integer(fed.commit), .integer(Int64(fed.table)), .array(fed.key.map(JSONValue.init))]),
      "floors": .object(floors.sorted { $0.key < $1.key }.map { .init($0.key, .integer($0.value)) }),
      "whole": .array(whole.sorted().map(JSONValue.string)), "own": ownUpTo.map(JSONValue.integer) ?? .null,
    ]
    return json.text
  }

  init(schema: String, start: Int64, groups: [Group], compared: ComparedTables?) {
    self.schema = schema
    self.start = start
    self.groups = groups
    if let compared {
      for table in compared.fed.union(compared.whole) { floors[table] = compared.head.number }
      whole = compared.whole
      ownUpTo = compared.ownUpTo
    }
    scan = !whole.isEmpty || groups.contains { $0.cursor == nil || $0.hadDigest != nil } ? (0, []) : nil
    fed = (0, 0, [])
  }

  /// Every row of the table comes.
  func isScanned(_ table: Table) -> Bool {
    guard let group = groups.first(where: { $0.name == table.group }) else { return false }
    return whole.contains(table.name) || floors[table.name] == nil && group.cursor == nil
  }

  /// What the device has of a table is what it subscribed to before: what was added and dropped since is looked for among
  /// the rows.
  func hasAnotherScope(_ table: Table) -> Bool {
    groups.contains { $0.hadDigest != nil && $0.name == table.group } && !isScanned(table)
  }

  init(_ text: String) throws {
    do {
      try self.init(reading: text)
    } catch let error as SalvorError where error.code == .malformed { throw Self.foreign }
  }

  private init(reading text: String) throws {
    let json = try JSONValue(parsing: Array(text.utf8))
    schema = try json.string("schema")
    start = try json.integer("start")
    groups = try json.array("groups").map { group in
      let cursor = try group.integer("cursor")
      return Group(
        name: try group.string("name"), cursor: cursor < 0 ? nil : cursor, scopeDigest: try group.string("scope"),
        hadDigest: try group.optionalString("had"))
    }
    scan = try json.optionalArray("scan").map { (try Self.index($0, 0), try Self.key($0, 1)) }
    let place = try json.array("fed")
    guard place.count == 3, let commit = place[0].integer else { throw Self.foreign }
    fed = (commit, try Self.index(place, 1), try Self.key(place, 2))
    for member in json["floors"]?.members ?? [] { floors[member.key] = member.value.integer }
    whole = Set(try json.array("whole").compactMap(\.string))
    ownUpTo = json["own"]?.integer
  }

  private static var foreign: SalvorError {
    SalvorError(
      .inconsistentDownload,
      "This download cannot go on: its position is not from this server. Discard what is staged and begin it again.")
  }

  private static func index(_ items: [JSONValue], _ place: Int) throws -> Int {
    guard items.count > place, let index = items[place].integer, index >= 0 else { throw foreign }
    return Int(index)
  }

  private static func key(_ items: [JSONValue], _ place: Int) throws -> Key {
    guard items.count > place, let values = items[place].array else { throw foreign }
    return try values.map { value in
      guard let value = value.rowValue else { throw foreign }
      return value
    }
  }
}

/// Makes one page of a download (semantics 4): first the whole of the groups that need it, and what changed subscriptions add
/// and drop, in key order, then for every group what commits changed, in the order of the commits, up to the newest one.
struct Feed {
  let state: ServerState
  let request: PageRequest
  /// By group: the scope that is wanted, and the one that the cursor was made with.
  let scopes: [String: (wanted: ScopeCheck, had: ScopeCheck)]
  /// Parents first.
  let tables: [Table]
  private var position: FeedPosition
  private var writer: DownloadChunkWriter

  private var leftOut: [RowPlace] = []
  private let rowBytesMax: Int
  private let blobBytesMax: Int

  init(_ request: PageRequest, on state: ServerState, _ limits: Limits) throws {
    writer = DownloadChunkWriter(
      blobs: BlobSink(bytesMin: limits.blobReferenceBytesMin), rowBytesMax: limits.sentRowBytesMax,
      blobBytesMax: limits.blobBytesMax)
    rowBytesMax = limits.sentRowBytesMax
    blobBytesMax = limits.blobBytesMax
    self.state = state
    self.request = request
    var scopes: [String: (wanted: ScopeCheck, had: ScopeCheck)] = [:]
    for group in request.groups where state.schema.groups.contains(where: { $0.name == group.name }) {
      scopes[group.name] = (
        ScopeCheck(schema: state.schema, scope: request.scope(of: group)),
        ScopeCheck(schema: state.schema, scope: request.scopeBefore(of: group))
      )
    }
    self.scopes = scopes
    tables = state.schema.parentsFirst(state.schema.synchronized)
    if let text = request.position {
      position = try FeedPosition(text)
      guard position.schema == SyncConfig(state.schema).digest else {
        throw Self.outdated("the server's schema has changed since it began")
      }
      for group in position.groups {
        guard let scope = scopes[group.name], scope.wanted.digest(ofGroup: group.name) == group.scopeDigest,
          group.hadDigest.map({ $0 == scope.had.digest(ofGroup: group.name) }) ?? true
        else { throw Self.outdated("the scope changed meanwhile") }
      }
    } else {
      position = Self.start(request, on: state, scopes)
    }
  }

  private static func outdated(_ why: String) -> SalvorError {
    SalvorError(.inconsistentDownload, "This download cannot go on: \(why). Discard what is staged and start it again.")
  }

  /// Groups whose cursor this server made and still keeps, in the scope that it was made for, go on from it; the others are
  /// scanned.
  private static func start(
    _ request: PageRequest, on state: ServerState, _ scopes: [String: (wanted: ScopeCheck, had: ScopeCheck)]
  ) -> FeedPosition {
    FeedPosition(
      schema: SyncConfig(state.schema).digest, start: state.head.number,
      groups: request.groups.compactMap { group in
        guard let scope = scopes[group.name] else { return nil }
        let (digest, had) = (scope.wanted.digest(ofGroup: group.name), scope.had.digest(ofGroup: group.name))
        var cursor: Int64?
        if let commit = group.cursor, group.scopeDigest == had, state.tables(at: commit.number) != nil,
          state.commits[Int(commit.number)].commit == commit
        {
          cursor = commit.number
        }
        return FeedPosition.Group(
          name: group.name, cursor: cursor, scopeDigest: digest, hadDigest: had == digest ? nil : had)
      }, compared: request.compared)
  }

  mutating func page() throws -> FeedPage {
    if request.position == nil {
      let position = position
      let whole = tables.filter { position.isScanned($0) }
      if !whole.isEmpty { writer.full(whole.map(\.name)) }
    }
    scanRows()
    let isComplete = position.scan == nil ? try feedChanges() : false
    let rows = writer.upserts
    var page = FeedPage(
      bytes: writer.finish(), position: isComplete ? nil : position.text,
      groups: isComplete ? position.groups.map(ended) : nil)
    page.rows = rows
    page.leftOut = leftOut
    return page
  }

  private func ended(_ group: FeedPosition.Group) -> GroupState {
    let wanted = scopes[group.name]?.wanted
    return GroupState(
      name: group.name, cursor: state.head, scopeDigest: group.scopeDigest,
      subscriptions: wanted?.scope.subscriptions(ofGroup: group.name, in: state.schema) ?? ResolvedSubscriptions())
  }

  private var isFull: Bool { writer.upserts + writer.deletes > 0 && writer.byteCount >= request.bytesTarget }

  private mutating func scanRows() {
    while let place = position.scan {
      guard place.step < 2 * tables.count else {
        position.scan = nil
        return
      }
      let table = tables[place.step / 2]
      let isDropping = place.step % 2 == 1
      let hasAnother = position.hasAnotherScope(table)
      if let scope = scopes[table.group], hasAnother || position.isScanned(table) && !isDropping {
        for key in state.tables.sortedKeys(of: table.name) where place.after.isEmpty || keyPrecedes(place.after, key) {
          guard let row = state.tables.rows(of: table.name)[key] else { continue }
          let isWanted = scope.wanted.finding(row, of: table, in: state.tables) == .inside
          let isThere = hasAnother && scope.had.finding(row, of: table, in: state.tables) == .inside
          guard isDropping ? isThere && !isWanted : isWanted && !isThere else { continue }
          if isFull { return }
          if isDropping {
            write(key, .dropped, of: table, version: position.start)
          } else {
            write(row, of: table, version: hasAnother ? position.start : nil)
          }
          position.scan = (place.step, key)
        }
      }
      position.scan = (place.step + 1, [])
    }
  }

  /// True: everything up to the head is in.
  private mutating func feedChanges() throws -> Bool {
    for change in try changes() {
      if isFull { return false }
      let table = tables[change.table]
      if change.isVisible, let row = state.tables.rows(of: table.name)[change.key] {
        write(row, of: table, change.columns, version: change.commit)
      } else {
        write(change.key, change.departure, of: table, version: change.commit)
      }
      position.fed = (change.commit, change.table, change.key)
    }
    return true
  }

  private mutating func write(_ row: Row, of table: Table, version: Int64?) {
    writer.table(table.name, columns: table.travelling.map(\.name))
    writer.beginRow(version: version)
    writer.row(row, of: table)
    if !writer.endRow() { leaveOut(row, of: table, version) }
  }

  /// A device may have it as it was.
  private mutating func leaveOut(_ row: Row, of table: Table, _ version: Int64?) {
    leftOut.append(RowPlace(table: table.name, key: table.key(of: row)))
    if let version { write(table.key(of: row), .left, of: table, version: version) }
  }

  /// - Parameter changed: of a row that the device has: the columns that were changed; nil: it comes whole.
  private mutating func write(_ row: Row, of table: Table, _ changed: Set<String>?, version: Int64) {
    let columns = table.travelling.map(\.name).filter {
      changed?.contains($0) ?? true || table.primaryKey.contains($0)
    }
    // Nothing that travels, or all of it.
    guard columns.count < table.travelling.count, columns.count > table.primaryKey.count else {
      return write(row, of: table, version: version)
    }
    writer.table(table.name, columns: columns)
    writer.beginPart(version: version)
    for name in columns { writer.value(table.value(name, of: row), isKey: table.primaryKey.contains(name)) }
    if !writer.endRow() { leaveOut(row, of: table, version) }
  }

  private mutating func write(_ key: Key, _ departure: Departure, of table: Table, version: Int64) {
    writer.table(table.name, columns: table.travelling.map(\.name))
    writer.beginKey(departure, version: version)
    for value in key { writer.value(value, isKey: true) }
    writer.endRow()
  }

  private struct FedChange {
    var commit: Int64
    var table: Int
    var key: Key
    var isVisible: Bool
    var departure: Departure
    /// Of a row that the device has had since its cursor, and that was only updated; else nil.
    var columns: Set<String>?
  }

  /// What is still to be fed, in order of the last commit that is a reason for it.
  private func changes() throws -> [FedChange] {
    var found: [FedChange] = []
    for group in position.groups {
      guard let scope = scopes[group.name] else { continue }
      let members = tables.filter { $0.group == group.name }
      let floor = group.cursor ?? position.start
      for (from, tables) in Dictionary(grouping: members, by: { position.floors[$0.name] ?? floor }) {
        for (hasAnother, tables) in Dictionary(grouping: tables, by: { position.hasAnotherScope($0) }) {
          let mayBeParts = request.takesParts && request.compared == nil && group.cursor != nil && !hasAnother
          found += try changes(of: tables, after: from, scope.wanted, hasAnother ? scope.had : scope.wanted).map {
            var change = $0
            if !mayBeParts { change.columns = nil }
            return change
          }
        }
      }
    }
    let fed = position.fed
    return found.filter { ($0.commit, $0.table) > (fed.commit, fed.table) || isAfterKey($0, fed) }
      .sorted { a, b in
        (a.commit, a.table) == (b.commit, b.table)
          ? keyPrecedes(a.key, b.key) : (a.commit, a.table) < (b.commit, b.table)
      }
  }

  private func isAfterKey(_ change: FedChange, _ fed: (commit: Int64, table: Int, key: Key)) -> Bool {
    (change.commit, change.table) == (fed.commit, fed.table) && keyPrecedes(fed.key, change.key)
  }

  /// The device may not have it, since it was too large to be sent.
  private func mayBeLarge(_ row: Row?) -> Bool {
    let bytes = (row ?? []).reduce(0) { sum, value in
      switch value {
      case .text(let bytes), .blob(let bytes): sum + bytes.count
      default: sum
      }
    }
    // As JSON a byte takes six at most.
    return 6 * bytes > rowBytesMax || bytes > blobBytesMax
  }

  private struct Reason {
    /// The last commit that is a reason to feed the row.
    var commit: Int64
    /// Just before the row went, the device could have it, or it has it, as a touch says: so it is told that it was
    /// deleted.
    var wasVisibleBefore: Bool
    /// Something else than that another device holds something else is a reason, too. That alone deletes nothing: the server may have lost
    /// the row with a restore.
    var isTold: Bool
  }

  /// - Parameter had: the scope that the cursor was made with. A device may have what was in either.
  private func changes(
    of members: [Table], after cursor: Int64, _ wanted: ScopeCheck, _ had: ScopeCheck
  ) throws -> [FedChange] {
    guard let start = state.tables(at: cursor) else { throw Self.outdated("the server no longer keeps its history") }
    var before = Views(members, wanted, had, start)
    let memberNames = Set(members.map(\.name))
    let chosen = Set(members.filter(wanted.isNarrowed).map(\.name))
    var reasons: [RowName: Reason] = [:]
    var columns: [RowName: Set<String>?] = [:]
    let known = before.wanted
    var tablesBefore = start
    var seen = before.either
    // It has what it wrote outside of its subscriptions, until it is told.
    var heldOutside: Set<RowName> = []
    for record in state.commits.dropFirst(Int(cursor) + 1) {
      guard let tables = record.tables else { throw Self.outdated("the server no longer keeps its history") }
      let now = Views(members, wanted, had, tables)
      let changed = record.changed.filter { memberNames.contains($0.table) }
      // What this very device sent is not fed back; but what its change of a parent did to the visibility of others is.
      let isSent =
        record.remote == request.remote && record.commit.number > state.remotes[request.remote]?.ownAfter ?? 0
      let isOwn = isSent && record.commit.number <= min(position.ownUpTo ?? .max, position.start)
      // It may have been told of a row outside of its subscriptions, and does not have it then.
      let brought = changed.filter { name in
        chosen.contains(name.table) && tablesBefore[name] != nil && !before.wanted.contains(name)
          && now.wanted.contains(name)
      }
      for name in changed.union(now.moved(since: before))
      where !(isOwn && changed.contains(name)) || brought.contains(name) {
        columns.updateValue(
          name.updatedColumns(from: tablesBefore, to: tables, by: record, state.schema).flatMap { updated in
            guard known.contains(name), now.wanted.contains(name), before.wanted.contains(name),
              !mayBeLarge(start[name]), !mayBeLarge(tablesBefore[name])
            else { return nil }
            return columns[name, default: Set()].map { $0.union(updated) }
          }, forKey: name)
        // A touch changes nothing: before it the row was where it is.
        let wasKnown =
          record.touchedFor == request.remote || record.touchedFor != nil && reasons[name]?.wasVisibleBefore == true
        reasons[name] = Reason(
          commit: record.commit.number,
          wasVisibleBefore: wasKnown || before.either.contains(name) || heldOutside.contains(name),
          isTold: reasons[name]?.isTold == true || record.touchedFor == nil || record.touchedFor == request.remote)
      }
      // A download that was cut goes on after a later upload, too.
      if isSent {
        heldOutside.subtract(changed)
        for name in changed where chosen.contains(name.table) && tables[name] != nil && !now.wanted.contains(name) {
          reasons[name] = Reason(commit: record.commit.number, wasVisibleBefore: true, isTold: true)
          heldOutside.insert(name)
        }
        seen.formUnion(heldOutside)
      }
      if record.touchedFor == request.remote { seen.formUnion(changed) }
      seen.formUnion(now.either)
      before = now
      tablesBefore = tables
    }
    let visible = before.wanted
    let allowed = wanted.ofPrincipal.visible(members, in: state.tables)
    // What another program wrote and deleted before anybody looked was deleted: the log has a tombstone.
    let everyones = Set(members.filter { state.schema.scopeAlternatives(of: $0).isEmpty }.map(\.name))
    return reasons.compactMap { name, reason in
      let isVisible = visible.contains(name)
      let isKnown = everyones.contains(name.table)
      // A key that this principal could never read is not told either.
      guard isVisible || seen.contains(name) || isKnown && (reason.isTold || state.tables[name] != nil) else {
        return nil
      }
      let isDelete = state.tables[name] == nil && (isKnown || reason.wasVisibleBefore)
      return FedChange(
        commit: reason.commit, table: tables.firstIndex { $0.name == name.table } ?? 0, key: name.key,
        isVisible: isVisible, departure: isDelete ? .deleted : allowed.contains(name) ? .dropped : .left,
        columns: columns[name] ?? nil)
    }
  }

  /// The rows in the scopes at one time.
  private struct Views {
    var wanted: Set<RowName>
    var had: Set<RowName>
    var either: Set<RowName> { wanted.union(had) }

    init(_ members: [Table], _ wanted: ScopeCheck, _ had: ScopeCheck, _ tables: MemoryTables) {
      self.wanted = wanted.visible(members, in: tables)
      self.had = had.scope == wanted.scope ? self.wanted : had.visible(members, in: tables)
    }

    func moved(since before: Views) -> Set<RowName> {
      wanted.symmetricDifference(before.wanted).union(had.symmetricDifference(before.had))
    }
  }
}

extension RowName {
  /// The columns that a commit changed of the row; nil: it did not just update it.
  fileprivate func updatedColumns(
    from before: MemoryTables, to after: MemoryTables, by record: ServerState.CommitRecord, _ schema: Schema
  ) -> [String]? {
    guard record.touchedFor == nil, record.changed.contains(self), let table = schema.table(table),
      let old = before[self], let new = after[self]
    else { return nil }
    return table.changedColumns(old, new)
  }
}
