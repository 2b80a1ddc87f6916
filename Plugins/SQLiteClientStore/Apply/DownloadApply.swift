import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Takes in what is staged, in one transaction (semantics 2 and 4): clean rows are written as they come, the new bases of the
/// others are the move that is settled then.
///
/// Tables without triggers of the application's are written with triggers off. Where there are some, they fire, so that
/// the application's indexes and logs stay right; what was captured meanwhile is what they wrote to synchronized tables,
/// and it is undone.
final class DownloadApply: NewBases {
  private let context: StoreContext
  private let full: Set<Int64>
  /// The groups that are downloaded.
  private var groups: Set<String> = []
  let rows: WorkingRows
  let stream: DownloadStream
  /// In a recovery: its rules.
  private let recovery: RecoveryMerge?
  /// The last line of `salvor_history` before it, where the archive has rows that the server has lost; else nil.
  private let lostBefore: Int64?
  private let arrived: Arrived?

  private var connection: SQLiteConnection { context.connection }

  /// In a transaction, with foreign keys and triggers off, in which `read` and `finish` are called, too.
  ///
  /// - Parameters:
  ///   - full: tables that come whole, by number; nil: they are looked for in what is staged.
  ///   - ends: the groups as they are after an ordinary download, or a recovery that did not compare them. The rows that come
  ///     without a version, and not with their whole table, were compared: the commit at its end is the version that they have at
  ///     most.
  ///   - ahead: the download is not staged, and goes into tables that were empty: `read` throws `NotAhead` at what needs
  ///     more.
  ///   - arrived: rows that take their tables' place now. Throws `NotAhead` where they cannot.
  init(
    _ context: StoreContext, full: Set<Int64>? = nil, ends: [GroupState] = [], recovery: RecoveryMerge? = nil,
    ahead: Bool = false, arrived: Arrived? = nil
  ) throws {
    self.context = context
    self.arrived = arrived
    self.recovery = recovery
    lostBefore = try context.lastHistoryBesideLost()
    // What sorting finds an application wrote: behind it triggers do.
    try RequestSorting(context).sort()
    let counter = try context.connection.lastCounter()
    let full = try full ?? (ahead ? [] : Self.fullTables(context))
    self.full = full
    rows = try WorkingRows(context, after: counter)
    let touched = rows.touched
    if !full.isEmpty { touched.recordsWritten.formUnion(full) }
    let bases = try arrived?.takePlace(rows, context) ?? []
    for table in context.catalog.tables where arrived?.contains(table) != true {
      let isEmpty = try context.connection.integer("SELECT 1 FROM \(quoted(table.name)) LIMIT 1") == nil
      if isEmpty, !rows.index.tables.contains(table.number), !rows.firing.contains(table.number),
        recovery?.mayComeWhole(table) ?? true
      {
        touched.isWhole.insert(table.number)
      }
      if full.contains(table.number) || recovery != nil { touched.recordsWritten.insert(table.number) }
      if recovery != nil { touched.recordsRemoved.insert(table.number) }
    }
    stream = try DownloadStream(context, rows, recovery: recovery, ahead: ahead)
    for table in context.catalog.tables where !full.contains(table.number) {
      let group = context.group(of: table.number)
      stream.comparedVersions[table.number] = ends.first { $0.name == group }?.cursor?.number
    }
    try stream.arrived(bases, upserts: arrived?.upserts ?? 0)
    try recovery?.begin(rows)
    stream.watch = recovery?.watch
    if !rows.firing.isEmpty { try context.holdFlags() }
    try rows.proof.referenced.watch()
  }

  /// A download could go into tables that are empty, and nothing else is to be looked at meanwhile.
  var canGoAhead: Bool { rows.index.tables.isEmpty && rows.firing.isEmpty && !rows.touched.isWhole.isEmpty }

  /// Reads one chunk of the download.
  func read(_ text: UnsafeRawBufferPointer) throws {
    defer { connection.triggersEnabled = false }
    try context.namingTriggers { try stream.read(text) }
  }

  /// Reads all that is staged.
  func readStaged() throws {
    defer { connection.triggersEnabled = false }
    try context.namingTriggers { try stream.run() }
  }

  /// After everything was read: what did not come, and what triggers wrote meanwhile. The bases of rows with requests are in
  /// `move` then.
  ///
  /// - Parameter groups: those that are downloaded.
  func end(_ groups: Set<String>) throws -> Move {
    defer { connection.triggersEnabled = false }
    self.groups = groups
    try context.namingTriggers {
      try leaveOutMissing()
      try leaveOutUnasked()
      try stream.removeLeaving(rows.proof)
      _ = try rows.undoTriggers { [context, rows, recovery] tables in
        try DownloadStream(context, rows, onlyTables: tables, recovery: recovery).run()
      }
    }
    var move = Move()
    move.bases = .download(self)
    move.basesMayBreak = false
    return move
  }

  /// The bases that the lines gave to rows in work.
  func takeBases() throws {
    var before: [RowRef: SlotRow?] = [:]
    for (ref, base) in stream.bases where base.table.deletedFlag != nil {
      before[ref] = try rows.load(base.table, ref.key).timeline.base
    }
    if let recovery {
      try recovery.takeBases(stream, rows)
    } else {
      try rows.announce(stream.bases.lazy.map { ($0, $1.row) })
      for (ref, base) in stream.bases { try rows.setBase(base.table, ref.key, base.row) }
    }
    for (ref, base) in stream.bases where base.table.deletedFlag != nil {
      try rows.followBase(base.table, ref.key, from: before[ref] ?? nil, to: base.row)
    }
    try dropStaleChildren()
  }

  var isRecovery: Bool { recovery != nil }

  func clientRowGoes(_ table: String, _ key: Key) throws { try recovery?.clientRowGoes(table, key) }

  /// Tables that a recovery rebuilt. Any of their rows may be missing now, as a parent of other rows.
  var rebuilt: Set<String> { recovery?.rebuilt ?? [] }

  func report(_ settlement: Settlement) throws -> ApplyReport {
    var report = stream.report
    report.displaced = try settlement.displaced.map { try context.requestID(first: $0.first) }
    report.leftOut = Int64(settlement.leftOut.count)
    report.leftOutNotices = settlement.leftOut.noticesByTable
    report.notices += settlement.notices
    report.isToCompare = settlement.isToCompare
    if let lostBefore { try context.forgetGivenBack(after: lostBefore) }
    return report
  }

  /// A row of a group that is not in this download, and that references a row which this download took: the server does
  /// not have it any more as it was. What became of it, and of the rows below, its own group's download says: the two are
  /// applied together. A group that was never synchronized comes whole, and a recovery compares what is synchronized: there it is
  /// not there until then. Nor does the server say what became of a row that no subscription covers.
  private func dropStaleChildren() throws {
    var needed: Set<String> = []
    var gone = Dictionary(grouping: stream.bases.filter { $1.row == nil }.keys, by: \.table).mapValues { $0.map(\.key) }
    var again = true
    while again {
      again = false
      for rule in rows.proof.rules {
        guard let child = rule.capturedChild, let parent = rule.capturedParent, rule.parentColumnsAreKey else {
          continue
        }
        // Those with requests of their own are still there; without a base none of them stands.
        let parents = gone[parent.number] ?? []
        let group = context.group(of: child.number)
        let isElsewhere = try !groups.contains(group) && (!parents.isEmpty || rows.touched.hasRemoved(parent))
        let needsGroup = try isElsewhere && !isRecovery && connection.isSynchronized(group)
        let slots = rule.childColumns.compactMap { name in
          child.columns.firstIndex { $0.name.folded == name.folded }
        }
        guard slots.count == rule.childColumns.count else { continue }
        var keys = try stream.leaving.keys(of: child)
        if isElsewhere {
          keys += try rows.proof.orphans(rule).map(\.key)
          keys += try self.keys(of: child, slots, thatReference: parents)
          try rows.index.eachRow(of: child) { keys.append($0) }
        }
        for key in keys {
          guard let base = try rows.load(child, key).timeline.base else { continue }
          let reference = slots.map { base[$0] }
          if reference.contains(.null) { continue }
          guard try rows.load(parent, reference).timeline.base == nil else { continue }
          if needsGroup {
            needed.insert(group)
            break
          }
          try stream.leaving.forget(child, key)
          try rows.setBase(child, key, nil)
          gone[child.number, default: []].append(key)
          again = true
        }
      }
    }
    if !needed.isEmpty { throw GroupsNeeded(needed) }
  }

  private func keys(of child: CapturedTable, _ slots: [Int], thatReference parents: [Key]) throws -> [Key] {
    let keys = child.keySlots.map(child.tableColumn).joined(separator: ", ")
    let condition = slots.enumerated().map { "\(child.tableColumn($1)) = ?\($0 + 1)" }.joined(separator: " AND ")
    return try parents.flatMap { parent in
      try connection.rows("SELECT \(keys) FROM \(quoted(child.name)) x WHERE \(condition)", parent)
    }
  }

  // MARK: Tables that come whole

  /// By number, from what is staged.
  static func fullTables(_ context: StoreContext) throws -> Set<Int64> {
    Set(try fullNames(context).map { try context.captured($0).number })
  }

  /// In small letters.
  static func fullNames(_ context: StoreContext) throws -> Set<String> {
    var full: Set<String> = []
    // Chunks without the word are not parsed a second time.
    try context.connection.query(
      "SELECT payload FROM salvor_staging WHERE instr(payload, '{\"full\":') > 0 ORDER BY id"
    ) {
      row in
      try row.withText(0) { text in
        var reader = DownloadChunkReader(
          UnsafeBufferPointer(start: text.baseAddress?.assumingMemoryBound(to: UInt8.self), count: text.count))
        while let event = try reader.next() {
          if case .full(let names) = event { full.formUnion(names.map { $0.folded }) }
        }
      }
      return true
    }
    return full
  }

  /// A row that does not come with its table is not there.
  private func leaveOutMissing() throws {
    let touched = rows.touched
    for number in full {
      guard let table = context.catalog.table(number: number), !touched.isWhole.contains(number) else { continue }
      // What arrived is the whole table, but for rows with requests.
      if arrived?.contains(table) != true {
        let keys = (0..<table.keyCount).map(table.tableColumn).joined(separator: ", ")
        let missing = try connection.rows(
          "SELECT \(keys) FROM \(quoted(table.name)) x WHERE NOT \(touched.wasWritten(table))")
        for key in missing { try stream.leaveOut(table, key) }
      }
      // Rows deleted here and gone there: their deletes delete nothing now.
      try rows.index.eachRow(of: table) { key in
        if try !touched.wasWritten(table, key) { try stream.leaveOut(table, key) }
      }
    }
  }
}

extension DownloadApply {
  /// In a recovery: of a group that was never synchronized no line says that the server has lost what it acknowledged.
  private func leaveOutUnasked() throws {
    guard let recovery, recovery.order.rebuild == .nothing else { return }
    for table in context.catalog.tables where !groups.contains(context.group(of: table.number)) {
      try recovery.versions.eachOwn(table) { try stream.leaveOut(table, $0) }
    }
  }
}

extension StoreContext {
  /// Captured tables with triggers of the application's that are to fire.
  func firingTables() throws -> Set<Int64> {
    var firing: Set<Int64> = []
    for row in try connection.rows(
      "SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'trigger' AND name NOT LIKE 'salvor\\_%' ESCAPE '\\' "
        + "UNION SELECT tbl_name FROM sqlite_temp_schema WHERE type = 'trigger' AND name NOT LIKE 'salvor\\_%' ESCAPE '\\'"
    ) {
      guard let name = row[0].string, let table = catalog.table(name) else { continue }
      if self.table(table)?.applicationTriggers ?? true { firing.insert(table.number) }
    }
    return firing
  }
}
