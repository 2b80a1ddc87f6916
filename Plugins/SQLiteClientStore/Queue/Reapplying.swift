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
      .map { try Effect($0, of: id, context) }
    let counter = try connection.lastCounter()
    let writer = ApplicationWriter(context: context)
    try connection.withTriggers(true) {
      try writer.run(.beginRequest(tag: found.range.tag))
      for change in changes { try write(change, of: id, writer) }
      try writer.run(.endRequest)
    }
    try RequestSorting(context).sort()
    let history = try context.row(of: found.range).history + [id]
    try leave(changes, found.range)
    guard
      let first = try connection.integer(
        "SELECT min(seq) FROM salvor_log WHERE seq > ?1 AND op IN \(StoreContext.changeOperations)", .integer(counter))
    else { return nil }
    try context.change(context.range(of: first)) { $0.history = history }
    return try context.requestID(first: first)
  }

  private func write(_ change: Effect, of id: RequestID, _ writer: ApplicationWriter) throws {
    do {
      if let write = try statement(change, of: id) { try writer.run(write) }
    } catch let error as SalvorError where error.isConstraintViolation {
      throw SalvorError.cannotStand(id, table: change.table.name, error.message)
    }
  }

  /// What brings about what a change did, on the tables as they are; nil: nothing.
  private func statement(_ change: Effect, of id: RequestID) throws -> ApplicationWrite? {
    let (table, key, values) = (change.table, change.archived.key, change.values)
    let isThere = try context.currentRow(table, key) != nil
    switch change.archived.step.change {
    case .insert where !isThere: return .insert(table: table.name, values: values)
    case .insert:
      let keys = table.columns.prefix(table.keyCount).map(\.name)
      let others = values.filter { !keys.contains($0.name) }
      return others.isEmpty ? nil : .update(table: table.name, key: key, values: others)
    case .update where isThere: return .update(table: table.name, key: key, values: values)
    case .update: throw SalvorError.cannotStand(id, table: table.name, "Its row is not there any more.")
    case .delete: return isThere ? .delete(table: table.name, key: key) : nil
    }
  }

  /// The entry goes; what it says of columns that are not there stays.
  private func leave(_ changes: [Effect], _ range: RequestRange) throws {
    guard changes.contains(where: { !$0.left.isEmpty }) else { return try context.deleteArchived(range) }
    for change in changes {
      let seq = Value.integer(change.archived.step.seq)
      guard !change.left.isEmpty else {
        try connection.run("DELETE FROM salvor_archive WHERE seq = ?1", seq)
        continue
      }
      let before = change.left.map { $0 < change.archived.before.count ? change.archived.before[$0] : .null }
      let after = change.left.map { change.archived.after[$0] }
      let slots = change.left.map { change.archived.slots[$0] }
      let table = change.archived.table
      try connection.run(
        "UPDATE salvor_archive SET op = ?2, slots = ?3, before = ?4, after = ?5, shown_before = ?6, shown_after = ?7, own = NULL WHERE seq = ?1",
        seq, .text(Operation.update.rawValue), .text(slots.map(String.init).joined(separator: ",")),
        .text(payload(before)), .text(payload(after)), context.shown(before, slots, table),
        context.shown(after, slots, table))
    }
  }

  /// A change of the archive under the schema of now.
  private struct Effect {
    var archived: StoreContext.ArchivedChange
    var table: CapturedTable
    /// As far as their columns are there.
    var values: [NamedValue]
    /// The places of the others that say something.
    var left: [Int] = []

    /// Throws `cannot-stand` where nothing of it can be said of the tables as they are.
    init(_ change: StoreContext.ArchivedChange, of id: RequestID, _ context: StoreContext) throws {
      let former = change.table
      let present = context.catalog.table(number: former.number)
      guard let definition = present.flatMap(context.table) ?? context.schema.tables.table(formerly: former.name),
        let table = present ?? context.catalog.table(definition.name)
      else {
        throw SalvorError.cannotStand(
          id, table: former.name, "There is no such table in the schema. Bring it back, or delete the entry.")
      }
      archived = change
      self.table = table
      values = []
      let names = former.columns.map { column in
        definition.column(formerly: column.name)?.name.folded ?? column.name.folded
      }
      let keys = table.columns.prefix(table.keyCount).map { $0.name.folded }
      guard names.prefix(former.keyCount) == keys[...] else {
        throw SalvorError.cannotStand(
          id, table: table.name,
          "Its key is another one now (\(table.columns.prefix(table.keyCount).map(\.name).joined(separator: ", "))).")
      }
      var missing: [String] = []
      for (place, slot) in change.slots.enumerated() where place < change.after.count {
        if let column = table.columns.first(where: { $0.name.folded == names[slot] }) {
          values.append(NamedValue(column.name, change.after[place]))
        } else if change.step.change.operation == .update || !change.after[place].isNull {
          left.append(place)
          missing.append(former.columns[slot].name)
        }
      }
      if change.step.change.operation == .update, values.isEmpty {
        throw SalvorError.cannotStand(
          id, table: table.name,
          "It has no column \(missing.joined(separator: ", ")) now. Bring it back into the schema, or delete the entry."
        )
      }
    }
  }
}
