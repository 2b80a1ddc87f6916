import SalvorModel
import SalvorStorage

extension SetEvaluation {
  /// Whether a row that the request would leave references one that is not there.
  func lacksParent(_ request: StagedRequest, _ steps: [Step]) throws -> Bool {
    try missingParent(of: request, steps) != nil
  }

  /// The first row that the request needs and that is not there.
  func missingParent(of request: StagedRequest, _ steps: [Step]) throws -> (table: Int, key: Key)? {
    let catalog = overlay.rows.catalog
    for (change, step) in zip(request.changes, steps) {
      guard let place = change.table, let after = step.after else { continue }
      let table = catalog.tables[place]
      for reference in table.table.references {
        guard let column = table.place(reference.column), !after[column].isNull,
          let parent = catalog.place(of: reference.table)
        else { continue }
        if try overlay.peek(parent, [after[column]]) == nil { return (parent, [after[column]]) }
      }
    }
    return nil
  }
}
