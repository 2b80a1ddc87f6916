import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Of one row's lost versions the newest is offered (semantics 10, decision 183): an offer that waits leaves for the archive where a newer
/// version of its row was lost, too.
struct OlderOffers {
  private let context: StoreContext
  private let order: LostOrder

  /// What the archive says of them.
  static let reason = "lost-on-server"
  private static let message =
    "A newer version of the row is offered in the place of this one. Reapply it, or delete the entry."

  init(_ context: StoreContext) throws {
    self.context = context
    var order = LostOrder()
    for found in try context.lostIncarnations().order { order.add(found) }
    self.order = order
  }

  /// Takes the row's offers out that are older than `version`, but for those that other requests need, and those in error. Answers with them.
  func takeOut(
    _ table: CapturedTable, _ key: Key, before version: LostVersion, _ rows: WorkingRows
  ) throws -> [(range: RequestRange, change: OutstandingRequest.Change)] {
    var taken: [(RequestRange, OutstandingRequest.Change)] = []
    let timeline = try rows.load(table, key).timeline
    for step in timeline.steps {
      let range = RequestRange(first: step.seq, last: step.seq)
      guard let old = try offered(step.seq), order.finding(old, beside: version) == .older,
        try context.row(of: range).state == nil
      else { continue }
      let others = timeline.steps.filter { $0.seq != step.seq }
      // What was written since stands upon the server's row, too, or the offer stays.
      guard others.isEmpty || (timeline.base != nil && others.allSatisfy { $0.change.operation == .update }) else {
        continue
      }
      if try context.isHeldByServer(range) { try context.noteWithdrawn([context.requestID(first: range.first)]) }
      let captured = step.asCaptured
      try context.archive(captured, of: range, table, key, kept: (Self.reason, Self.message))
      try rows.takeOutIdle(range)
      try context.connection.run("DELETE FROM salvor_offer WHERE seq = ?1", .integer(step.seq))
      taken.append((range, OutstandingRequest.Change(table: table, key: key, step: captured)))
    }
    return taken
  }

  /// The version of a change that is nothing but an offer.
  private func offered(_ seq: Int64) throws -> LostVersion? {
    let row = try context.connection.rows(
      "SELECT incarnation, number, parting, origin FROM salvor_offer WHERE seq = ?1 AND written IS NULL", .integer(seq)
    ).first
    guard let row, let incarnation = row[0].string.flatMap({ IncarnationID($0) }), let number = row[1].integer else {
      return nil
    }
    return LostVersion(
      incarnation: incarnation, number: number, parting: row[2].integer ?? 0,
      origin: row[3].string.flatMap { LostVersion.Origin(text: $0) })
  }
}

extension RecoveryMerge {
  /// Before anything is made of the requests.
  func replaceOlderOffers(_ stream: DownloadStream, _ rows: WorkingRows, _ watch: BaseWatch) throws {
    guard keepsRequests, offers.isOn, order.absence == .lost else { return }
    let older = try OlderOffers(context)
    for table in context.catalog.tables where offers.mayOffer(table) {
      for (key, loss) in try versions.newerThanOffers(table) {
        guard let version = offers.version(loss) else { continue }
        // A row that left the scope is not lost.
        let base = stream.bases[RowRef(table: table.number, key: key)]
        if let base, base.row == nil, try (watch.fate(of: table, key) ?? .left) == .left { continue }
        for (range, change) in try older.takeOut(table, key, before: version, rows) {
          try versions.noteWrote(table, key)
          try record.request(range, state: .discarded, reason: OlderOffers.reason, [change])
          noteDiscarded()
        }
      }
    }
  }
}
