import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What the database is asked and told besides its sessions: who the server is, its history, its state, requests and rows.
extension SQLiteClientStore {
  /// Errors: `remote-of-another` where the database belongs to another principal.
  public func remember(server: ServerID, incarnations: [Incarnation], principal: String) throws {
    let context = try opened()
    let connection = context.connection
    let owner = try connection.text(.principal) ?? ""
    guard owner.isEmpty || owner.isSameName(as: principal) else { throw Opening.ofAnother() }
    let new = try context.unknown(incarnations)
    let isKnown = try connection.text(.server) == server.text
    guard !isKnown || !new.isEmpty || !owner.isSameName(as: principal) else { return }
    try connection.transaction {
      try connection.setState(.principal, principal)
      try connection.setState(.server, server.text)
      try context.remember(incarnations)
    }
  }

  /// Asynchronous in name, so that a call on this very type does not find the protocol's default instead.
  public func remember(_ terms: HealTerms, heal: HealMode, retention: Int64) async throws -> Bool {
    let context = try opened()
    let connection = context.connection
    let isMet =
      try connection.integer(
        "SELECT 1 FROM salvor_incarnation WHERE id = ?1 AND met IS NULL", .text(terms.incarnation.text)) == nil
    if !isMet {
      try connection.transaction {
        try connection.run("UPDATE salvor_incarnation SET met = 1 WHERE id = ?1", .text(terms.incarnation.text))
      }
    }
    if let floor = terms.floor { try LossRetention(context: context, floor: floor, retention: retention).forget() }
    if !terms.withdrawn.isEmpty {
      let known = Set(terms.withdrawn)
      try connection.transaction { try connection.setWithdrawn(connection.withdrawn().filter { !known.contains($0) }) }
    }
    let asks = try HeldDeletes(context).ask(terms)
    let wants = try context.wantsWithheld(heal) || asks
    if wants { quiet = nil }
    let waiting = try context.waitingRows()
    // A large lot is sent again when half of it is settled.
    guard terms.waiting < waiting, waiting <= 1000 || terms.waiting <= waiting / 2 else { return wants }
    let asked = "\(terms.incarnation.text) \(terms.settlings): \(terms.waiting) of \(waiting)"
    guard try connection.text(.healAsked) != asked else { return wants }
    try connection.transaction {
      try connection.setState(.healAsked, asked)
      try connection.setState(.healDue, .integer(1))
    }
    quiet = nil
    return true
  }

  public func history() throws -> ClientHistory {
    let context = try opened()
    let connection = context.connection
    return ClientHistory(
      olderSequences: try connection.rows("SELECT sequence FROM salvor_sequence ORDER BY id DESC")
        .compactMap { $0[0].string.flatMap { SequenceID($0) } },
      incarnations: try connection.rows("SELECT id, first_commit FROM salvor_incarnation ORDER BY first_commit")
        .compactMap { row in
          row[0].string.flatMap { IncarnationID($0) }.map { Incarnation(id: $0, firstCommit: row[1].integer ?? 0) }
        },
      commits: try connection.rows("SELECT number, id FROM salvor_commit ORDER BY number DESC").compactMap { row in
        row[1].string.flatMap { CommitID($0) }.map { Commit(number: row[0].integer ?? 0, id: $0) }
      }, tables: context.config.entries.map(\.table))
  }

  public func setRecoveryRequired(_ reason: RecoveryReason?, message: String) throws {
    let connection = try opened().connection
    try connection.transaction {
      try connection.setState(.recoveryReason, reason?.rawValue)
      try connection.setState(.recoveryMessage, reason == nil ? nil : message)
    }
  }

  public func status() throws -> ClientStatus {
    let context = try openedEvenPaused()
    let connection = context.connection
    // Changes are sorted into requests to be counted, and left as they were: asking writes nothing.
    return try connection.rolledBack {
      let (queued, inError) = try outstanding(context)
      var status = ClientStatus(
        state: try state(context), queued: queued, inError: inError,
        displaced: try context.count(in: .displaced), kept: try context.count(in: .kept))
      status.upload = try connection.uploadStatus(now: clock.now())
      status.capturePausedSince = try connection.pausedSince()
      status.lastRefused = try context.lastRefused()
      status.waiting = try context.waitingCount()
      if status.capturePausedSince == nil {
        status.rowsWithoutKey = try context.rowsWithoutKey(in: context.catalog.tables)
      }
      return status
    }
  }

  /// Asynchronous in name, as `endSession`.
  public func queued() async throws -> Int64 {
    let context = try openedEvenPaused()
    guard try changeCount(context) > 0 else { return 0 }
    return try context.connection.rolledBack { try outstanding(context).queued }
  }

  private func changeCount(_ context: StoreContext) throws -> Int64 {
    try context.connection.integer(
      "SELECT count(*) FROM salvor_log WHERE op IN \(StoreContext.changeOperations)") ?? 0
  }

  /// In a transaction that is rolled back.
  private func outstanding(_ context: StoreContext) throws -> (queued: Int64, inError: Int64) {
    try RequestSorting(context).sort()
    let inError = try context.count(in: .refused, .blocked)
    return (try changeCount(context) - context.changesBeyondFirst() - inError, inError)
  }

  func state(_ context: StoreContext) throws -> ClientState {
    let connection = context.connection
    guard let remote: RemoteID = try connection.identifier(.remote) else {
      throw SalvorError(.storageCorrupt, "The database \(path) has no remote ID: restore it from a copy.")
    }
    var state = ClientState(
      remoteID: remote, principal: try connection.text(.principal) ?? "", serverID: try connection.identifier(.server),
      previous: try connection.identifier(.previous), current: try connection.identifier(.current),
      groups: try connection.groupStates(context.config.groups), schemaVersion: context.config.schemaVersion,
      configDigest: context.config.digest, stagedDownload: try connection.text(.stagedDownload),
      stagedPosition: try connection.text(.stagedPosition),
      recoveryRequired: try connection.text(.recoveryReason).flatMap { RecoveryReason(rawValue: $0) },
      recoveryMessage: try connection.text(.recoveryMessage),
      isOlderThanIdentityFile: try connection.state(.wentBack) != nil)
    state.stagedRows = try connection.state(.stagedRows)?.integer
    state.withdrawn = try connection.withdrawn()
    state.serverInitiated = context.schema.serverInitiated
    state.incarnation = try connection.scalar(
      "SELECT id FROM salvor_incarnation WHERE first_commit > 0 ORDER BY first_commit DESC LIMIT 1"
    )?.string.flatMap { IncarnationID($0) }
    return state
  }

  public func requests(in states: Set<RequestState>, after: RequestID?, limit: Int) throws -> [QueuedRequest] {
    let context = try opened()
    return try context.connection.transaction {
      // What is under way stays as it is: the next session looks.
      if uploadPlan == nil { _ = try checkTriggers(context) }
      return try RequestListing(context).list(states, after: after, limit: limit)
    }
  }

  /// In the order of the primary key. Errors: `usage` where the schema has no such table.
  public func rows(of table: String) throws -> [Row] {
    let context = try opened()
    guard let definition = context.schema.table(table) else {
      throw SalvorError(.usage, "The schema has no table \(table).", context: ["table": table])
    }
    return try context.connection.rows(
      "SELECT \(quotedList(definition.columns.map(\.name))) FROM \(quoted(table)) ORDER BY \(quotedList(definition.primaryKey))"
    )
  }

  /// Writes as the application, with triggers and foreign keys on, in one transaction.
  public func write(_ writes: [ApplicationWrite]) throws {
    let context = try opened()
    let connection = context.connection
    try connection.pragma("foreign_keys", "ON")
    connection.triggersEnabled = true
    defer {
      connection.triggersEnabled = false
      _ = try? connection.pragma("foreign_keys", "OFF")
    }
    try connection.transaction {
      for write in writes { try ApplicationWriter(context: context).run(write) }
    }
  }
}

extension StoreContext {
  /// Those of which the device does not know that they began at this commit.
  func unknown(_ incarnations: [Incarnation]) throws -> [Incarnation] {
    if incarnations.isEmpty { return [] }
    let known = Set(try connection.rows("SELECT id, first_commit FROM salvor_incarnation"))
    return incarnations.filter { !known.contains([.text($0.id.text), .integer($0.firstCommit)]) }
  }

  /// What the server tells of its incarnations: all that it has from the first one of these on. Another that began no earlier is not of its
  /// history: it was told before anything was committed, and what this device has of commits from there on is of these.
  func remember(_ incarnations: [Incarnation]) throws {
    guard let first = incarnations.map(\.firstCommit).min() else { return }
    if first > 0 {
      try connection.run(
        "DELETE FROM salvor_incarnation WHERE first_commit >= ?1 AND id NOT IN (\(incarnations.indices.map { "?\($0 + 2)" }.joined(separator: ", ")))",
        [.integer(first)] + incarnations.map { .text($0.id.text) })
    }
    for incarnation in incarnations {
      try connection.run(
        "INSERT INTO salvor_incarnation (id, first_commit) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE SET first_commit = excluded.first_commit",
        .text(incarnation.id.text), .integer(incarnation.firstCommit))
    }
    // Releases before this one kept each without its first commit.
    try connection.run(
      "DELETE FROM salvor_incarnation WHERE first_commit = 0 OR id NOT IN (SELECT id FROM salvor_incarnation ORDER BY first_commit DESC LIMIT ?1)",
      .integer(Int64(Timeline.toldMax)))
  }
}
