import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What `salvor verify` asks for, and its repair.
extension SQLiteClientStore {
  public func dirtyRows(of table: String) throws -> Int64 {
    let context = try opened()
    var count: Int64 = 0
    try LogIndex(context).eachRow(of: try context.captured(table)) { _ in count += 1 }
    return count
  }

  /// Compares what was kept for the rehearsal with the bases; what was kept is gone afterwards. With an order, repairs
  /// the rows that differ and have no unsettled change.
  public func examine(repairing order: RecoveryOrder?) throws -> Examination {
    let context = try opened()
    let connection = context.connection
    try connection.execute(Self.rehearsal)
    defer { try? connection.execute("DELETE FROM temp.salvor_rehearsal") }
    let rows = RowExamination(context: context, source: "temp.salvor_rehearsal")
    var examination = Examination(differences: try connection.transaction(.deferred) { try rows.run() })
    examination.notices = try connection.transaction { try LargeBlobs(context: context).takeNotices() }
    let repairable = examination.differences.filter { !$0.isDirty }
    guard let order, !repairable.isEmpty else { return examination }
    try connection.transaction {
      try clearStaging(context)
      try rows.stage(repairable)
    }
    do { examination.repair = try recover(order) } catch {
      try? discardStaged()
      throw error
    }
    // A row whose parent did not come is left out again.
    examination.leftOut = try connection.transaction(.deferred) { try rows.run() }.filter { !$0.isDirty }
    return examination
  }
}
