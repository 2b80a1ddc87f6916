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
  /// The next row of the scan; nil: it has ended.
  var scan: (table: Int, after: Key)?
  /// The last place of the feed that was sent.
  var fed: (commit: Int64, table: Int, key: Key)

  var text: String {
    let json: JSONValue = [
      "schema": .string(schema),
      "start": .integer(start),
      "groups": .array(
        groups.map {
          ["name": .string($0.name), "cursor": .integer($0.cursor ?? -1), "scope": .string($0.scopeDigest)]
        }),
      "scan": scan.map { .array([.integer(Int64($0.table)), .array($0.after.map(JSONValue.init))]) } ?? .null,
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
    scan = !whole.isEmpty || groups.contains { $0.cursor == nil } ? (0, []) : nil
    fed = (0, 0, [])
  }

  /// Every row of the table comes.
  func isScanned(_ table: Table) -> Bool {
    guard let group = groups.first(where: { $0.name == table.group }) else { return false }
    return whole.contains(table.name) || floors[table.name] == nil && group.cursor == nil
  }

  init(_ text: String) throws {
    let json = try JSONValue(parsing: Array(text.utf8))
    schema = try json.string("schema")
    start = try json.integer("start")
    groups = try json.array("groups").map { group in
      let cursor = try group.integer("cursor")
      return Group(
        name: try group.string("name"), cursor: cursor < 0 ? nil : cursor, scopeDigest: try group.string("scope"))
    }
    scan = try json.optionalArray("scan").map { (try Self.index($0, 0), try Self.key($0, 1)) }
    let place = try json.array("fed")
    guard place.count == 3, let commit = place[0].integer else { throw Self.malformed() }
    fed = (commit, try Self.index(place, 1), try Self.key(place, 2))
    for member in json["floors"]?.members ?? [] { floors[member.key] = member.value.integer }
    whole = Set(try json.array("whole").compactMap(\.string))
    ownUpTo = json["own"]?.integer
  }

  private static func malformed() -> SalvorError {
    SalvorError(.malformed, "The position of a download is not one this server gave. Start the download again.")
  }

  private static func index(_ items: [JSONValue], _ place: Int) throws -> Int {
    guard items.count > place, let index = items[place].integer, index >= 0 else { throw malformed() }
    return Int(index)
  }

  private static func key(_ items: [JSONValue], _ place: Int) throws -> Key {
    guard items.count > place, let values = items[place].array else { throw malformed() }
    return try values.map { value in
      guard let value = value.rowValue else { throw malformed() }
      return value
    }
  }
}

/// Makes one page of a download (semantics 4): first the whole of the groups that need it, in key order, then for every
/// group what commits changed, in the order of the commits, up to the newest one.
struct Feed {
  let state: ServerState
  let request: PageRequest
  let scope: ScopeCheck
  /// Parents first.
  let tables: [Table]
  private var position: FeedPosition
  private var writer: DownloadChunkWriter

  init(_ request: PageRequest, on state: ServerState, blobs: BlobSink) throws {
    writer = DownloadChunkWriter(blobs: blobs)
    self.state = state
    self.request = request
    scope = ScopeCheck(schema: state.schema, scope: ReadScope(request.principal))
    tables = state.schema.parentsFirst(state.schema.synchronized)
    if let text = request.position {
      position = try FeedPosition(text)
      guard position.schema == SyncConfig(state.schema).digest else {
        throw Self.outdated("the server's schema has changed since it began")
      }
      for group in position.groups where scope.digest(ofGroup: group.name) != group.scopeDigest {
        throw Self.outdated("the scope changed meanwhile")
      }
    } else {
      position = Self.start(request, on: state, scope: scope)
    }
  }

  private static func outdated(_ why: String) -> SalvorError {
    SalvorError(.inconsistentDownload, "This download cannot go on: \(why). Discard what is staged and start it again.")
  }

  /// Groups whose cursor this server made and still keeps, in the scope it was made for, go on from it; the others are
  /// scanned.
  private static func start(_ request: PageRequest, on state: ServerState, scope: ScopeCheck) -> FeedPosition {
    let groups = request.groups.filter { group in state.schema.groups.contains { $0.name == group.name } }
    return FeedPosition(
      schema: SyncConfig(state.schema).digest, start: state.head.number,
      groups: groups.map { group in
        let digest = scope.digest(ofGroup: group.name)
        var cursor: Int64?
        if let commit = group.cursor, group.scopeDigest == digest, state.tables(at: commit.number) != nil,
          state.commits[Int(commit.number)].commit == commit
        {
          cursor = commit.number
        }
        return FeedPosition.Group(name: group.name, cursor: cursor, scopeDigest: digest)
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
    return FeedPage(
      bytes: writer.finish(), position: isComplete ? nil : position.text,
      groups: isComplete
        ? position.groups.map { GroupState(name: $0.name, cursor: state.head, scopeDigest: $0.scopeDigest) } : nil)
  }

  private var isFull: Bool { writer.upserts + writer.deletes > 0 && writer.byteCount >= request.bytesTarget }

  private mutating func scanRows() {
    while let place = position.scan {
      guard place.table < tables.count else {
        position.scan = nil
        return
      }
      let table = tables[place.table]
      if position.isScanned(table) {
        for key in state.tables.sortedKeys(of: table.name) where place.after.isEmpty || keyPrecedes(place.after, key) {
          guard let row = state.tables.rows(of: table.name)[key],
            scope.finding(row, of: table, in: state.tables) == .inside
          else { continue }
          if isFull { return }
          write(row, of: table, version: nil)
          position.scan = (place.table, key)
        }
      }
      position.scan = (place.table + 1, [])
    }
  }

  /// True: everything up to the head is in.
  private mutating func feedChanges() throws -> Bool {
    for change in try changes() {
      if isFull { return false }
      let table = tables[change.table]
      if change.isVisible, let row = state.tables.rows(of: table.name)[change.key] {
        write(row, of: table, version: change.commit)
      } else {
        writer.table(table.name, columns: table.travelling.map(\.name))
        writer.beginKey(change.isDelete ? .deleted : .left, version: change.commit)
        for value in change.key { writer.value(value, isKey: true) }
        writer.endRow()
      }
      position.fed = (change.commit, change.table, change.key)
    }
    return true
  }

  private mutating func write(_ row: Row, of table: Table, version: Int64?) {
    writer.table(table.name, columns: table.travelling.map(\.name))
    writer.beginRow(version: version)
    writer.row(row, of: table)
    writer.endRow()
  }

  private struct FedChange {
    var commit: Int64
    var table: Int
    var key: Key
    var isVisible: Bool
    var isDelete: Bool
  }

  /// What is still to be fed, in order of the last commit that is a reason for it.
  private func changes() throws -> [FedChange] {
    var found: [FedChange] = []
    for group in position.groups {
      let members = tables.filter { $0.group == group.name }
      let floor = group.cursor ?? position.start
      for (from, tables) in Dictionary(grouping: members, by: { position.floors[$0.name] ?? floor }) {
        found += try changes(of: tables, after: from)
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

  private struct Reason {
    /// The last commit that is a reason to feed the row.
    var commit: Int64
    /// Just before the row went, the device could have it, or it has it, as a touch says: so it is told that it was
    /// deleted.
    var wasVisibleBefore: Bool
  }

  private func changes(of members: [Table], after cursor: Int64) throws -> [FedChange] {
    guard var before = state.tables(at: cursor).map({ scope.visible(members, in: $0) }) else {
      throw Self.outdated("the server no longer keeps its history")
    }
    let memberNames = Set(members.map(\.name))
    var reasons: [RowName: Reason] = [:]
    var seen = before
    for record in state.commits.dropFirst(Int(cursor) + 1) {
      guard let tables = record.tables else { throw Self.outdated("the server no longer keeps its history") }
      let now = scope.visible(members, in: tables)
      let changed = record.changed.filter { memberNames.contains($0.table) }
      // What this very device sent is not fed back; but what its change of a parent did to the visibility of others is.
      let isOwn =
        record.remote == request.remote && record.commit.number <= min(position.ownUpTo ?? .max, position.start)
      for name in changed.union(now.symmetricDifference(before)) where !(isOwn && changed.contains(name)) {
        // A touch changes nothing: before it the row was where it is.
        let wasKnown =
          record.touchedFor == request.remote || record.touchedFor != nil && reasons[name]?.wasVisibleBefore == true
        reasons[name] = Reason(
          commit: record.commit.number, wasVisibleBefore: wasKnown || before.contains(name))
      }
      if record.touchedFor == request.remote { seen.formUnion(changed) }
      seen.formUnion(now)
      before = now
    }
    let visible = before
    return reasons.compactMap { name, reason in
      let isVisible = visible.contains(name)
      // A key that this principal could never read is not told either.
      guard isVisible || seen.contains(name) else { return nil }
      return FedChange(
        commit: reason.commit, table: tables.firstIndex { $0.name == name.table } ?? 0, key: name.key,
        isVisible: isVisible, isDelete: state.tables[name] == nil && reason.wasVisibleBefore)
    }
  }
}
