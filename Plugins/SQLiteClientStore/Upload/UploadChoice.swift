import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Chooses what an upload holds: the waiting requests of some groups, and those they depend on.
struct UploadChoice {
  let context: StoreContext

  /// In a transaction. Writes what is left out; answers the upload's last counter, nil where nothing waits.
  func choose(_ groups: Set<String>?) throws -> Int64? {
    try context.connection.run("DELETE FROM salvor_upload_excluded")
    let names = Set(context.catalog.tables.map { context.group(of: $0.number) })
    guard let groups, !names.isSubset(of: groups) else { return try lastWaiting() }
    let requests = try context.outstanding { $0 == .queued }
    let wanted = requests.indices.filter { index in
      requests[index].changes.contains { groups.contains(context.group(of: $0.table.number)) }
    }
    let chosen = Dependence(requests, schema: context.schema).needs(of: Set(wanted))
    guard let last = chosen.map({ requests[$0].range.last }).max() else { return nil }
    for index in requests.indices where !chosen.contains(index) && requests[index].range.first <= last {
      try context.connection.run(
        "INSERT INTO salvor_upload_excluded (first, last) VALUES (?1, ?2)", .integer(requests[index].range.first),
        .integer(requests[index].range.last))
    }
    return last
  }

  private func lastWaiting() throws -> Int64? {
    var leftOut = try context.leftOut()[...]
    var last: Int64?
    // From the newest back: the first change that is not in error ends the upload.
    try context.connection.query(
      "SELECT seq FROM salvor_log WHERE op IN \(StoreContext.changeOperations) ORDER BY seq DESC"
    ) { row in
      let seq = row.int64(0)
      while let range = leftOut.last, range.first > seq { leftOut.removeLast() }
      if let range = leftOut.last, seq <= range.last { return true }
      last = seq
      return false
    }
    return last
  }
}
