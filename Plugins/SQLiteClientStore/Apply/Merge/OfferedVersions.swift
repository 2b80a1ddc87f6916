import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Offers that wait, before a recovery that discards requests or rebuilds tables (decision 241).
///
/// What these strategies give up is what was not synchronized. An offer was: it becomes the acknowledged version again that it is made of, a
/// version that the server has lost (`UndoneVersions`), and the recovery offers it like every other one.
struct OfferedVersions {
  let context: StoreContext

  private var connection: SQLiteConnection { context.connection }

  /// Answers with the order for a device with these versions. In a transaction, before the history is looked at.
  func takeBack(for order: RecoveryOrder) throws -> RecoveryOrder {
    guard order.givesUpRequests, order.takesOffers, try connection.text(.server) == order.server.text else {
      return order
    }
    var offers: [RequestRange] = []
    for table in context.catalog.tables { offers += try noteVersions(of: table, order) }
    guard !offers.isEmpty else { return order }
    try context.noteWithdrawn(context.heldOffers(offers))
    for offer in offers { try connection.run("DELETE FROM salvor_offer WHERE seq = ?1", .integer(offer.first)) }
    var move = Move()
    move.becomingBases = offers.sorted { $0.first < $1.first }
    move.returnsDisplaced = false
    move.movesClientRows = false
    try context.settle(move)
    return order.withLostVersions
  }

  /// A newer version of the row that is lost now takes an older one's place (`OlderOffers`): that goes as the strategy says.
  private func noteVersions(of table: CapturedTable, _ order: RecoveryOrder) throws -> [RequestRange] {
    let keys = table.keySlots.map { "v\($0)" }.joined(separator: ", ")
    let logged = table.keySlots.map { "l.v\($0)" }.joined(separator: ", ")
    let newer =
      order.absence == .lost ? "h.version > \(order.shared ?? 0) AND h.own <> \(StoreContext.cameWhole)" : "0"
    let found =
      "FROM salvor_offer o CROSS JOIN salvor_log l ON l.seq = o.seq WHERE o.written IS NULL AND l.t = ?1 AND l.op IN \(StoreContext.changeOperations) "
      + "AND coalesce((SELECT r.last >= l.seq AND (r.last > r.first OR r.state IS NOT NULL) FROM salvor_outstanding r WHERE r.first <= l.seq ORDER BY r.first DESC LIMIT 1), 0) = 0 "
      + "AND (\(logged)) NOT IN (SELECT \(keys) FROM salvor_history h WHERE h.t = ?1 AND \(newer))"
    let offers = try connection.rows("SELECT l.seq \(found) ORDER BY l.seq", .integer(table.number))
      .compactMap { $0[0].integer }.map { RequestRange(first: $0, last: $0) }
    guard !offers.isEmpty else { return [] }
    try connection.run(
      "INSERT INTO salvor_history (t, version, origin, own, deleted, undone, \(keys)) "
        + "SELECT l.t, ?2, o.origin, 1, l.op IN \(StoreContext.deleteOperations), o.number || ' ' || (o.parting + 1) || ' ' || o.incarnation, \(logged) \(found)",
      .integer(table.number), .integer(.max))
    return offers
  }
}
