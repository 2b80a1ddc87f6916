import SQLiteSupport
import SalvorStorage

/// What a client asks that watches the database (semantics 1, server-initiated sync).
extension SQLiteClientStore {
  /// Looks at the end of the log. A file that took the place of this one, or was written over it from a copy, is looked at by a
  /// synchronization, too. Where somebody has changed the database's schema, Salvor's triggers may be gone: every group is named once,
  /// so that a synchronization looks for what nothing captures. Not by `opened`: a download that is being applied goes on.
  public func captured(after counter: Int64) throws -> CapturedChanges {
    let context = try current()
    var found = CapturedChanges(counter: try context.connection.lastCounter())
    let schema = try context.connection.schemaVersion()
    let isAltered = try schema != checkedSchema && schema != toldSchema && context.connection.pausedSince() == nil
    if isAltered { toldSchema = schema }
    let file = FileIdentity(path)
    let isAnother = file != nil && file != openedFile && file != toldFile
    if isAnother { toldFile = file }
    if isAltered || isAnother || found.counter < counter { found.groups = Set(context.config.groups.map(\.name)) }
    guard found.counter > counter else { return found }
    for row in try context.connection.rows(
      "SELECT DISTINCT t FROM salvor_log WHERE seq > ?1 AND op IN \(StoreContext.changeOperations)", .integer(counter))
    {
      if let number = row[0].integer { found.groups.insert(context.group(of: number)) }
    }
    return found
  }
}
