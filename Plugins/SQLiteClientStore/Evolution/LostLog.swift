import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Somebody has dropped `salvor_log`, and with it every change that was captured and not sent. The rows stand in their tables: these are
/// compared with the server, as after triggers were away, and what differs becomes a change again.
struct LostLog {
  let connection: SQLiteConnection
  let random: any RandomSource

  /// Makes an empty log that goes on behind all numbers that were ever given. In the transaction of an opening, before the log is looked at.
  /// False: it is there.
  func makeAnew() throws -> Bool {
    guard try connection.tableShape("salvor_log") == nil, try connection.tableShape("salvor_table") != nil,
      try connection.integer("SELECT 1 FROM salvor_table LIMIT 1") != nil
    else { return false }
    let last = try lastGiven() + 1
    try connection.execute("CREATE TABLE salvor_log (seq INTEGER PRIMARY KEY, t INTEGER, op INTEGER)")
    try connection.run(
      "INSERT INTO salvor_log (seq, t, op) VALUES (?1, 0, \(LogOperation.watermark.rawValue))", .integer(last))
    try connection.setState(.watermark, .integer(last))
    // An ID is never used again, whatever number was given last.
    try connection.run(
      "INSERT OR REPLACE INTO salvor_stamp (first_seq, stamp) VALUES (?1, ?2)", .integer(last + 1),
      .text(RequestStamp(from: random).text))
    return true
  }

  private func lastGiven() throws -> Int64 {
    var last: Int64 = 0
    for source in [
      "max(first_seq) FROM salvor_stamp", "max(first_seq) FROM salvor_epoch", "max(last) FROM salvor_outstanding",
      "max(seq) FROM salvor_archive", "max(seq) FROM salvor_offer", "max(seq) FROM salvor_kept",
      "max(first_seq) FROM salvor_met",
    ] { last = max(last, try connection.integer("SELECT \(source)") ?? 0) }
    for name in [StateName.watermark, .provedUpTo] { last = max(last, try connection.state(name)?.integer ?? 0) }
    return last
  }

  /// Nothing is left of the requests that stood in it. Answers with what a person has to know.
  func settle(_ context: StoreContext) throws -> String {
    try context.takeBackUpload()
    try context.forgetEmptyRequests()
    try context.forgetStored()
    try connection.run(
      "DELETE FROM salvor_offer WHERE seq NOT IN (SELECT seq FROM salvor_log) AND seq NOT IN (SELECT seq FROM salvor_archive)"
    )
    try context.noteLogChange()
    try UnprovenTables(context).mark(context.catalog.tables.map(\.name))
    return
      "The table salvor_log was not there any more, and was made anew: the requests that had not been sent are lost. All synchronized tables are compared with the server at the next sync: what differs here becomes a change of its row again."
  }
}
