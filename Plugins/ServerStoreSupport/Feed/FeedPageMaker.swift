import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// Makes one page of a download (docs/architecture/feed.md): first the tables of the groups that come whole, in key order,
/// then what the change log says. Runs inside one read transaction, so a page is one snapshot.
package struct FeedPageMaker {
  package enum Outcome {
    /// With the rows of blobs that it refers to, where they were not noted before.
    case page(FeedPage, hints: [BlobHint])
    /// Other programs have committed what has no number yet: sweep, then ask again.
    case unsealed
  }

  let connection: any StoreConnection
  let catalog: Catalog
  let request: PageRequest
  let now: Int64
  var writer: DownloadChunkWriter
  var position: FeedPosition
  let state: CommitLog.State
  /// By group.
  let scopes: [String: GroupScope]
  /// The filter of what is wanted, by place in the catalog; a table without one is seen whole.
  let filters: [ScopeFilter?]
  private var hints: [BlobHint] = []
  private var leftOut: [RowPlace] = []
  private let blobBytesMax: Int
  /// By number: tables whose rows come whole all the same.
  let wholeRows: Set<Int64>

  /// What a group is to show, and what it showed when its cursor was made.
  struct GroupScope {
    var wanted: ReadScope
    var had: ReadScope
  }

  package static func page(
    _ request: PageRequest, _ connection: any StoreConnection, _ catalog: Catalog, now: Int64,
    limits: Limits
  ) throws -> Outcome {
    try connection.snapshot {
      let state = try CommitLog.state(connection)
      // What has no number yet may be taken back before it gets one: a row that came by it, and leaves without being written itself, would be in
      // no entry of the log.
      guard state.isSealed else { return .unsealed }
      var maker = try FeedPageMaker(request, connection, catalog, state, now, limits)
      let page = try maker.run()
      try connection.proveMoment(of: catalog)
      return page
    }
  }

  private init(
    _ request: PageRequest, _ connection: any StoreConnection, _ catalog: Catalog, _ state: CommitLog.State,
    _ now: Int64, _ limits: Limits
  ) throws {
    self.connection = connection
    self.catalog = catalog
    self.request = request
    self.state = state
    self.now = now
    wholeRows = request.takesParts ? try LargeRows(connection: connection).tables() : []
    blobBytesMax = limits.blobBytesMax
    writer = DownloadChunkWriter(
      capacity: min(request.bytesTarget, 1 << 20) + 4096, blobs: BlobSink(bytesMin: limits.blobReferenceBytesMin),
      rowBytesMax: limits.sentRowBytesMax, blobBytesMax: limits.blobBytesMax)
    let scopes = Self.scopes(request, catalog)
    self.scopes = scopes
    filters = catalog.tables.map { table in
      scopes[table.table.group].flatMap { ScopeFilter(table, $0.wanted, catalog) }
    }
    if let text = request.position {
      position = try FeedPosition(text)
      try Self.check(position, scopes, connection, catalog, state)
    } else {
      position = try Self.start(request, scopes, connection, catalog, state)
      let whole = position.isScanning ? catalog.tables.filter { position.isScanned($0.table) } : []
      if !whole.isEmpty { writer.full(whole.map(\.name)) }
    }
  }

  private static func scopes(_ request: PageRequest, _ catalog: Catalog) -> [String: GroupScope] {
    let known = request.groups.filter { catalog.members[$0.name] != nil }
    return Dictionary(
      known.map { group in
        (
          group.name,
          GroupScope(wanted: request.scope(of: group), had: request.scopeBefore(of: group))
        )
      }
    ) { first, _ in first }
  }

  /// Groups whose cursor this server made and still keeps, in the scope that it was made with, go on from it; the others
  /// are scanned.
  private static func start(
    _ request: PageRequest, _ scopes: [String: GroupScope], _ connection: any StoreConnection, _ catalog: Catalog,
    _ state: CommitLog.State
  ) throws -> FeedPosition {
    var groups: [FeedPosition.Group] = []
    let trimmed = try Self.trimmed(connection)
    let floors = try Self.floors(request.compared, connection)
    let made = try Self.made(request.groups.lazy.compactMap(\.cursor), connection)
    for group in request.groups {
      guard let scope = scopes[group.name] else { continue }
      let digest = catalog.digest(ofGroup: group.name, for: scope.wanted)
      let had = scope.had == scope.wanted ? digest : catalog.digest(ofGroup: group.name, for: scope.had)
      var floor: Int64?
      if let cursor = group.cursor, group.scopeDigest == had, cursor.number >= trimmed,
        let commit = made[cursor.number], commit.id == cursor.id.text
      {
        floor = commit.lastSequence
      }
      // Tables that were compared are not scanned: nothing is left of some groups.
      let isWhollyCompared = catalog.members[group.name]?.allSatisfy { floors[catalog.tables[$0].name] != nil } ?? true
      if isWhollyCompared { floor = state.headSequence }
      groups.append(
        FeedPosition.Group(
          name: group.name, floor: floor ?? state.headSequence, isScanned: floor == nil, digest: digest,
          had: had == digest ? nil : had))
    }
    let isScanned =
      groups.contains { $0.isScanned || $0.had != nil } || floors.values.contains(where: \.isScanned)
    let lowest = (groups.map(\.floor) + floors.values.map(\.sequence)).min()
    var position = FeedPosition(
      schema: catalog.fingerprint, start: state.head, groups: groups, scan: isScanned ? (0, []) : nil,
      fed: lowest ?? state.headSequence)
    position.floors = floors
    position.ownUpTo = request.compared?.ownUpTo
    return position
  }

  private static func floors(
    _ compared: ComparedTables?, _ connection: any StoreConnection
  ) throws -> [String: FeedPosition.Floor] {
    guard let compared else { return [:] }
    guard let made = try made([compared.head], connection)[compared.head.number],
      made.id == compared.head.id.text, compared.head.number >= (try trimmed(connection))
    else { throw FeedPosition.outdated("the server no longer keeps what changed since tables were compared for it") }
    let sequence = made.lastSequence
    let fed = compared.fed.map { ($0, FeedPosition.Floor(sequence: sequence, isScanned: false)) }
    let whole = compared.whole.map { ($0, FeedPosition.Floor(sequence: sequence, isScanned: true)) }
    return Dictionary(fed + whole) { _, whole in whole }
  }

  /// What this server has of a commit's number.
  struct Made {
    var id: String
    /// The last entry of the change log that it covers.
    var lastSequence: Int64
  }

  /// Of commits in a statement.
  private static let numbersMax = 100

  /// By number. The groups of a device mostly have one cursor, so this is mostly one statement, however many they are.
  static func made(_ commits: some Sequence<Commit>, _ connection: any StoreConnection) throws -> [Int64: Made] {
    let numbers = Set(commits.lazy.map(\.number)).sorted()
    var made: [Int64: Made] = [:]
    for first in stride(from: 0, to: numbers.count, by: Self.numbersMax) {
      let some = numbers[first..<min(first + Self.numbersMax, numbers.count)]
      let slots = (1...some.count).map { "?\($0)" }.joined(separator: ", ")
      try connection.query(
        "SELECT number, id, last_seq FROM salvor_commit WHERE number IN (\(slots))", some.map { .integer($0) }
      ) { row in
        made[row.int64(0)] = Made(id: row.string(1), lastSequence: row.int64(2))
        return true
      }
    }
    return made
  }

  package static func trimmed(_ connection: any StoreConnection) throws -> Int64 {
    try connection.integer("SELECT value FROM salvor_server WHERE key = 'trimmed'") ?? 0
  }

  private static func check(
    _ position: FeedPosition, _ scopes: [String: GroupScope], _ connection: any StoreConnection, _ catalog: Catalog,
    _ state: CommitLog.State
  ) throws {
    guard position.schema == catalog.fingerprint else {
      throw FeedPosition.outdated("the server's schema has changed since it began")
    }
    let id = try connection.scalar(
      "SELECT id FROM salvor_commit WHERE number = ?1", .integer(position.start.number))?.string
    guard id == position.start.id.text, position.fed <= state.lastSequence else {
      throw FeedPosition.outdated("it began in a state that this server does not have")
    }
    guard position.start.number >= (try trimmed(connection)) else {
      throw FeedPosition.outdated("the server no longer keeps what changed since it began")
    }
    for group in position.groups {
      guard let scope = scopes[group.name], group.digest == catalog.digest(ofGroup: group.name, for: scope.wanted),
        group.had.map({ $0 == catalog.digest(ofGroup: group.name, for: scope.had) }) ?? true
      else { throw FeedPosition.outdated("the scope of the group \(group.name) has changed meanwhile") }
    }
  }

  var isFull: Bool { writer.upserts + writer.deletes > 0 && reachesTarget }

  /// Blobs count, too: each is hashed before the page can be sent.
  private var reachesTarget: Bool {
    writer.byteCount >= request.bytesTarget || writer.referredBytes >= Self.referredBytesMax
  }

  private static let referredBytesMax: Int64 = 64 << 20

  private mutating func run() throws -> Outcome {
    try scanTables()
    if position.scan == nil {
      try feedChanges()
      if position.fed >= state.headSequence { return .page(try lastPage(), hints: hints) }
    }
    let rows = writer.upserts
    var page = FeedPage(bytes: writer.finish(), position: position.text, groups: nil)
    page.rows = rows
    page.share = shareFed
    page.leftOut = leftOut
    return .page(page, hints: hints)
  }

  /// By entries of the log; nil while tables are scanned.
  private var shareFed: Double? {
    let lowest = (position.groups.map(\.floor) + position.floors.values.map(\.sequence)).min()
    guard position.scan == nil, let lowest, state.headSequence > lowest else { return nil }
    return Double(position.fed - lowest) / Double(state.headSequence - lowest)
  }

  private mutating func lastPage() throws -> FeedPage {
    var page = FeedPage(
      bytes: writer.finish(), position: nil,
      groups: position.groups.map {
        Self.ended($0.name, $0.digest, scopes[$0.name]?.wanted, at: state.head, catalog, now: now)
      })
    page.leftOut = leftOut
    page.unfit = try catalog.unfitValues(of: scopes.mapValues(\.wanted), connection)
    return page
  }

  private static func ended(
    _ group: String, _ digest: String, _ scope: ReadScope?, at head: Commit, _ catalog: Catalog, now: Int64
  ) -> GroupState {
    GroupState(
      name: group, cursor: head, scopeDigest: digest,
      subscriptions: scope?.subscriptions(ofGroup: group, in: catalog.schema) ?? ResolvedSubscriptions(), lastSync: now)
  }

  /// The whole download of a device that is at the head in the scopes of now; nil: something may come. Asks the database nothing.
  static func nothing(_ query: AdmissionQuery, _ admission: Admission, _ catalog: Catalog, now: Int64) -> FeedPage? {
    guard let request = query.download, request.position == nil, request.compared == nil,
      admission.cursors.allSatisfy({ $0 == .known })
    else { return nil }
    let scopes = scopes(request, catalog)
    var groups: [GroupState] = []
    for group in request.groups {
      guard group.cursor == admission.head else { return nil }
      guard let scope = scopes[group.name] else { continue }
      let digest = catalog.digest(ofGroup: group.name, for: scope.wanted)
      guard scope.had == scope.wanted, group.scopeDigest == digest else { return nil }
      groups.append(ended(group.name, digest, scope.wanted, at: admission.head, catalog, now: now))
    }
    var writer = DownloadChunkWriter(capacity: 0, blobs: BlobSink(bytesMin: .max))
    return FeedPage(bytes: writer.finish(), position: nil, groups: groups)
  }

  // MARK: Scan

  private mutating func scanTables() throws {
    while let place = position.scan {
      let (number, isDropping) = place.step.quotientAndRemainder(dividingBy: 2)
      guard number < catalog.tables.count else {
        position.scan = nil
        return
      }
      let table = catalog.tables[number].table
      if position.hasAnotherScope(table) {
        guard try scanDifference(number, isDropping: isDropping == 1, after: place.after) else { return }
      } else if isDropping == 0, position.isScanned(table), position.groups.contains(where: { $0.name == table.group })
      {
        guard try scan(number, after: place.after) else { return }
      }
      position.scan = (place.step + 1, [])
    }
  }

  /// True: the table is through.
  private mutating func scan(_ place: Int, after: Key) throws -> Bool {
    // The page may be full before the table has a row that may be seen.
    if isFull { return false }
    let table = catalog.tables[place]
    guard after.isEmpty || after.count == table.keyCount else { throw FeedPosition.foreign }
    var conditions: [String] = []
    if !after.isEmpty { conditions.append(table.follows("x", after)) }
    let filter = filters[place]
    if let filter { conditions.append(filter.sql { "x.\(quoted($0))" }) }
    let statement = try connection.stream(
      "SELECT \(table.columnList("x")) FROM \(table.sql) x"
        + (conditions.isEmpty ? "" : " WHERE " + conditions.joined(separator: " AND "))
        + " ORDER BY \(table.keyList("x"))")
    try statement.bind(after + (filter?.values ?? []))
    defer { statement.reset() }
    while try statement.step() {
      if isFull { return false }
      if writer.upserts == 0 || statementsTable != place { beginTable(place) }
      try writeRow(table, statement, from: 0, version: nil)
      if reachesTarget {
        position.scan = (2 * place, table.keyPlaces.map { statement.value($0) })
      }
    }
    return true
  }

  private var statementsTable: Int?

  /// A row whose travelling columns are the statement's from `first` on.
  mutating func writeRow(_ table: ServerTable, _ statement: any StoreStatement, from first: Int, version: Int64?) throws
  {
    writer.beginRow(version: version)
    try writeValues(table, statement, from: first, table.columns.indices)
    if !writer.endRow() { leaveOut(table, statement, from: first, version) }
  }

  /// A device may have it as it was.
  private mutating func leaveOut(
    _ table: ServerTable, _ statement: any StoreStatement, from first: Int, _ version: Int64?
  ) {
    leftOut.append(RowPlace(table: table.name, key: table.keyPlaces.map { statement.value(first + $0) }))
    guard let version else { return }
    writer.beginKey(.left, version: version)
    for key in table.keyPlaces { writer.value(of: statement, first + key, isKey: true) }
    writer.endRow()
  }

  private mutating func writeValues(
    _ table: ServerTable, _ statement: any StoreStatement, from first: Int, _ columns: some Sequence<Int>
  ) throws {
    for column in columns {
      if statement.storageClass(first + column) == .blob {
        try writeBlob(table, statement, from: first, column)
      } else {
        writer.value(of: statement, first + column)
      }
    }
  }

  mutating func beginTable(_ place: Int) {
    let table = catalog.tables[place]
    writer.table(table.name, columns: table.columns.map(\.name))
    statementsTable = place
  }

  /// A part of a row whose travelling columns are the statement's from `first` on: those at `columns`.
  mutating func writePart(
    _ place: Int, _ statement: any StoreStatement, from first: Int, _ columns: [Int], version: Int64
  ) throws {
    let table = catalog.tables[place]
    writer.table(table.name, columns: columns.map { table.columns[$0].name })
    statementsTable = nil
    writer.beginPart(version: version)
    try writeValues(table, statement, from: first, columns)
    if !writer.endRow() { leaveOut(table, statement, from: first, version) }
  }

  private mutating func writeBlob(
    _ table: ServerTable, _ statement: any StoreStatement, from first: Int, _ column: Int
  ) throws {
    let known = writer.payload.references.count
    writer.value(of: statement, first + column, isKey: table.keyPlaces.contains(column))
    guard writer.payload.references.count > known, let reference = writer.payload.references.last,
      reference.size <= blobBytesMax
    else { return }
    let place = BlobPlace(
      table: table.name, key: table.keyPlaces.map { statement.value(first + $0) }, column: table.columns[column].name)
    let hint = BlobHint(hash: reference.hash, place: place)
    if try !BlobHints(connection: connection).isKnown(hint) { hints.append(hint) }
  }
}

extension DownloadChunkWriter {
  /// Writes a column of a statement's current row, without a copy in between.
  ///
  /// - Parameter isKey: it is a part of the row's key.
  mutating func value(of row: any StoreStatement, _ column: Int, isKey: Bool = false) {
    value { payload in
      switch row.storageClass(column) {
      case .null: payload.null()
      case .integer: payload.integer(row.int64(column))
      case .real: payload.real(row.double(column))
      case .text: row.withText(column) { payload.text($0.bindMemory(to: UInt8.self)) }
      case .blob: row.withBlob(column) { payload.blob($0.bindMemory(to: UInt8.self), isKey: isKey) }
      }
    }
  }
}
