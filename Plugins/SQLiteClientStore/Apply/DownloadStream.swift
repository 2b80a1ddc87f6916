import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Streams the staged payload into the tables: values go from the text straight into the statements of the SyncConfig.
///
/// Rows that are clean are written as they come. Rows with outstanding requests, and rows that a constraint refuses, go to
/// `WorkingRows`.
final class DownloadStream {
  let context: StoreContext
  let rows: WorkingRows
  var touched: TouchedRows { rows.touched }
  var report = ApplyReport()
  /// New bases of rows with outstanding requests; a later line of a row replaces an earlier one.
  var bases: [RowRef: (table: CapturedTable, row: SlotRow?)] = [:]
  /// Rows that are not here, and of which parts came: they must come whole yet.
  var lacking: Set<RowRef> = []
  /// Tables to look at again with triggers off; nil: the first pass, over all.
  let onlyTables: Set<Int64>?
  let ahead: Bool
  /// Before each row.
  var onRow: (() throws -> Void)?
  /// Rows go into its twins, and nothing else is taken.
  private unowned let arrival: (any ArrivingRows)?
  private var targets: [String: Target] = [:]
  private let history: SQLiteStatement
  /// By table: the version of rows that come without one.
  var comparedVersions: [Int64: Int64] = [:]
  /// Tables of which the download says that every row comes.
  private(set) var comingWhole: Set<Int64> = []
  /// Columns that do not come, since the server does not know them yet.
  private let additions: LocalAdditions
  /// In a recovery: what becomes of the bases.
  var watch: BaseWatch?
  private let recovery: (any RecoveryRules)?
  /// In its second pass: lost rows stay where they are.
  private var heldBy: BaseWatch? { onlyTables == nil ? nil : recovery?.watch }
  let leaving: LeavingRows
  /// By group: it was never downloaded, and the device has subscriptions.
  private var isFirst: [String: Bool] = [:]
  private let keyWidth: Int
  private let blobs: StagedBlobs

  /// - Parameters:
  ///   - onlyTables: those to look at again; nil: the first pass, over all.
  ///   - recovery: in a recovery: its rules.
  init(
    _ context: StoreContext, _ rows: WorkingRows, onlyTables: Set<Int64>? = nil, recovery: (any RecoveryRules)? = nil,
    ahead: Bool = false, arrival: (any ArrivingRows)? = nil
  ) throws {
    self.context = context
    self.rows = rows
    self.arrival = arrival
    self.recovery = recovery
    self.onlyTables = onlyTables
    self.ahead = ahead
    leaving = try LeavingRows(context, rows.index)
    blobs = StagedBlobs(staging: BlobStaging(context: context), rehearses: context.rehearses)
    additions = context.additions
    keyWidth = max(1, context.catalog.tables.map(\.keyCount).max() ?? 1)
    let keys = (0..<keyWidth).map { "v\($0)" }.joined(separator: ", ")
    let slots = (0..<keyWidth).map { "?\($0 + 4)" }.joined(separator: ", ")
    history = try context.connection.prepare(
      "INSERT INTO salvor_history (t, version, own, deleted, \(keys)) VALUES (?1, ?2, 0, ?3, \(slots))",
      persistent: true)
  }

  /// How rows of one table are written.
  final class Target {
    let table: CapturedTable
    let upsert: SQLiteStatement
    /// For a table that was empty, which makes a row cheaper than an upsert; nil for others. An earlier line of the same
    /// row is in its way: then the upsert is taken. (OR REPLACE would begin a statement journal for each row.)
    let insert: SQLiteStatement?
    let delete: SQLiteStatement
    /// By the place of a travelling column in the statement: its slot.
    let slots: [Int]
    let names: [String]
    let defaults: [Value]
    /// By the places of its columns among the travelling ones: writes a part of a row.
    var parts: [[Int]: SQLiteStatement] = [:]
    /// No row of it can have outstanding requests or be in another's way, nor need it be remembered: values are bound as
    /// they are read.
    let isPlain: Bool
    /// Finds a row that the key's collation takes for another one under this key; nil: the key's bytes tell its rows apart.
    var other: SQLiteStatement?

    init(
      table: CapturedTable, upsert: SQLiteStatement, insert: SQLiteStatement?, delete: SQLiteStatement, slots: [Int],
      names: [String], defaults: [Value],
      isPlain: Bool
    ) {
      self.insert = insert
      self.table = table
      self.upsert = upsert
      self.delete = delete
      self.slots = slots
      self.names = names
      self.defaults = defaults
      self.isPlain = isPlain
    }
  }

  /// A recovery names rows of tables, too, that this device's schema has and the server's does not: the server was put back with an older one.
  private func entry(of name: String) -> SyncConfig.Entry? {
    if let entry = context.config.entries.first(where: { $0.table.name.folded == name.folded }) {
      return entry
    }
    guard recovery != nil, let table = context.schema.table(name), table.maintained != .client else { return nil }
    return SyncConfig(Schema(tables: [table])).entries.first
  }

  func target(_ name: String) throws -> Target {
    if let target = targets[name] { return target }
    let table = try context.captured(name)
    guard let entry = entry(of: name) else {
      throw SalvorError(
        .inconsistentDownload,
        "The download has rows of the table \(name), which the SyncConfig does not name. Adopt it first.",
        context: ["table": name])
    }
    let columns = entry.table.travelling
    let slots = columns.compactMap { column in
      table.columns.firstIndex { $0.name.folded == column.name.folded }
    }
    if let twin = arrival?.twin(of: table) { return try target(table, columns, slots, twin) }
    let isWhole = touched.isWhole.contains(table.number)
    let names = columns.map { quoted($0.name) }.joined(separator: ", ")
    let values = (1...max(1, columns.count)).map { "?\($0)" }.joined(separator: ", ")
    let isInWork = try rows.mayComeIntoWork(table)
    let target = try context.connection.withAuthorizer(DeliveredStatements.onlyTouch(table.name)) {
      Target(
        table: table, upsert: try context.connection.prepare(entry.upsertStatement, persistent: true),
        insert: isWhole
          ? try context.connection.prepare(
            "INSERT INTO \(quoted(table.name)) (\(names)) VALUES (\(values))", persistent: true) : nil,
        delete: try context.connection.prepare(entry.deleteStatement, persistent: true), slots: slots,
        names: columns.map(\.name), defaults: columns.map { $0.defaultValue ?? .null },
        isPlain: leaving.isEmpty && table.uniques.isEmpty && !table.hasCollatedKey && !isInWork
          && onlyTables == nil
          && (isWhole || !touched.recordsWritten.contains(table.number)))
    }
    if table.hasCollatedKey {
      target.other = try context.connection.prepare(
        "SELECT 1 FROM \(quoted(table.name)) x WHERE \(table.otherRowAt { "?\($0 + 1)" })", persistent: true)
    }
    targets[name] = target
    if onlyTables == nil { try context.forgetDigest(of: table) }
    return target
  }

  /// A table's twin, which nobody else writes and no trigger is on.
  private func target(
    _ table: CapturedTable, _ columns: [Column], _ slots: [Int], _ twin: TableTwin
  ) throws -> Target {
    let connection = context.connection
    let names = columns.map(\.name)
    let keys = Set(table.key.map { $0.name.folded })
    let sets = names.filter { !keys.contains($0.folded) }.map { "\(quoted($0)) = excluded.\(quoted($0))" }
    let places = (1...max(1, names.count)).map { "?\($0)" }.joined(separator: ", ")
    let insert = "INSERT INTO \(quoted(twin.name)) (\(quotedList(names))) VALUES (\(places))"
    let update = sets.isEmpty ? "NOTHING" : "UPDATE SET \(sets.joined(separator: ", "))"
    let target = Target(
      table: table,
      upsert: try connection.prepare(
        "\(insert) ON CONFLICT (\(quotedList(table.key.map(\.name)))) DO \(update)", persistent: true),
      insert: try connection.prepare(insert, persistent: true),
      delete: try connection.prepare("SELECT 1", persistent: true), slots: slots, names: names,
      defaults: columns.map { $0.defaultValue ?? .null }, isPlain: true)
    targets[table.name] = target
    return target
  }

  /// The rows that were taken since it was asked last.
  func takeCount() -> Int64 {
    defer { report.upserts = 0 }
    return report.upserts
  }

  /// What the server has in the place of rows with requests, which arrived in twins.
  func arrived(_ bases: [(table: CapturedTable, row: SlotRow)], upserts: Int64) throws {
    for (table, row) in bases {
      let key = Array(row.prefix(table.keyCount))
      try touched.written(table, key)
      self.bases[RowRef(table: table.number, key: key)] = (table, row)
    }
    report.upserts += upserts
  }

  // MARK: Reading

  /// Reads the files, and everything staged, in order.
  func run() throws {
    for file in context.files { try take(file) }
    try context.connection.query("SELECT payload FROM salvor_staging ORDER BY id") { row in
      try row.withText(0) { try read($0) }
      return true
    }
    try expectNothingLacks()
  }

  /// Reads one chunk.
  func read(_ text: UnsafeRawBufferPointer) throws {
    let bytes = UnsafeBufferPointer(start: text.baseAddress?.assumingMemoryBound(to: UInt8.self), count: text.count)
    var reader = DownloadChunkReader(bytes, blobs: blobs)
    var target: Target?
    var places: [Int] = []
    while let event = try reader.next() {
      switch event {
      case .full(let names):
        for name in names {
          let table = try context.captured(name)
          comingWhole.insert(table.number)
          try mayGoAhead(table)
        }
        try arrival?.comeWhole(names)
      case .table(let name, let columns):
        let found = try self.target(name)
        try mayGoAhead(found.table)
        places = try self.places(columns, found)
        if let onlyTables, !onlyTables.contains(found.table.number) {
          target = nil
        } else {
          target = found
          prepareWrite(found.table)
        }
      case .row(let version):
        guard let target else { continue }
        let version = version ?? comparedVersions[target.table.number]
        try onRow?()
        if let arrival {
          if version != nil { throw NotAhead() }
          try arrival.wroteRow()
        }
        // A later line of a row that something was in the way of counts.
        try target.isPlain && version == nil && rows.rows.isEmpty
          ? writePlainly(&reader, target, places, bytes) : writeRow(&reader, target, places, version)
        report.upserts += 1
      case .part(let version):
        guard let target else { continue }
        if arrival != nil { throw NotAhead() }
        try writePart(&reader, target, places, version)
        report.upserts += 1
      case .key(let departure, let version):
        guard let target else { continue }
        if arrival != nil { throw NotAhead() }
        var key: Key = []
        while let item = try reader.item() { key.append(item.value) }
        guard key.count == target.table.keyCount else { throw reader.malformed("a key does not have its columns") }
        if try depart(target, key, departure, version) { report.deletes += 1 }
      }
    }
  }

  /// A second pass writes what was meant, whatever triggers made of it.
  func prepareWrite(_ table: CapturedTable) {
    if onlyTables == nil { rows.prepareWrite(table) } else { context.connection.triggersEnabled = false }
  }

  private func mayGoAhead(_ table: CapturedTable) throws {
    guard ahead || arrival != nil else { return }
    if table.hasCollatedKey || ahead && !touched.isWhole.contains(table.number) { throw NotAhead() }
    if let arrival, arrival.twin(of: table) == nil { throw NotAhead() }
    // Rows of a group that was synchronized have a version: those that were compared, the download's end, which is not known yet.
    if !comingWhole.contains(table.number), try context.connection.isSynchronized(context.group(of: table.number)) {
      throw NotAhead()
    }
  }

  /// For each column of the chunk its place in the upsert statement.
  private func places(_ columns: [String], _ target: Target) throws -> [Int] {
    let places = try columns.map { name -> Int in
      guard let place = target.names.firstIndex(of: name) else {
        throw SalvorError(
          .inconsistentDownload,
          "The download has a column \(name) that \(target.table.name) does not have here. Adopt the SyncConfig first.",
          context: ["table": target.table.name, "column": name])
      }
      return place
    }
    let keys = Set(target.table.key.map { $0.name.folded })
    guard keys.isSubset(of: Set(columns.map { $0.folded })) else {
      throw SalvorError(.malformed, "The download leaves out key columns of \(target.table.name). Sync again.")
    }
    // Columns that do not come take their default.
    for (place, value) in target.defaults.enumerated() where !places.contains(place) {
      try target.upsert.bind(place + 1, value)
      try target.insert?.bind(place + 1, value)
    }
    return places
  }

  // MARK: Writing

  /// From the text into the statement, without a value in between.
  private func writePlainly(
    _ reader: inout DownloadChunkReader, _ target: Target, _ places: [Int], _ bytes: UnsafeBufferPointer<UInt8>
  ) throws {
    let statement = target.insert ?? target.upsert
    let start = reader.offset - 1
    var count = 0
    while let item = try reader.item() {
      guard count < places.count else { throw reader.malformed("a row has too many values") }
      try bind(item, to: statement, places[count] + 1, bytes)
      count += 1
    }
    guard count == places.count else { throw reader.malformed("a row has too few values") }
    do { try statement.write(on: context.connection) } catch let error as SalvorError where error.isConstraintViolation
    {
      let text = UnsafeBufferPointer(rebasing: bytes[start..<reader.offset])
      if target.insert != nil, try writesAgain(text, target, places) { return }
      if arrival != nil { throw NotAhead() }
      let row = try slotRow(of: text, target, places)
      try rows.postpone(target.table, Array(row.prefix(target.table.keyCount)), row)
    }
  }

  /// A row that cannot be inserted: an earlier line did. False: a constraint refuses it.
  private func writesAgain(_ row: UnsafeBufferPointer<UInt8>, _ target: Target, _ places: [Int]) throws -> Bool {
    var reader = PayloadReader(row, blobs: blobs)
    try reader.beginArray()
    var isFirst = true
    for place in places where try reader.nextElement(&isFirst) {
      try bind(try reader.item(), to: target.upsert, place + 1, row)
    }
    do {
      try target.upsert.write(on: context.connection)
      return true
    } catch let error as SalvorError where error.isConstraintViolation {
      return false
    }
  }

  private func slotRow(of text: UnsafeBufferPointer<UInt8>, _ target: Target, _ places: [Int]) throws -> SlotRow {
    var row = emptyRow(target, places)
    var reader = PayloadReader(text, blobs: blobs)
    try reader.beginArray()
    var isFirst = true
    for place in places where try reader.nextElement(&isFirst) {
      row[target.slots[place]] = try reader.item().value
    }
    if let own = additions.slots[target.table.number] {
      try keepOwn(&row, own, target.table, Array(row.prefix(target.table.keyCount)))
    }
    return row
  }

  /// Columns that do not come have their default.
  private func emptyRow(_ target: Target, _ places: [Int]) -> SlotRow {
    var row = SlotRow(repeating: .null, count: target.table.columns.count)
    for (place, slot) in target.slots.enumerated() where places.count < target.names.count {
      row[slot] = target.defaults[place]
    }
    return row
  }

  private func bind(
    _ item: PayloadReader.Item, to statement: SQLiteStatement, _ parameter: Int, _ bytes: UnsafeBufferPointer<UInt8>
  ) throws {
    switch item {
    case .null: try statement.bindNull(parameter)
    case .integer(let value): try statement.bind(parameter, value)
    case .real(let value): try statement.bind(parameter, value)
    case .text(let text):
      try statement.bindText(parameter, UnsafeRawBufferPointer(text), copying: !isInside(text, bytes))
    case .blob(let blob): try statement.bindBlob(parameter, UnsafeRawBufferPointer(blob), copying: true)
    }
  }

  /// A text in the payload itself outlives the step; one in the reader's scratch space does not.
  private func isInside(_ text: UnsafeBufferPointer<UInt8>, _ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
    guard let base = text.baseAddress, let start = bytes.baseAddress else { return false }
    return base >= start && base + text.count <= start + bytes.count
  }

  private func writeRow(
    _ reader: inout DownloadChunkReader, _ target: Target, _ places: [Int], _ version: Int64?
  ) throws {
    var row = emptyRow(target, places)
    var count = 0
    while let item = try reader.item() {
      guard count < places.count else { throw reader.malformed("a row has too many values") }
      row[target.slots[places[count]]] = item.value
      count += 1
    }
    guard count == places.count else { throw reader.malformed("a row has too few values") }
    let key = Array(row.prefix(target.table.keyCount))
    if let own = additions.slots[target.table.number] { try keepOwn(&row, own, target.table, key) }
    if onlyTables == nil, let version { try remember(target.table, key, version, nil) }
    watch?.countLine()
    if onlyTables == nil { try leaving.forget(target.table, key) }
    // Whatever becomes of it: it came.
    try touched.written(target.table, key)
    if !lacking.isEmpty { lacking.remove(RowRef(table: target.table.number, key: key)) }
    if try rows.comesIntoWork(target.table, key) {
      bases[RowRef(table: target.table.number, key: key)] = (target.table, row)
      return
    }
    let isPostponed = rows.isPostponed(target.table, key)
    if let watch, try !watch.changes(target.table, key, row), !isPostponed { return }
    // A row that something was in the way of, again: the later line counts.
    if isPostponed { return try rows.postpone(target.table, key, row) }
    // What is there as it came is not written again: the application's triggers have fired for it.
    if watch == nil, onlyTables == nil, rows.firing.contains(target.table.number),
      try context.currentRow(target.table, key) == row
    {
      return
    }
    // The upsert would write into that row.
    if try isTaken(target, key) { return try rows.postpone(target.table, key, row) }
    for (place, slot) in target.slots.enumerated() { try target.upsert.bind(place + 1, row[slot]) }
    do { try target.upsert.write(on: context.connection) } catch let error as SalvorError
      where error.isConstraintViolation
    {
      try rows.postpone(target.table, key, row)
    }
  }

  /// Another row stands in this one's place, by the key's own collation.
  private func isTaken(_ target: Target, _ key: Key) throws -> Bool {
    guard let other = target.other else { return false }
    try other.bind(key)
    defer { other.reset() }
    return try other.step()
  }

  /// What the device has in columns of its own stays as it is.
  private func keepOwn(_ row: inout SlotRow, _ slots: [Int], _ table: CapturedTable, _ key: Key) throws {
    let known =
      try rows.index.mayContain(table, key)
      ? rows.load(table, key).timeline.base : context.currentRow(table, key)
    for slot in slots { row[slot] = known?[slot] ?? context.defaultValue(table, slot) }
  }

  /// - Parameter isLine: the download says it.
  private func depart(
    _ target: Target, _ key: Key, _ departure: Departure, _ version: Int64?, isLine: Bool = true
  ) throws -> Bool {
    if onlyTables == nil, isLine || recovery == nil, let version = version ?? comparedVersions[target.table.number] {
      try remember(target.table, key, version, departure)
    }
    var departure = departure
    // The server has the row and does not show it. Whether a version that is lost may be given back is the server's to say.
    if departure == .left, version == nil, try watch?.versions.isLost(target.table, key) == true { departure = .lost }
    // In the second pass the first one has decided. In a recovery nothing was sent before: what left the scope stays, too.
    if keepsLeaving, departure == .dropped || (departure == .left && recovery != nil) {
      if try onlyTables == nil
        ? leaving.take(target.table, key, numberMax: recovery?.sharedMax) : leaving.contains(target.table, key)
      {
        return false
      }
    } else if onlyTables == nil {
      try leaving.forget(target.table, key)
    }
    if let heldBy, try heldBy.isHeld(target.table, key) { return false }
    if let watch, try watch.holds(target.table, key, departure, version) {
      try touched.written(target.table, key)
      return false
    }
    return try remove(target, key)
  }

  private func remove(_ target: Target, _ key: Key) throws -> Bool {
    try touched.written(target.table, key)
    if !lacking.isEmpty { lacking.remove(RowRef(table: target.table.number, key: key)) }
    if try rows.index.mayContain(target.table, key) {
      bases[RowRef(table: target.table.number, key: key)] = (target.table, nil)
      return true
    }
    if rows.isPostponed(target.table, key) { try rows.postpone(target.table, key, nil) }
    if try isTaken(target, key) { return false }
    try target.delete.bind(key)
    if let words = try target.delete.writeDelete(on: context.connection) {
      rows.forced[RowRef(table: target.table.number, key: key)] = words
    }
    guard context.connection.changes > 0 else { return false }
    try touched.removed(target.table, key)
    return true
  }

  /// A row that does not come with a table that comes whole.
  func leaveOut(_ table: CapturedTable, _ key: Key) throws {
    // It stays until its changes are sent, whatever else comes.
    if keepsLeaving, try leaving.contains(table, key) { return }
    let target = try target(table.name)
    prepareWrite(table)
    // Before its group's first download a device has what it wrote itself and the server accepted. Where it has subscriptions, none covers
    // the row, as far as it knows.
    let isOwn = try recovery == nil && isFirstChosen(table) && hasBase(table, key)
    let departure: Departure = isOwn ? .dropped : .lost
    if try depart(target, key, departure, nil, isLine: false) { report.deletes += 1 }
  }

  private func hasBase(_ table: CapturedTable, _ key: Key) throws -> Bool {
    guard try rows.index.mayContain(table, key) else { return true }
    return try rows.index.timeline(table, key).base != nil
  }

  /// The table's group was never downloaded, and the device has subscriptions.
  private func isFirstChosen(_ table: CapturedTable) throws -> Bool {
    let group = context.group(of: table.number)
    if let known = isFirst[group] { return known }
    let connection = context.connection
    let found = try !connection.isSynchronized(group) && !connection.deviceSettings().subscribed.isEmpty
    isFirst[group] = found
    return found
  }

  /// Rows that no subscription covers stay as long as a change needs them.
  private var keepsLeaving: Bool { recovery?.keepsRequests ?? true }

  /// Rows that no subscription covers, and that nothing keeps any more.
  func removeLeaving(_ references: ReferenceProof) throws {
    guard keepsLeaving else { return }
    try leaving.sweep(references) { table, key in
      _ = try watch?.holds(table, key, .left, nil)
      rows.swept.insert(RowRef(table: table.number, key: key))
      try removeLost(table, key)
    }
  }

  /// A row that goes although no line says so: the server has lost it and no request needs it, or nothing keeps it.
  func removeLost(_ table: CapturedTable, _ key: Key) throws {
    // What its triggers write is undone with what those of the other rows in work do.
    if rows.firing.contains(table.number), watch != nil {
      if try context.currentRow(table, key) != nil { report.deletes += 1 }
      try rows.postpone(table, key, nil)
      return try touched.written(table, key)
    }
    let target = try target(table.name)
    prepareWrite(table)
    if try remove(target, key) { report.deletes += 1 }
  }

  func remember(_ table: CapturedTable, _ key: Key, _ version: Int64, _ departure: Departure?) throws {
    try history.bind(1, table.number)
    try history.bind(2, version)
    try history.bind(3, Int64(departure == nil ? 0 : departure == .deleted ? 1 : 2))
    for place in 0..<keyWidth {
      if place < key.count { try history.bind(place + 4, key[place]) } else { try history.bindNull(place + 4) }
    }
    try history.run()
  }
}
