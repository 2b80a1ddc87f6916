import SQLiteSupport
import SalvorModel
import SalvorStorage

/// A loss in the archive that this device did not offer as it was set up then: under another setting it may (decision 162).
struct WithheldLoss {
  struct Version {
    var lost: LostVersion
    /// This device wrote the row by a lost commit.
    var isOwn: Bool
    /// A restore took back a mass of deletes: the server's operator looks at it.
    var isForReview: Bool
  }

  /// Of the entry, and its request.
  var seq: Int64
  var first: Int64
  var table: CapturedTable
  var key: Key
  /// Nil: it was deleted. A column that is new since is not in it.
  var was: SlotRow?
  /// The columns in which the server's row was another one then; nil: all of the row was lost.
  var slots: Set<Int>?
  var version: Version
}

extension StoreContext {
  /// The entry `seq` may be offered under another setting. It stands for older versions of its row.
  func withhold(
    _ seq: Int64, _ table: CapturedTable, _ key: Key, _ version: WithheldLoss.Version, was: SlotRow?
  ) throws {
    let isOlder = "t = ?1 AND key = ?2 AND own IS NOT NULL"
    let row: [Value] = [.integer(table.number), .text(payload(key))]
    let wrote = try connection.rows("SELECT max(own) FROM salvor_archive WHERE \(isOlder)", row).first?[0].integer
    if wrote != nil { try connection.run("UPDATE salvor_archive SET own = NULL, whole = NULL WHERE \(isOlder)", row) }
    try connection.run(
      "UPDATE salvor_archive SET own = ?2, incarnation = ?3, number = ?4, parting = ?5, review = ?6, whole = CASE op WHEN 'update' THEN ?7 END WHERE seq = ?1",
      .integer(seq), .integer(version.isOwn || wrote == 1 ? 1 : 0), .text(version.lost.incarnation.text),
      .integer(version.lost.number), .integer(version.lost.parting), version.isForReview ? .integer(1) : .null,
      was.map { .text(payload($0)) } ?? .null)
  }

  /// Nothing that was withheld is offered of this entry from here on.
  func forgetWithheld(_ seq: Int64) throws {
    try connection.run("UPDATE salvor_archive SET own = NULL, whole = NULL WHERE seq = ?1", .integer(seq))
  }

  /// The device may offer what `heal` says, with its next session, where settings have changed since it was looked at last. True: there is
  /// something.
  func wantsWithheld(_ heal: HealMode) throws -> Bool {
    guard
      try connection.integer("SELECT 1 FROM salvor_archive WHERE own IS NOT NULL LIMIT 1") != nil
        || connection.integer("SELECT 1 FROM salvor_kept WHERE withheld IS NOT NULL LIMIT 1") != nil
    else { return false }
    let settings = healSettings(heal)
    guard try connection.text(.healSeen) != settings else { return false }
    let isAny =
      try connection.integer("SELECT 1 FROM salvor_archive WHERE \(mayBeOffered(heal)) LIMIT 1") != nil
      || connection.integer("SELECT 1 FROM salvor_kept WHERE \(mayBeKept(heal)) LIMIT 1") != nil
    try connection.transaction {
      if isAny {
        try connection.setState(.healWanted, heal.rawValue)
      } else {
        try connection.setState(.healSeen, settings)
      }
    }
    return isAny
  }

  /// What was withheld and may be offered now, in order, after the entry `seq`: a page. In a transaction.
  ///
  /// - Parameter some: a condition on entries of the archive.
  func withheldLosses(_ heal: HealMode, _ some: String, after seq: Int64) throws -> [WithheldLoss] {
    try connection.rows(
      "SELECT seq, first, t, op, key, after, whole, incarnation, number, parting, own, review, slots FROM salvor_archive WHERE seq > ?1 AND \(some) AND \(mayBeOffered(heal)) ORDER BY seq LIMIT 1000",
      .integer(seq)
    ).compactMap { row in
      guard let seq = row[0].integer, let table = row[2].integer.flatMap({ catalog.table(number: $0) }),
        let operation = row[3].string.flatMap({ Operation(rawValue: $0) }),
        let incarnation = row[7].string.flatMap({ IncarnationID($0) }), let number = row[8].integer
      else { return nil }
      let was: SlotRow?
      switch operation {
      case .insert: was = try unpayload(row[5])
      case .update: was = try unpayload(row[6])
      case .delete: was = nil
      }
      let version = LostVersion(incarnation: incarnation, number: number, parting: row[9].integer ?? 0)
      return WithheldLoss(
        seq: seq, first: row[1].integer ?? seq, table: table, key: try unpayload(row[4]), was: was,
        slots: operation == .update
          ? Set((row[12].string ?? "").split(separator: ",").compactMap { Int($0) }) : nil,
        version: WithheldLoss.Version(lost: version, isOwn: row[10].integer == 1, isForReview: row[11].integer == 1))
    }
  }

  // MARK: Conflict versions

  /// What a recovery has withheld, and is not in the archive yet.
  static let isWithheldAnew = "withheld IS NOT NULL AND seq NOT IN (SELECT seq FROM salvor_archive)"

  /// A conflict version that is withheld is shown by an entry of the archive, which a person may reapply or delete like any other. It is
  /// offered only as long as that is there.
  func archiveWithheld(_ version: LostKeptVersion, _ why: Unoffered) throws {
    var step = step(
      version.seq, version.operation, version.slots, before: version.before, after: version.after, version.table)
    if version.operation == .delete { step.before = try currentRow(version.table, version.key) }
    let range = RequestRange(first: version.seq, last: version.seq, tag: version.tag)
    let isHeld = version.review != nil
    try archive(
      step, of: range, version.table, version.key,
      kept: (
        "version-lost-on-server",
        "\(why == .otherServer ? "This is another server than the one of before: it does not have" : "The server has lost") this change, which it \(isHeld ? "held for its operator" : "kept as a conflict version").\(why == .off || why == .tableOff ? " It is given back when heal is on again." : "") Reapply it, or delete the entry."
      ))
    if try stamp(of: version.seq) != version.stamp {
      var row = try row(of: range)
      row.stamp = version.stamp
      try store(row)
    }
  }

  /// Whose entry a person has reapplied or deleted, is no more.
  func forgetThrownAway() throws { try connection.run("DELETE FROM salvor_kept WHERE \(Self.isWithheldAnew)") }

  /// Conflict versions that were withheld go with the next upload, and leave the archive.
  func releaseKept(_ heal: HealMode) throws {
    let released = "salvor_kept WHERE \(mayBeKept(heal))"
    var last: Int64 = 0
    while let seq = try connection.integer("SELECT min(seq) FROM \(released) AND seq > ?1", .integer(last)) {
      last = seq
      try connection.run("UPDATE salvor_kept SET withheld = NULL WHERE seq = ?1", .integer(seq))
      try takeFromArchive(seq: seq, of: seq)
    }
  }

  // MARK: Settings

  func healMode(of table: CapturedTable, _ heal: HealMode) -> HealMode {
    heal.stricter(or: self.table(table)?.heal ?? .off)
  }

  /// What the device and the tables say of healing.
  func healSettings(_ heal: HealMode) -> String {
    catalog.tables.reduce(heal.rawValue) { text, table in
      let own = self.table(table)?.heal ?? .off
      return own == .all ? text : "\(text) \(table.number)=\(own.rawValue)"
    }
  }

  private func numbers(_ heal: HealMode, where holds: (HealMode) -> Bool) -> String {
    catalog.tables.filter { self.table($0)?.maintained == .dual && holds(healMode(of: $0, heal)) }
      .map { "\($0.number)" }.joined(separator: ", ")
  }

  private func mayBeOffered(_ heal: HealMode) -> String {
    "own IS NOT NULL AND (t IN (\(numbers(heal) { $0 == .all })) OR (own = 1 AND t IN (\(numbers(heal) { $0 == .own || $0 == .review }))))"
  }

  private func mayBeKept(_ heal: HealMode) -> String {
    "withheld IS NOT NULL AND seq IN (SELECT seq FROM salvor_archive) AND t IN (\(numbers(heal) { $0 != .off }))"
  }
}
