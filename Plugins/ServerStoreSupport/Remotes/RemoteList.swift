import SalvorModel
import SalvorStorage

extension RemoteBook {
  /// A page by key: its cost is that of the rows that are looked at, and with a principal or a state those between.
  package func page(_ query: RemoteQuery) throws -> [RemoteRecord] {
    var conditions = ["id > ?1"]
    var values: [Value] = [.text(query.after?.text ?? "")]
    func bind(_ value: Value) -> String {
      values.append(value)
      return "?\(values.count)"
    }
    if let principal = query.principal { conditions.append("principal = \(bind(.text(principal)))") }
    if let time = query.unseenSince { conditions.append("coalesce(last_upload, registered) < \(bind(.integer(time)))") }
    switch query.state {
    case nil: break
    case .known?: conditions.append("blocked = 0 AND deleted = 0")
    case .blocked?: conditions.append("blocked = 1")
    case .deleted?: conditions.append("deleted = 1 AND blocked = 0")
    case .resetDemanded?: conditions.append("reset <> 0 AND deleted = 0")
    }
    var found: [RemoteRecord] = []
    try connection.query(
      "SELECT \(Self.columns) FROM salvor_remote WHERE \(conditions.joined(separator: " AND ")) ORDER BY id "
        + "LIMIT \(bind(.integer(Int64(query.limit))))", values
    ) {
      if let record = record($0) { found.append(record) }
      return true
    }
    return found
  }
}
