import SalvorModel
import SalvorStorage

/// What the sender may see, and what a write of his would show him.
extension SetEvaluation {
  /// Over the server's rows and over what the requests before made of them.
  ///
  /// - Parameter principal: whose scope it is; nil: the sender's.
  func scope(_ row: Row, _ place: Int, of principal: Principal? = nil) throws -> ScopeFinding {
    try scope(row, place, over: overlay, by: catalog.tables[place].alternatives, of: principal)
  }

  func scope(
    _ row: Row, _ place: Int, over overlay: RowOverlay, by alternatives: [ScopeAlternative], of other: Principal? = nil
  ) throws -> ScopeFinding {
    let principal = other ?? principal
    let catalog = overlay.rows.catalog
    let search = ScopeSearch(
      by: ScopeReader(catalog.schema, ReadScope(principal)),
      value: { column, row, name in
        catalog.table(name).flatMap { table in table.place(column).map { row[$0] } } ?? .null
      },
      rows: { join, value throws(any Error) in
        guard let joined = catalog.place(of: join.table) else { return [] }
        if join.reference != nil { return try overlay.peek(joined, [value]).map { [$0] } ?? [] }
        return try overlay.rows(joined, by: join, value, principal)
      })
    return try search.finding(row, of: catalog.tables[place].name, by: alternatives)
  }

  /// A write never brings its writer into a scope that he was not in before it (semantics 7): what speaks against a row
  /// of a table that scopes go through, where it shows him rows that he did not see.
  ///
  /// - Parameter before: as the rows were before it.
  func refusalOfLead(_ row: Row, _ place: Int, since before: RowOverlay) throws -> RefusalText? {
    let table = catalog.tables[place]
    for lead in catalog.leads[place] {
      guard let target = table.place(lead.join.target), !row[target].isNull else { continue }
      let shown = catalog.tables[lead.table]
      let isShown = ScopeAlternative(joins: [lead.join])
      var isBrought = false
      try overlay.each(lead.table, lead.join.column, row[target]) { candidate in
        // Another row of the table has shown it before, and everything else under the same value.
        if try scope(candidate, lead.table, over: before, by: [isShown]) == .inside { return false }
        isBrought =
          try scope(candidate, lead.table, over: before, by: shown.alternatives) != .inside
          && scope(candidate, lead.table, over: overlay, by: shown.alternatives) == .inside
        return !isBrought
      }
      guard isBrought else { continue }
      guard let reference = lead.reference else { return outOfScope(table) }
      return .missingParent(table, reference, catalog)
    }
    return nil
  }

  /// A row that the upload has not written was in the sender's scope before it: what it wrote elsewhere hides the row from him.
  func wasInside(_ row: Row, _ place: Int) throws -> Bool {
    try scope(row, place, over: departures.before.known(), by: catalog.tables[place].alternatives) == .inside
  }
}
