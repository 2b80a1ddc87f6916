import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The one function of the store (semantics 2, docs/architecture/settlement.md): what follows when bases change, or requests
/// leave or come. In a transaction, with foreign keys and triggers off.
///
/// 1. *take* the move into values: joined, accepted, removed, discarded, bases, kept,
/// 2. *stand*: displace what is in the way, then bring back what can stand again,
/// 3. *hold* and release,
/// 4. what is *derived*: client-only rows, what triggers wrote, dirty columns, the values that views show of errors,
/// 5. *encode*, and report net.
///
/// Steps that have nothing to look at are left out: a plain download and a plain acknowledgement load no row.
final class Settling {
  let context: StoreContext
  let move: Move
  /// The highest one given before.
  private let counter: Int64
  private var opened: WorkingRows?
  private var report = Settlement()

  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext, _ move: Move) throws {
    self.context = context
    self.move = move
    switch move.bases {
    case .none:
      try RequestSorting(context).sort()
      counter = try context.connection.lastCounter()
    case .download(let apply):
      opened = apply.rows
      counter = apply.rows.counter
    }
  }

  /// Made where the first row is needed.
  private func rows() throws -> WorkingRows {
    if let opened { return opened }
    let made = try WorkingRows(context)
    if !made.firing.isEmpty { try context.holdFlags() }
    try made.proof.referenced.watch()
    opened = made
    return made
  }

  func run() throws -> Settlement {
    defer { connection.triggersEnabled = false }
    try take()
    if move.holding == .release { try release() }
    if try needsRows() {
      let rows = try rows()
      rows.basesMayBreak = move.basesMayBreak
      rows.leavesOutdatedOut = move.leavesOutdatedOut
      try rows.stand(basesMayBreak: move.basesMayBreak)
      if move.returnsDisplaced { try rows.returnDisplaced() }
      try noteLeftOut(rows)
    }
    try hold()
    try derive()
    try context.keepCounter(max(counter, opened?.given ?? 0))
    return try net()
  }

  /// Before it is forgotten which rows came.
  private func noteLeftOut(_ rows: WorkingRows) throws {
    report.leftOut = rows.leftOut
    report.forced = try rows.forcedDeletes()
    let tables = rows.leftOut.compactMap { row in
      context.catalog.table(row.row.table).map { (number: $0.number, cause: row.cause) }
    }
    var (lacking, colliding, refusing) = (Set<Int64>(), Set<Int64>(), Set<Int64>())
    for (number, cause) in tables {
      switch cause {
      case .lacks, .lacksByOwnKey: lacking.insert(number)
      case .collides: colliding.insert(number)
      case .refused: refusing.insert(number)
      }
    }
    colliding.formUnion(rows.outdated)
    let incomplete = IncompleteTables(context)
    try incomplete.note(refusing: refusing)
    // Who reads a download's report is told there.
    if case .none = move.bases { try connection.note(report.notices, at: context.clock.now()) }
    let comes = try incomplete.note(left: lacking) { table in
      let written = rows.touched.writtenRows(table)
      return try connection.integer("SELECT 1 FROM \(written.from) WHERE \(written.condition) LIMIT 1") != nil
    }
    let isFree = try incomplete.note(colliding: colliding) { table in
      try rows.touched.hasWritten(table) || rows.touched.hasRemoved(table)
    }
    report.isToCompare = comes || isFree
  }

  /// Rows are in work, or a row could change although none was touched.
  private func needsRows() throws -> Bool {
    if opened != nil { return true }
    if move.returnsDisplaced, try context.anyDisplaced() { return true }
    return try connection.integer("SELECT 1 FROM salvor_mark LIMIT 1") != nil
      || connection.integer("SELECT 1 FROM salvor_aside LIMIT 1") != nil
  }

  // MARK: Taking

  private func take() throws {
    try join()
    for range in move.asked { try context.change(range) { $0.isOvertaken = false } }
    switch move.upload {
    case .none: break
    case .settled(let outcome):
      report.upload = try UploadAcceptance(context: context, outcome: outcome).run { try rows() }
    case .takenBack: try context.takeBackUpload()
    }
    for range in move.removedArchived { try context.deleteArchived(range) }
    if !move.removed.isEmpty { try GivingBack(context, rows()).remove(move.removed) }
    if !move.becomingBases.isEmpty { try rows().remove(move.becomingBases, areBases: true) }
    if let discarded = move.discarded { try rows().discardAll(discarded.reason, discarded.message) }
    switch move.bases {
    case .none: break
    case .download(let apply): try apply.takeBases()
    }
    if !move.unmarked.isEmpty { try rows().removeMarked(of: move.unmarked) }
    if let offers = move.offers { try offers.add(to: rows()) }
    if let start = move.keptAfter { try keep(after: start) }
    try proveCaptured()
  }

  /// The references of what applications wrote since they were proved last: the rows that reference nothing come into work.
  private func proveCaptured() throws {
    let proved = try connection.state(.provedUpTo)?.integer ?? 0
    guard counter > proved else { return }
    try connection.setState(.provedUpTo, .integer(counter))
    let captured = "salvor_log WHERE seq > ?1 AND seq <= ?2 AND op IN \(StoreContext.changeOperations)"
    guard try connection.integer("SELECT 1 FROM \(captured) LIMIT 1", .integer(proved), .integer(counter)) != nil else {
      return
    }
    let proof = try opened?.proof ?? ReferenceProof(context, TouchedRows(context))
    for violation in try proof.captured(after: proved, upTo: counter) {
      let rows = try rows()
      // Without a change to blame it stands as it does.
      if try rows.culprit(violation) != nil { try rows.touched.written(violation.table, violation.key) }
    }
  }

  private func join() throws {
    let last = try connection.lastCounter()
    // What the move adds, no trigger wrote.
    defer {
      if let opened, let end = try? connection.lastCounter() {
        if end > last { opened.noteAdded(last + 1...end) }
      }
    }
    switch move.joins {
    case .none: break
    case .edited:
      guard try context.hasErrors() else { return }
      let captured = try context.capturedSinceErrors()
      if captured?.isEmpty == true { return }
      report.joined = try joining { try $0.joinEdited(by: captured) }
    case .editedOf(let returned):
      guard !returned.isEmpty else { return }
      report.joined = try joining { try $0.joinEdited(returned) }
    case .these(let failed):
      guard !failed.isEmpty else { return }
      report.joined = try joining { try $0.join(failed) }
    case .waiting: report.joinedCount = try joining { try QueueOptimising(context, $0).run() }
    }
  }

  /// What a joined request does not set is shown as the row beneath has it.
  private func joining<Joined>(_ join: (RetryJoining) throws -> Joined) throws -> Joined {
    let joining = try RetryJoining(context, try index())
    let joined = try join(joining)
    for row in joining.unset { try rows().setBase(row.table, row.key, row.base) }
    return joined
  }

  private func index() throws -> LogIndex { try opened?.index ?? LogIndex(context) }

  private func keep(after start: Int64) throws {
    // What a recovery offers was so before it: it is put back with the rest.
    let offers = try connection.rows(
      "SELECT seq FROM salvor_offer WHERE seq > ?1 AND written IS NULL ORDER BY seq", .integer(start)
    ).compactMap { $0[0].integer }.map { RequestRange(first: $0, last: $0) }
    try rows().remove(offers, areBases: true)
    var kept: [RequestRange] = []
    while let seq = try connection.integer(
      "SELECT min(seq) FROM salvor_log WHERE seq > ?1 AND op IN \(StoreContext.changeOperations)", .integer(start))
    { kept += try rows().displace(seq, .blocked) }
    for range in kept {
      try context.keep(
        range, "backup-restored",
        "A backup was put back that is older than this change. Reapply it, or delete the entry.")
    }
  }

  // MARK: Holding

  /// What an acceptance releases is released before it is looked at whether it can stand.
  private func release() throws {
    guard try context.hasErrors() else { return }
    try Holding(context: context).release(try opened?.dependenceNow())
  }

  private func hold() throws {
    if try context.anyDisplaced() { try Holding(context: context).releaseDisplaced() }
    guard move.holding == .choose, try context.hasErrors() else { return }
    try Holding(context: context).choose()
  }

  // MARK: What follows

  private func derive() throws {
    if let rows = opened {
      var rebuilt: Set<String> = []
      var losing: ((String, Key) throws -> Void)?
      if case .download(let apply) = move.bases {
        rebuilt = apply.rebuilt
        if apply.isRecovery { losing = apply.clientRowGoes }
      }
      if move.movesClientRows {
        connection.triggersEnabled = true
        try rows.proof.settleClientRows(ofParents: rebuilt, losing: losing)
        try rows.proof.returnAside()
        connection.triggersEnabled = false
      }
      try rows.proof.referenced.stop()
      try rows.settleTriggers()
      if !rows.firing.isEmpty { try context.releaseFlags() }
      try rows.encode()
      // A recovery looks at what went.
      if !isRecovery { try rows.touched.clear() }
    }
    try context.forgetCopies()
    try context.noteErrorValues()
    try DirtyColumns(context).set()
  }

  private var isRecovery: Bool {
    if case .download(let apply) = move.bases { return apply.isRecovery }
    return false
  }

  private func net() throws -> Settlement {
    guard let rows = opened else { return report }
    let displaced = Set(try context.displacedRequests().map(\.first))
    let left = Set(rows.displaced.map(\.first))
    report.displaced = rows.displaced.filter { displaced.contains($0.first) }.sorted { $0.first < $1.first }
    report.returned = rows.returned.filter { !displaced.contains($0.first) && !left.contains($0.first) }
      .sorted { $0.first < $1.first }
    return report
  }
}

extension StoreContext {
  /// What follows from a move.
  @discardableResult
  func settle(_ move: Move) throws -> Settlement { try namingTriggers { try Settling(self, move).run() } }
}
