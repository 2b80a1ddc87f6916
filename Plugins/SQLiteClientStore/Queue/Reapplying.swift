import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Does again what a kept entry did, as an application would (semantics 8). In a transaction of a connection with foreign
/// keys on.
struct Reapplying {
  let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  /// Answers the new request; nil: there is nothing to send.
  func run(_ id: RequestID) throws -> RequestID? {
    try RequestSorting(context).sort()
    let found = try context.known(id, in: [.kept])
    let changes = try context.archived(where: "first = ?1", [.integer(found.range.first)])
    let counter = try connection.lastCounter()
    let writer = ApplicationWriter(context: context)
    try connection.withTriggers(true) {
      try writer.run(.beginRequest(tag: found.range.tag))
      for change in changes { try write(change, of: id, writer) }
      try writer.run(.endRequest)
    }
    try RequestSorting(context).sort()
    let history = try context.note(found.range.first).history + [id]
    try context.deleteArchived(found.range)
    guard
      let first = try connection.integer(
        "SELECT min(seq) FROM salvor_log WHERE seq > ?1 AND op IN \(StoreContext.changeOperations)", .integer(counter))
    else { return nil }
    try context.setNote(RequestNote(history: history), of: first)
    return try context.requestID(first: first)
  }

  private func write(_ change: StoreContext.ArchivedChange, of id: RequestID, _ writer: ApplicationWriter) throws {
    do {
      if let write = try statement(change, of: id) { try writer.run(write) }
    } catch let error as SalvorError where error.isConstraintViolation {
      throw SalvorError.cannotStand(id, table: change.table.name, error.message)
    }
  }

  /// What brings about what a change did, on the tables as they are; nil: nothing.
  private func statement(_ change: StoreContext.ArchivedChange, of id: RequestID) throws -> ApplicationWrite? {
    guard let table = context.catalog.table(number: change.table.number) else {
      throw SalvorError.cannotStand(id, table: change.table.name, "The table is not there any more.")
    }
    let values = zip(change.slots, change.after).map { NamedValue(table.columns[$0].name, $1) }
    let isThere = try context.currentRow(table, change.key) != nil
    switch change.step.change {
    case .insert where !isThere: return .insert(table: table.name, values: values)
    case .insert:
      let others = Array(values.dropFirst(table.keyCount))
      return others.isEmpty ? nil : .update(table: table.name, key: change.key, values: others)
    case .update where isThere: return .update(table: table.name, key: change.key, values: values)
    case .update: throw SalvorError.cannotStand(id, table: table.name, "Its row is not there any more.")
    case .delete: return isThere ? .delete(table: table.name, key: change.key) : nil
    }
  }
}
