import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Offered deletes that the server holds for its operator: they have left the queue, and their rows are as the server has them. What the
/// server says of waiting offers does not count them; so the device asks what became of them, with an upload, whenever the server
/// holds fewer (decision 205), or, where it does not say how many, has settled any offer (decision 196).
///
/// `salvor_kept.held`: 1, the server holds it; 2, it is in the next upload, or in the one under way.
struct HeldDeletes {
  private let context: StoreContext
  private var connection: SQLiteConnection { context.connection }

  init(_ context: StoreContext) { self.context = context }

  func count() throws -> Int64 {
    try connection.integer("SELECT count(*) FROM salvor_kept WHERE held IS NOT NULL") ?? 0
  }

  /// Some go with the next upload.
  func areAsked() throws -> Bool {
    try connection.integer("SELECT 1 FROM salvor_kept WHERE held = 2 AND t IN (SELECT id FROM salvor_table) LIMIT 1")
      != nil
  }

  /// What the server says with an answer. True: some go with the next upload. Where it does not say how many it holds, of each table one does
  /// at first: an operator decides many at once.
  func ask(_ terms: HealTerms) throws -> Bool {
    guard try connection.integer("SELECT 1 FROM salvor_kept WHERE held = 1 LIMIT 1") != nil else { return false }
    let asked = "\(terms.incarnation.text) \(terms.settlings)"
    guard try connection.text(.heldAsked) != asked else { return false }
    // A server that has settled none says the number where it holds some: put back once more, it has lost them.
    let deletes = terms.deletes ?? (terms.settlings == 0 ? 0 : nil)
    let asksAll = deletes != nil
    let isAny = try deletes.map { try $0 < count() } ?? true
    try connection.transaction {
      try connection.setState(.heldAsked, asked)
      guard isAny else { return }
      try connection.run(
        "UPDATE salvor_kept SET held = 2 WHERE held = 1"
          + (asksAll ? "" : " AND seq IN (SELECT min(seq) FROM salvor_kept WHERE held = 1 GROUP BY t)"))
    }
    return isAny
  }

  /// An upload was settled, with what went again in it: that waits on, is settled, or was refused, and is in the archive then. Where one
  /// delete of a table is settled, the others are asked about next. Answers how many requests were refused.
  func settle(_ results: UploadResults, upTo last: Int64) throws -> Int64 {
    let refusals = Dictionary(results.refused.map { ($0.counter, $0) }) { first, _ in first }
    var settled: Set<Int64> = []
    var refused: Set<Int64> = []
    var versions = KeptVersionPages.lost(context, upTo: last)
    while let version = try versions.next() {
      let waits = results.isWaiting(version.first)
      if version.review != nil, !waits { settled.insert(version.table.number) }
      if let refusal = refusals[version.first] {
        // The server has it already (`notLost`), or has purged its row: then nothing is archived. The archive keeps every other refused one.
        if refusal.reason != .notLost && refusal.reason != .purged {
          try archive(version, refusal)
          refused.insert(version.first)
        }
        try connection.run("DELETE FROM salvor_kept WHERE seq = ?1", .integer(version.seq))
      } else if version.review != nil {
        try connection.run(
          "UPDATE salvor_kept SET held = ?2 WHERE seq = ?1", .integer(version.seq), waits ? .integer(1) : .null)
      }
    }
    for table in settled {
      try connection.run("UPDATE salvor_kept SET held = 2 WHERE t = ?1 AND held = 1", .integer(table))
    }
    return Int64(refused.count)
  }

  /// Its row stays as the server has it.
  private func archive(_ version: LostKeptVersion, _ refusal: Refusal) throws {
    var step = context.step(
      version.seq, version.operation, version.slots, before: version.before, after: version.after, version.table)
    if version.operation == .delete { step.before = try context.currentRow(version.table, version.key) }
    let range = RequestRange(first: version.first, last: version.last, tag: version.tag)
    try context.archive(
      step, of: range, version.table, version.key,
      kept: (
        refusal.reason.rawValue,
        refusal.reason != .rejected
          ? refusal.ofLostVersion
          : version.operation == .delete
            ? "The server's operator rejected this delete, and the row stays. Reapply it, or delete the entry."
            : refusal.message
      ))
  }
}
