import SalvorModel
import SalvorStorage

/// Whether a row is within a principal's scope (semantics 7). All conditions must hold; a condition on a parent's column
/// is followed through the references.
struct ScopeCheck: Sendable {
  enum Finding: Sendable { case inside, outside, parentMissing }

  let schema: Schema
  let scope: ReadScope

  private var principal: Principal { scope.principal }

  func finding(_ row: Row, of table: Table, in tables: MemoryTables) -> Finding {
    for condition in schema.scopeConditions(of: table) {
      guard let allowed = principal.allowedValues(condition.source) else { continue }
      var table = table
      var row = row
      for step in condition.steps {
        let value = table.value(step.column, of: row)
        if value.isNull { return .outside }
        guard let parent = schema.table(step.table),
          let parentRow = tables[RowName(table: parent.name, key: [value])]
        else { return .parentMissing }
        table = parent
        row = parentRow
      }
      if !allowed.contains(table.value(condition.column, of: row)) { return .outside }
    }
    return .inside
  }

  /// The rows of `names` that the principal may read.
  func visible(_ names: [Table], in tables: MemoryTables) -> Set<RowName> {
    var visible: Set<RowName> = []
    for table in names {
      for (key, row) in tables.rows(of: table.name) where finding(row, of: table, in: tables) == .inside {
        visible.insert(RowName(table: table.name, key: key))
      }
    }
    return visible
  }

  /// Names the scope of a group: the same where the same tables have the same conditions for this principal.
  func digest(ofGroup group: String) -> String {
    let tables = schema.tables(inGroup: group)
    return SalvorStorage.digest(
      Array(
        tables.map { "\($0.origin) " + principal.scopeDigest(of: schema.scopeConditions(of: $0)) }
          .joined(separator: "\n").utf8))
  }
}
