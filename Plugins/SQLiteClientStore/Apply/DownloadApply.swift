import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Applies everything staged in one transaction (semantics 2 and 4): bases change, touched rows are made anew, what
/// cannot stand is displaced, references are proved.
///
/// Tables without triggers of the application's are written with triggers off. Where there are some, they fire, so that
/// the application's indexes and logs stay right; what was captured meanwhile is what they wrote to synchronized tables,
/// and it is undone.
final class DownloadApply {
  private let context: StoreContext
  private let counter: Int64
  private let full: Set<Int64>
  private let firing: Set<Int64>
  let index: LogIndex
  private let touched: TouchedRows
  private let proof: ReferenceProof
  private let remaking: Remaking
  private let stream: DownloadStream
  /// In a recovery: its rules.
  private let recovery: RecoveryMerge?

  private var connection: SQLiteConnection { context.connection }

  /// In a transaction, with foreign keys and triggers off, in which `read` and `finish` are called, too.
  ///
  /// - Parameters:
  ///   - full: tables that come whole, by number; nil: they are looked for in what is staged.
  ///   - ends: the groups as they are after an ordinary download. The rows that come without a version, and not with their
  ///     whole table, were compared: the commit at its end is the version that they have at most.
  ///   - ahead: the download is not staged, and goes into tables that were empty: `read` throws `NotAhead` at what needs
  ///     more.
  init(
    _ context: StoreContext, full: Set<Int64>? = nil, ends: [GroupState] = [], recovery: RecoveryMerge? = nil,
    ahead: Bool = false
  ) throws {
    self.context = context
    self.recovery = recovery
    let connection = context.connection
    counter = try connection.lastCounter()
    try RequestSorting(context).sort()
    let full = try full ?? (ahead ? [] : Self.fullTables(context))
    self.full = full
    let firing = try Self.firingTables(context)
    self.firing = firing
    let prepareWrite: (CapturedTable) -> Void = { table in
      let fires = firing.contains(table.number)
      if connection.triggersEnabled != fires { connection.triggersEnabled = fires }
    }
    index = try LogIndex(context)
    touched = try TouchedRows(context)
    proof = try ReferenceProof(context, touched)
    for table in context.catalog.tables {
      let isEmpty = try connection.integer("SELECT 1 FROM \(quoted(table.name)) LIMIT 1") == nil
      if isEmpty, !index.tables.contains(table.number), !firing.contains(table.number),
        recovery?.mayComeWhole(table) ?? true
      {
        touched.isWhole.insert(table.number)
      }
      if firing.contains(table.number) || full.contains(table.number) || recovery != nil {
        touched.recordsWritten.insert(table.number)
      }
      if recovery != nil { touched.recordsRemoved.insert(table.number) }
    }
    remaking = try Remaking(context, index: index, touched: touched, prepareWrite: prepareWrite)
    stream = try DownloadStream(context, remaking, touched, ahead: ahead, prepareWrite: prepareWrite)
    for table in context.catalog.tables where !full.contains(table.number) {
      let group = context.group(of: table.number)
      stream.comparedVersions[table.number] = ends.first { $0.name == group }?.cursor?.number
    }
    try recovery?.begin(remaking)
    stream.watch = recovery?.watch
    if !firing.isEmpty { try context.holdFlags() }
  }

  /// A download could go into tables that are empty, and nothing else is to be looked at meanwhile.
  var canGoAhead: Bool { index.tables.isEmpty && firing.isEmpty && !touched.isWhole.isEmpty }

  /// Reads one chunk of the download.
  func read(_ text: UnsafeRawBufferPointer) throws {
    defer { connection.triggersEnabled = false }
    try stream.read(text)
  }

  /// Reads all that is staged.
  func readStaged() throws {
    defer { connection.triggersEnabled = false }
    try stream.run()
  }

  /// After everything was read.
  ///
  /// - Parameter groups: those that are downloaded.
  func finish(_ groups: Set<String>) throws -> ApplyReport {
    defer { connection.triggersEnabled = false }
    try leaveOutMissing(full, stream, touched, index)
    if recovery == nil { try stream.removeLeaving(proof) }
    var before: [RowRef: SlotRow?] = [:]
    for (ref, base) in stream.bases where base.table.deletedFlag != nil {
      before[ref] = try remaking.load(base.table, ref.key).timeline.base
    }
    if let recovery {
      try recovery.takeBases(stream, remaking)
    } else {
      remaking.announce(stream.bases.lazy.map { ($0, $1.row) })
      for (ref, base) in stream.bases { try remaking.setBase(base.table, ref.key, base.row) }
    }
    for (ref, base) in stream.bases where base.table.deletedFlag != nil {
      try remaking.followBase(base.table, ref.key, from: before[ref] ?? nil, to: base.row)
    }
    try dropStaleChildren(groups)
    try settle(remaking, proof)

    if try wasCaptured(after: counter) {
      // Downloaded rows of tables with triggers are written once more.
      try remaking.undoTriggers(after: counter) {
        let again = try Remaking(context, index: index, touched: touched)
        try DownloadStream(context, again, touched, onlyTables: firing, prepareWrite: { _ in }).run()
        try again.write()
      }
    }
    connection.triggersEnabled = false
    try context.releaseFlags()
    try remaking.encode()
    try recovery?.finish(stream, remaking)
    try DisplacedReturn(context, index).run()
    try context.noteErrorValues()
    try context.keepCounter(max(counter, recovery?.lastCounter ?? 0))
    var report = stream.report
    report.displaced = try remaking.displaced.filter { range in
      try connection.integer("SELECT 1 FROM salvor_archive WHERE first = ?1 LIMIT 1", .integer(range.first)) != nil
    }.sorted { $0.first < $1.first }.map { try context.requestID(first: $0.first) }
    try touched.clear()
    return report
  }

  /// Triggers wrote to synchronized tables; requests that a recovery made are none of theirs.
  private func wasCaptured(after counter: Int64) throws -> Bool {
    let captured = try connection.integer("SELECT count(*) FROM salvor_log WHERE seq > ?1", .integer(counter)) ?? 0
    return captured > recovery?.remadeParents.count ?? 0
  }

  private func settle(_ remaking: Remaking, _ proof: ReferenceProof) throws {
    try remaking.stand(proof, basesMayBreak: false)
    connection.triggersEnabled = true
    try proof.settleClientRows(ofParents: recovery?.rebuilt ?? [])
    try proof.returnAside()
    connection.triggersEnabled = false
  }

  /// A row of a group that is not in this download, and that references a row which this download took: the server does
  /// not have it any more as it was. What became of it comes with its own group's next download. Nor does it say so of a row
  /// that no subscription covers.
  private func dropStaleChildren(_ groups: Set<String>) throws {
    var again = true
    while again {
      again = false
      for rule in proof.rules {
        guard let child = rule.capturedChild, let parent = rule.capturedParent, rule.parentColumnsAreKey else {
          continue
        }
        // Those with requests of their own are still there; without a base none of them stands.
        let gone = stream.bases.compactMap { $0.table == parent.number && $1.row == nil ? $0.key : nil }
        let isElsewhere =
          try !groups.contains(context.group(of: child.number))
          && (!gone.isEmpty || proof.touched.hasRemoved(parent))
        let slots = rule.childColumns.compactMap { name in
          child.columns.firstIndex { $0.name.lowercased() == name.lowercased() }
        }
        guard slots.count == rule.childColumns.count else { continue }
        var keys = try stream.leaving.keys(of: child)
        if isElsewhere {
          keys += try proof.orphans(rule).map(\.key)
          keys += try rows(of: child, slots, thatReference: gone)
          try index.eachRow(of: child) { keys.append($0) }
        }
        for key in keys {
          guard let base = try remaking.load(child, key).timeline.base else { continue }
          let reference = slots.map { base[$0] }
          if reference.contains(.null) { continue }
          guard try remaking.load(parent, reference).timeline.base == nil else { continue }
          try stream.leaving.forget(child, key)
          try remaking.setBase(child, key, nil)
          again = true
        }
      }
      if again { try remaking.write() }
    }
  }

  private func rows(of child: CapturedTable, _ slots: [Int], thatReference parents: [Key]) throws -> [Key] {
    let keys = child.keySlots.map(child.tableColumn).joined(separator: ", ")
    let condition = slots.enumerated().map { "\(child.tableColumn($1)) = ?\($0 + 1)" }.joined(separator: " AND ")
    return try parents.flatMap { parent in
      try connection.rows("SELECT \(keys) FROM \(quoted(child.name)) x WHERE \(condition)", parent)
    }
  }

  // MARK: Tables that come whole

  /// By number, from what is staged.
  static func fullTables(_ context: StoreContext) throws -> Set<Int64> {
    var full: Set<Int64> = []
    // Chunks without the word are not parsed a second time.
    try context.connection.query(
      "SELECT payload FROM salvor_staging WHERE instr(payload, '{\"full\":') > 0 ORDER BY id"
    ) {
      row in
      try row.withText(0) { text in
        var reader = DownloadChunkReader(
          UnsafeBufferPointer(start: text.baseAddress?.assumingMemoryBound(to: UInt8.self), count: text.count))
        while let event = try reader.next() {
          if case .full(let names) = event { for name in names { full.insert(try context.captured(name).number) } }
        }
      }
      return true
    }
    return full
  }

  /// A row that does not come with its table is not there.
  private func leaveOutMissing(
    _ full: Set<Int64>, _ stream: DownloadStream, _ touched: TouchedRows, _ index: LogIndex
  ) throws {
    for number in full {
      guard let table = context.catalog.table(number: number), !touched.isWhole.contains(number) else { continue }
      let keys = (0..<table.keyCount).map(table.tableColumn).joined(separator: ", ")
      let missing = try connection.rows(
        "SELECT \(keys) FROM \(quoted(table.name)) x WHERE NOT \(touched.wasWritten(table))")
      for key in missing { try stream.leaveOut(table, key) }
      // Rows deleted here and gone there: their deletes delete nothing now.
      try index.eachRow(of: table) { key in
        if try !touched.wasWritten(table, key) { try stream.leaveOut(table, key) }
      }
    }
  }

  // MARK: The application's triggers

  /// Captured tables with triggers of the application's that are to fire.
  static func firingTables(_ context: StoreContext) throws -> Set<Int64> {
    var firing: Set<Int64> = []
    for row in try context.connection.rows(
      "SELECT DISTINCT tbl_name FROM sqlite_schema WHERE type = 'trigger' AND name NOT LIKE 'salvor\\_%' ESCAPE '\\' "
        + "UNION SELECT tbl_name FROM sqlite_temp_schema WHERE type = 'trigger'")
    {
      guard let name = row[0].string, let table = context.catalog.table(name) else { continue }
      if context.table(table)?.applicationTriggers ?? true { firing.insert(table.number) }
    }
    return firing
  }
}
