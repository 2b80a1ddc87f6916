import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What `salvor_state` remembers.
enum StateName: String {
  /// The number of the form of Salvor's own tables.
  case format
  case remote, principal, server, schemaVersion
  /// Drawn with the file: an identity file of another file says nothing.
  case fileStamp
  case previous, current
  /// The upload under way: its last counter, and `sent` or `unknown-outcome`.
  case uploadLast, uploadState
  /// When it was drawn; the sessions that failed since, and of the last one the error, its time and the next attempt's.
  case uploadSince, uploadFailures, uploadError, uploadFailedAt, uploadNext
  /// The counter of the log's row that only keeps it from being given again.
  case watermark
  /// Log rows up to here are sorted into requests.
  case rangesUpTo
  /// The references of what was captured up to here were proved.
  case provedUpTo
  /// What was captured up to here was looked at beside the requests in error: what edits or needs one of them is known. Nil: since then
  /// one of those has come or gone, or a base has changed.
  case errorsUpTo
  /// Drawn anew whenever the log changes otherwise than by being captured into (`noteLogChange`).
  case logGeneration
  case stagedDownload, stagedPosition, stagedRows
  /// How many rows of it came into twins of their tables (`Arrival`); nil: what came is text.
  case arriving
  /// What staging knows of the download that it holds a part of.
  static let ofStaging: [StateName] = [.stagedDownload, .stagedPosition, .stagedRows, .arriving]
  case recoveryReason, recoveryMessage
  /// What the server said of its waiting offers, and how many waited here, when they were sent again last.
  case healAsked
  /// They are in the next upload.
  case healDue
  /// The same of offered deletes that the server holds.
  case heldAsked
  /// The setting under which what was withheld is offered with the next session, and the settings under which it was looked at last.
  case healWanted, healSeen
  /// Offers that the server held when they were taken back, and of which it does not know that yet: request IDs.
  case healWithdrawn
  /// What was accepted without a commit: the last line of `salvor_history` before it.
  case uncommitted
  /// Before-images hold rows that the server has erased for good: they go.
  case imagesDue
  /// The identity file was newer once; until an upload is settled.
  case wentBack
  /// Capture is paused for a migration of the application's own, since when.
  case pausedSince
  /// The SyncConfig came from the server, and its head (groups, parameters).
  case configDelivered, configHead
  /// What the device's tables have beyond that (`KeptAdditions`).
  case added
  /// The flag columns of the tables (`KeptFlags`).
  case flags
  /// Tables of which rows were left out (`IncompleteTables`): their numbers, with commas.
  case incomplete
  /// The same of those whose rows this device's tables take for others (`IncompleteTables.crowded`).
  case crowded
  /// The same of those that do not take rows, and of which schema that is known (`IncompleteTables.refusing`).
  case refusing, refusingSchema
  /// `LeftOutBlobs`.
  case largeBlobs
  /// What an opening was done with that brought the file in line (`OpenedBefore`).
  case opened
}

extension SQLiteConnection {
  func state(_ name: StateName) throws -> Value? {
    try scalar("SELECT value FROM salvor_state WHERE name = ?1", .text(name.rawValue))
  }

  func text(_ name: StateName) throws -> String? { try state(name)?.string }

  func setState(_ name: StateName, _ value: Value?) throws {
    if let value, value != .null {
      try run(
        "INSERT INTO salvor_state (name, value) VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE value IS NOT excluded.value",
        .text(name.rawValue), value)
    } else {
      try run("DELETE FROM salvor_state WHERE name = ?1", .text(name.rawValue))
    }
  }

  func setState(_ name: StateName, _ text: String?) throws { try setState(name, text.map { Value.text($0) }) }

  func identifier<ID: RandomIdentifier>(_ name: StateName, as type: ID.Type = ID.self) throws -> ID? {
    try text(name).flatMap { ID($0) }
  }

  /// The highest counter given so far; the log keeps its highest row for that.
  func lastCounter() throws -> Int64 { try integer("SELECT max(seq) FROM salvor_log") ?? 0 }

  func groupStates(_ groups: [Schema.Group]) throws -> [GroupState] {
    var states: [String: GroupState] = [:]
    for row in try rows("SELECT name, number, id, scope, last_sync, subscriptions, moved FROM salvor_group") {
      guard let name = row[0].string else { continue }
      var state = GroupState(name: name, scopeDigest: row[3].string, lastSync: row[4].integer)
      if let number = row[1].integer, let id = row[2].string.flatMap({ CommitID($0) }) {
        state.cursor = Commit(number: number, id: id)
      }
      state.hasMovedTables = row[6] == 1
      if case .text(let json) = row[5] { state.subscriptions = try ResolvedSubscriptions(JSONValue(parsing: json)) }
      states[name] = state
    }
    return groups.map { states[$0.name] ?? GroupState(name: $0.name) }
  }

  /// - Parameter cameWhole: rows of the group that have no version of their own are as of this cursor.
  func setGroup(_ group: GroupState, cameWhole: Bool) throws {
    try run(
      "INSERT INTO salvor_group (name, number, id, scope, last_sync, whole, subscriptions) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) "
        + "ON CONFLICT (name) DO UPDATE SET number = excluded.number, id = excluded.id, scope = excluded.scope, last_sync = excluded.last_sync, whole = coalesce(excluded.whole, whole), subscriptions = excluded.subscriptions, moved = NULL",
      .text(group.name), group.cursor.map { .integer($0.number) } ?? .null,
      group.cursor.map { .text($0.id.text) } ?? .null,
      group.scopeDigest.map { .text($0) } ?? .null, group.lastSync.map { .integer($0) } ?? .null,
      cameWhole ? group.cursor.map { .integer($0.number) } ?? .null : .null,
      group.subscriptions.isEmpty ? .null : .text(group.subscriptions.json.bytes))
  }

  /// The group was downloaded, at least once.
  func isSynchronized(_ group: String) throws -> Bool {
    try integer("SELECT 1 FROM salvor_group WHERE name = ?1 AND number IS NOT NULL", .text(group)) != nil
  }

  /// The number of the commit at which the group last came whole; of a file from before this was kept, its cursor's.
  func cameWhole(_ group: String) throws -> Int64 {
    try integer("SELECT coalesce(whole, number) FROM salvor_group WHERE name = ?1", .text(group)) ?? 0
  }

  func rememberCommit(_ commit: Commit, at time: Int64) throws {
    try run(
      "INSERT INTO salvor_commit (number, id, at) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING", .integer(commit.number),
      .text(commit.id.text), .integer(time))
  }
}
