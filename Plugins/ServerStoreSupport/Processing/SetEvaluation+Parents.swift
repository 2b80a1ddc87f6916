import SalvorModel
import SalvorStorage

extension SetEvaluation {
  /// Whether a row that the request would leave references one that is not there.
  func lacksParent(_ request: StagedRequest, _ steps: [Step]) throws -> Bool {
    try missingParent(of: request, steps) != nil
  }

  /// The row that a request which the server may hold waits for; nil: it lacks none, or lacks one that its device references since the loss, or
  /// that was erased for good.
  func awaitedParent(of request: StagedRequest, _ steps: [Step]) throws -> (table: Int, key: Key)? {
    guard let missing = try missingParent(of: request, steps),
      request.changes[0].offer?.written.contains(missing.column) != true,
      case let rows = overlay.rows,
      try !PurgeBook(rows.connection).isPurged(rows.catalog.tables[missing.table], missing.key)
    else { return nil }
    return (missing.table, missing.key)
  }

  /// The first row that the request needs and that is not there, and by which column.
  private func missingParent(
    of request: StagedRequest, _ steps: [Step]
  ) throws -> (table: Int, key: Key, column: String)? {
    let catalog = overlay.rows.catalog
    for (change, step) in zip(request.changes, steps) {
      guard let place = change.table, let after = step.after else { continue }
      let table = catalog.tables[place]
      for reference in table.table.references {
        guard let column = table.place(reference.column), !after[column].isNull,
          let parent = catalog.place(of: reference.table)
        else { continue }
        if try overlay.peek(parent, [after[column]]) == nil { return (parent, [after[column]], reference.column) }
      }
    }
    return nil
  }
}
