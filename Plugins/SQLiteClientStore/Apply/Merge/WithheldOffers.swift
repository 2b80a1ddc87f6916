import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Losses that were withheld, and that this device may offer as it is set up now: each becomes a request upon its row as it is, as in a
/// recovery (decision 162).
final class WithheldOffers: AddedRequests {
  private let context: StoreContext
  private let losses: [WithheldLoss]
  private let heal: HealMode

  private init(_ context: StoreContext, _ losses: [WithheldLoss], _ heal: HealMode) {
    self.context = context
    self.losses = losses
    self.heal = heal
  }

  /// Offers all that the setting which was asked for allows. In a transaction, with triggers off, while no upload is under way.
  static func offer(_ context: StoreContext) throws {
    let connection = context.connection
    guard let heal = try connection.text(.healWanted).flatMap({ HealMode(rawValue: $0) }) else { return }
    try connection.setState(.healWanted, Value?.none)
    try connection.setState(.healSeen, context.healSettings(heal))
    try context.releaseKept(heal)
    let order = context.schema.deleteOrder
    let tables = context.catalog.tables.sorted { (order[$0.name] ?? 0) < (order[$1.name] ?? 0) }
    // As a recovery offers them (`OfferedRows.number`).
    for some in ["op <> 'delete'"] + tables.map({ "op = 'delete' AND t = \($0.number)" }) {
      var last: Int64 = 0
      while true {
        let losses = try context.withheldLosses(heal, some, after: last)
        guard let end = losses.last?.seq else { break }
        last = end
        var move = Move()
        move.offers = WithheldOffers(context, losses, heal)
        try context.settle(move)
      }
    }
  }

  /// What requests make of a row stays theirs: what is not offered for that stays in the archive.
  func add(to rows: WorkingRows) throws {
    let insertion = try context.connection.prepare(
      "INSERT INTO salvor_offer (seq, incarnation, number, parting, review) VALUES (?1, ?2, ?3, ?4, ?5)")
    let older = try OlderOffers(context)
    for loss in losses {
      _ = try older.takeOut(loss.table, loss.key, before: loss.version.lost, rows)
      let timeline = try rows.load(loss.table, loss.key).timeline
      if try timeline.steps.contains(where: { try context.isOffer(RequestRange(first: $0.seq, last: $0.seq)) }) {
        // A version that was lost later is offered already.
        try context.forgetWithheld(loss.seq)
        continue
      }
      let was = loss.was.map { was in
        // A column that is new since is as the server has it.
        timeline.base.map { Array(was + $0.dropFirst(was.count)) } ?? context.padded(was, loss.table)
      }
      guard
        let counter = try rows.makeAgain(loss.table, loss.key, as: was, but: written(since: loss, was, timeline.base))
      else { continue }
      let isForReview = loss.version.isForReview || context.healMode(of: loss.table, heal) == .review
      try insertion.bind(1, counter)
      try insertion.bind(2, .text(loss.version.lost.incarnation.text))
      try insertion.bind(3, loss.version.lost.number)
      try insertion.bind(4, loss.version.lost.parting)
      try insertion.bind(5, isForReview ? .integer(1) : .null)
      try insertion.run()
      try context.takeFromArchive(seq: loss.seq, of: loss.first)
    }
  }

  /// Columns that were the same on both sides when the row was lost, and are others at the server now: somebody has written them since, and no
  /// lost commit is known to have changed them.
  private func written(since loss: WithheldLoss, _ was: SlotRow?, _ base: SlotRow?) -> Set<Int> {
    guard let slots = loss.slots, let was, let base else { return [] }
    return Set(loss.table.otherSlots.filter { !slots.contains($0) && was[$0] != base[$0] })
  }
}
