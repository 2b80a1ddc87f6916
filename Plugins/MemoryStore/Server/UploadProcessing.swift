import SalvorModel
import SalvorStorage

/// Processes one upload's requests (semantics 7), row by row, on a copy of the tables.
struct UploadProcessing {
  enum Outcome: Sendable, Hashable {
    /// `inConflict`: it was kept as conflict versions, or a policy settled a conflict of it.
    case accepted(inConflict: Bool)
    case refused(RefusalReason, String, status: Int? = nil, blockedBy: RequestID?)
    /// The server holds it, for this parent or for consent; no reason: it is no offer, and its device keeps it.
    case waiting(WaitingReason?, parent: RowName?)

    /// It is not applied.
    var isRefused: Bool { if case .accepted = self { false } else { true } }
    var isWaiting: Bool { if case .waiting = self { true } else { false } }
  }

  let state: ServerState
  let remote: RemoteID
  /// How conflicts are settled, by table.
  let policies: [String: any ConflictPolicy]
  /// Milliseconds since 1970.
  let time: Int64
  let requests: [Request]
  /// What a validator has refused.
  let refusedBefore: [RequestID: Refusal]
  let scope: ScopeCheck
  let constraints: Constraints
  let dependence: Dependence
  var tables: MemoryTables
  /// Rows that accepted requests changed, also those that a later one changed back.
  private(set) var changed: Set<RowName> = []
  private(set) var outcomes: [Int: Outcome] = [:]
  /// Conflicts of accepted requests, kept and settled ones, request by request, without IDs.
  private(set) var kept: [[ConflictVersion]] = []
  /// Counters of changes that met another row than the one they were made on: the sender may hold something else than what
  /// the server does.
  var metAnother: Set<Int64> = []
  /// Counters of deletes of rows that the sender may not see: they delete nothing, and tell nothing.
  private var unseen: Set<Int64> = []
  /// `ServerState.healed`, with what this upload brings back.
  var healed: [RowName: [String: HealedColumn]]
  var claimedDeletes: [RowName: [ClaimedDelete]]
  /// What of the upload's own writes came by offers.
  var healedEntries: [RowName: Set<String>] = [:]
  /// Rows that the server lost and that an ordinary delete found gone: the delete has a commit all the same.
  var gone: Set<RowName> = []
  var healedOffers: Int64 = 0
  var supersededOffers: Int64 = 0
  /// Conflict versions of the offer that is being decided.
  var offered: [ConflictVersion] = []
  /// This start of the server.
  let incarnation: IncarnationID?
  let intake: OfferIntake
  /// `ProcessRequest.isNarrowed`
  private let isNarrowed: Bool
  /// The request being decided.
  private(set) var deciding: Int?
  /// A change of the request being decided is in conflict, and both versions are kept.
  private var isKept = false
  /// Conflicts of the request being decided that policies settled.
  private var settled: [ConflictVersion] = []
  /// While requests are decided that depend on one another: rows whose scope is looked for at the end, each with the request
  /// that wrote it.
  private var postponed: [(request: Int, row: RowName)]?
  private let violationsBefore: Set<Violation>

  init(
    _ requests: [Request], of upload: ProcessRequest, on state: ServerState, policies: [String: any ConflictPolicy],
    time: Int64, incarnation: IncarnationID?, intake: OfferIntake = OfferIntake()
  ) throws {
    self.incarnation = incarnation
    self.intake = intake
    healed = state.healed
    claimedDeletes = state.claimedDeletes
    self.state = state
    self.remote = upload.remote
    isNarrowed = upload.isNarrowed
    self.policies = policies
    self.time = time
    self.requests = requests
    refusedBefore = Dictionary(upload.refused.map { ($0.id, $0) }) { first, _ in first }
    scope = ScopeCheck(schema: state.schema, scope: ReadScope(upload.principal))
    constraints = try Constraints(state.schema, softForeignKeys: true)
    // What the server's rows hold beneath a request, its device did not see.
    dependence = Dependence(requests, on: state.tables, schema: state.schema, countsBases: false)
    tables = state.tables
    violationsBefore = constraints.violations(in: state.tables)
  }

  mutating func run() {
    for (index, request) in requests.enumerated() {
      // Settled before, under whatever remote ID: never applied twice (semantics 5).
      guard let before = state.settlement(of: request) else { continue }
      outcomes[index] =
        before.refusal.map { .refused($0.reason, $0.message, status: $0.status, blockedBy: $0.blockedBy) }
        ?? .accepted(inConflict: false)
      // The sender shows its changes again, on whatever bases it has now.
      metAnother.formUnion(request.changes.map(\.counter))
    }
    apply(dependence.units.map { $0.filter { outcomes[$0] == nil } }.filter { !$0.isEmpty })
  }

  /// Applies a set of units; where it breaks a constraint, its halves one after the other, down to the one to refuse.
  private mutating func apply(_ set: [[Int]]) {
    guard !set.isEmpty else { return }
    var attempt = self
    for unit in set { attempt.decide(unit) }
    let broken = constraints.violations(in: attempt.tables).subtracting(violationsBefore)
    if broken.isEmpty {
      self = attempt
    } else if set.count == 1, set[0].count == 1, let parent = missingParent(of: set[0][0], broken) {
      outcomes[set[0][0]] = .waiting(.parent, parent: parent)
    } else if set.count == 1, let index = set[0].first, isKeptBeside(set[0], broken) {
      keepUnwritable(index)
    } else if set.count == 1 {
      refuse(set[0], for: broken)
    } else {
      apply(Array(set.prefix(set.count / 2)))
      apply(Array(set.dropFirst(set.count / 2)))
    }
  }

  /// Requests that depend on one another stand or fall together: where one is refused, the others are blocked by it. Where
  /// a row's scope comes from one that a later request of the unit makes, it is looked for when all are decided.
  private mutating func decide(_ unit: [Int]) {
    if unit.count == 1 {
      outcomes[unit[0]] = decide(unit[0])
      return
    }
    let before = self
    postponed = []
    for index in unit {
      let outcome = decide(index)
      outcomes[index] = outcome
      guard outcome.isRefused else { continue }
      self = before
      refuse(unit, outcome, of: index)
      return
    }
    let waiting = postponed ?? []
    postponed = nil
    for (index, name) in waiting {
      guard let reason = scopeRefusal(name, over: before.tables[name]) else { continue }
      self = before
      refuse(unit, .refused(reason.0, reason.1, blockedBy: nil), of: index)
      return
    }
  }

  private mutating func refuse(_ unit: [Int], _ outcome: Outcome, of culprit: Int) {
    for index in unit {
      if index == culprit {
        outcomes[index] = outcome
      } else if case .waiting(let reason, let parent) = outcome {
        outcomes[index] = mayWait(requests[index]) ? .waiting(reason, parent: parent) : .waiting(nil, parent: nil)
      } else if let reason = purged(requests[index]) {
        outcomes[index] = .refused(reason.0, reason.1, blockedBy: nil)
      } else {
        outcomes[index] = .refused(.blocked, Self.blockedMessage, blockedBy: requests[culprit].id)
      }
    }
  }

  /// A unit that breaks constraints by itself: refused is the last of its requests that changed a row which breaks one; of
  /// several such requests the first.
  private mutating func refuse(_ unit: [Int], for broken: Set<Violation>) {
    let reasons = broken.map { self.reason(for: $0, of: unit) }
    let rank = reasons.map(\.rank).min() ?? 0
    if let first = reasons.filter({ $0.rank == rank }).min(by: { $0.culprit < $1.culprit }) {
      refuse(unit, .refused(first.reason.0, first.reason.1, blockedBy: nil), of: first.culprit)
    }
  }

  private static let blockedMessage = "It depends on a request that was refused. Settle that one first."

  /// Decides one request and writes its rows where it is accepted.
  private mutating func decide(_ index: Int) -> Outcome {
    let request = requests[index]
    if intake.purpose != .upload, let outcome = decideHeld(index) { return outcome }
    if dependence.direct[index].contains(where: { outcomes[$0]?.isRefused == true }), let reason = purged(request) {
      return .refused(reason.0, reason.1, blockedBy: nil)
    }
    if let refused = dependence.direct[index].sorted().first(where: { outcomes[$0]?.isRefused == true }) {
      if case .waiting(let reason, let parent)? = outcomes[refused] {
        guard mayWait(request), let reason else { return .waiting(nil, parent: nil) }
        let missing = missingParent(of: request)
        let own = wait(of: index) ?? (missing == nil ? reason : .parent)
        return .waiting(own, parent: own == .parent ? missing ?? parent : nil)
      }
      return .refused(.blocked, Self.blockedMessage, blockedBy: requests[refused].id)
    }
    if let refusal = refusedBefore[request.id] {
      return .refused(refusal.reason, refusal.message, status: refusal.status, blockedBy: nil)
    }
    let before = self
    isKept = false
    settled = []
    offered = []
    deciding = index
    let wait = wait(of: index)
    for change in request.changes {
      if let (reason, message) = apply(change) {
        takeBack(before)
        if reason == .missingParent {
          if let wait { return waits(request, wait) }
          if mayWait(request), let parent = missingParent(of: request) { return .waiting(.parent, parent: parent) }
        }
        return .refused(reason, message, blockedBy: nil)
      }
      noteWrite(change)
    }
    // What would change nothing has nothing to wait for.
    if let wait, healedOffers > before.healedOffers || !offered.isEmpty {
      takeBack(before)
      offered = []
      return waits(request, wait)
    }
    if isKept {
      // A request stands or falls as a whole: none of its rows is written, each is kept beside the server's.
      takeBack(before)
      kept.append(request.changes.compactMap { conflictVersion($0, of: request.id) })
    } else {
      changed.formUnion(request.rows.filter { tables[$0] != before.tables[$0] })
      if !settled.isEmpty || !offered.isEmpty { kept.append(offered + settled) }
    }
    return .accepted(inConflict: isKept || !settled.isEmpty || !offered.isEmpty)
  }

  /// Of an offer that is kept beside its row.
  mutating func begin(_ index: Int) {
    deciding = index
    offered = []
  }

  mutating func end(_ index: Int) {
    if !offered.isEmpty { kept.append(offered) }
    outcomes[index] = .accepted(inConflict: !offered.isEmpty)
  }

  /// It is kept as conflict versions for a person.
  func isKept(_ request: RequestID) -> Bool {
    kept.contains { $0.contains { $0.request == request && $0.settlement == nil } }
  }

  private mutating func takeBack(_ before: UploadProcessing) {
    tables = before.tables
    healed = before.healed
    claimedDeletes = before.claimedDeletes
    healedEntries = before.healedEntries
    gone = before.gone
    healedOffers = before.healedOffers
    supersededOffers = before.supersededOffers
  }

  typealias Reason = (RefusalReason, String)

  /// It is refused for a purged row: its device erases what it has of that, whatever else holds the request back.
  private func purged(_ request: Request) -> Reason? {
    guard refusedBefore[request.id] == nil else { return nil }
    return request.changes.lazy.compactMap { refusal(ofContent: $0) }.first { $0.0 == .purged }
  }

  private mutating func apply(_ change: Change) -> Reason? {
    if let reason = refusal(ofContent: change) { return reason }
    guard let table = state.schema.table(change.row.table) else { return nil }
    if let offer = change.offer, change.madeUpon == nil { return apply(change, offer, table) }
    switch change.operation {
    case .insert: return insert(change, table)
    case .update: return update(change, table)
    case .delete: return delete(change, table)
    }
  }

  /// What speaks against a change whatever is in the tables.
  private func refusal(ofContent change: Change) -> Reason? {
    guard let table = state.schema.table(change.row.table), table.maintained != .client else {
      return (.unknownTable, "The server has no synchronized table \(change.row.table). Check the schema.")
    }
    if table.maintained == .server {
      return (.serverMaintained, "\(table.name) is maintained by the server. Withdraw the change.")
    }
    for column in change.columns {
      guard let found = table.travelling.first(where: { $0.name == column.name }) else {
        return (.unknownColumn, "The server's table \(table.name) has no column \(column.name). Check the schema.")
      }
      if !found.type.stores(column.new) {
        return (.notStorable, "\(table.name).\(column.name) stores \(found.type.rawValue) only. Correct the value.")
      }
    }
    if change.operation != .delete, state.purged.contains(change.row) { return (.purged, Purged.message(table.name)) }
    return nil
  }

  private mutating func insert(_ change: Change, _ table: Table) -> Reason? {
    guard let present = tables[change.row] else { return write(change, over: nil, table) }
    if !isInside(present, change.row, table) { return outOfScope(table) }
    if change.columns.allSatisfy({ table.value($0.name, of: present) == $0.new }) {
      // A whole row that the server has just so is what the sender holds, and sees unless its subscriptions narrow that.
      if change.columns.count < table.travelling.count || isNarrowed { metAnother.insert(change.counter) }
      return nil
    }
    metAnother.insert(change.counter)
    if table.sameKey == .refuse {
      return (.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
    }
    // The same key is the same thing: merged like an update of the columns that the insert sets.
    var merging = change
    merging.columns = change.columns.filter { isSet($0.name, $0.new, table) }
    let isInConflict = merging.columns.contains { column in
      let value = table.value(column.name, of: present)
      return value != column.new && isSet(column.name, value, table)
    }
    return isInConflict
      ? settleConflict(merging, over: present, table) : write(merging, over: present, table)
  }

  private func isSet(_ name: String, _ value: Value, _ table: Table) -> Bool {
    table.travelling.first { $0.name == name }?.isSet(value) ?? false
  }

  private mutating func update(_ change: Change, _ table: Table) -> Reason? {
    // Whether a row is there that the sender could not see is not told: the answer is that of a row that is not.
    guard let present = tables[change.row], isInside(present, change.row, table) else {
      return tables[change.row] != nil && hasLeft(change) ? outOfScope(table) : rowDeleted(table)
    }
    let meetsNewer = isNewer(change)
    if meetsNewer { metAnother.insert(change.counter) }
    let isInConflict =
      meetsNewer
      && change.columns.contains { column in
        let value = table.value(column.name, of: present)
        return value != column.old && value != column.new && !hasSeen(change, column.name)
      }
    return isInConflict
      ? settleConflict(change, over: present, table) : write(change, over: present, table)
  }

  private mutating func delete(_ change: Change, _ table: Table) -> Reason? {
    guard let present = tables[change.row], isInside(present, change.row, table) else {
      let isThere = tables[change.row] != nil
      if hasLeft(change) || !scope.isLimited(table) { return isThere ? outOfScope(table) : nil }
      if change.made >= state.trimmed { return rowDeleted(table) }
      // Nobody can say what the sender saw then.
      unseen.insert(change.counter)
      return nil
    }
    guard isNewer(change) else { return write(change, over: present, table) }
    metAnother.insert(change.counter)
    return settleConflict(change, over: present, table)
  }

  /// Of a row that the sender cannot see now: he could since the change was made, or has written it by this very upload.
  func hasLeft(_ change: Change) -> Bool {
    guard let table = state.schema.table(change.row.table) else { return false }
    if tables[change.row] != state.tables[change.row] { return true }
    return state.commits.contains { commit in
      guard commit.commit.number >= change.made, let then = commit.tables, let row = then[change.row] else {
        return false
      }
      return scope.finding(row, of: table, in: then) == .inside
    }
  }

  /// The row is newer than the version the change was made on, not counting this remote's own requests.
  func isNewer(_ change: Change) -> Bool {
    // A row that this very upload made is no one else's, whatever was there before.
    if state.tables[change.row] == nil && tables[change.row] != nil { return false }
    // Older than what is kept: nobody can say, so the values decide.
    if change.made < state.trimmed { return true }
    return state.newestForeignCommit(of: change.row, besides: remote) > change.made
  }

  /// The table's policy settles a conflict.
  mutating func settleConflict(_ change: Change, over present: Row, _ table: Table) -> Reason? {
    guard let policy = policies[table.name], let deciding else {
      return (.conflictPolicy, "\(table.name) has no conflict policy. Tell the server's operator.")
    }
    let conflict = Conflict(
      table: table, key: change.row.key, operation: change.operation, columns: conflictColumns(change),
      server: named(present, of: table), request: requests[deciding].id, remote: remote,
      principal: scope.scope.principal.name,
      time: time, made: change.made)
    switch policy.answer(in: table, { conflict }) {
    case .failed(let message): return (.conflictPolicy, message)
    case .settled(.client):
      note(change, of: requests[deciding].id, by: table.conflicts, becoming: change.applied(to: present, of: table))
      return write(change, over: present, table)
    case .settled(.server):
      return (
        .conflict, "The row of \(table.name) was changed on the server meanwhile. Look at it and change it again."
      )
    case .settled(.both):
      isKept = true
      return nil
    case .settled(.merged(let values)):
      var row = present
      for value in values { if let place = table.columnIndex(value.name) { row[place] = value.value } }
      note(change, of: requests[deciding].id, by: table.conflicts, becoming: row)
      return put(row, at: change.row, over: present)
    }
  }

  /// No value is overwritten in silence: what a policy settles is noted, before the row is written.
  mutating func note(_ change: Change, of request: RequestID, by policy: String, becoming row: Row?) {
    guard var version = conflictVersion(change, of: request), let table = state.schema.table(change.row.table) else {
      return
    }
    version.settlement = ConflictVersion.Settlement(policy: policy, row: row.map { named($0, of: table) })
    settled.append(version)
  }

  private func conflictColumns(_ change: Change) -> [ConflictColumn] {
    guard change.operation != .delete else { return [] }
    let isUpdate = change.operation == .update
    return change.columns.map { ConflictColumn($0.name, old: isUpdate ? .some($0.old) : .none, new: $0.new) }
  }

  private func named(_ row: Row, of table: Table) -> [NamedValue] {
    zip(table.travelling, table.travelling(row)).map { NamedValue($0.name, $1) }
  }

  func conflictVersion(_ change: Change, of request: RequestID) -> ConflictVersion? {
    guard let table = state.schema.table(change.row.table) else { return nil }
    var server = ConflictVersion.ServerSide(row: tables[change.row].map { named($0, of: table) })
    if let write = state.newestForeignWrite(
      of: change.row, besides: remote, after: change.offer?.version.parting ?? change.made)
    {
      server.commit = write.commit.number
      server.time = write.time
      server.remote = write.remote
      server.principal = write.remote.flatMap { state.remotes[$0]?.record.principal }
    }
    return ConflictVersion(
      id: 0, first: 0, table: table.name, key: change.row.key, request: request,
      client: ConflictVersion.ClientSide(
        remote: remote, principal: scope.scope.principal.name, time: time, made: change.made,
        operation: change.operation,
        columns: conflictColumns(change), offer: change.offer?.version),
      server: server)
  }

  private mutating func write(_ change: Change, over before: Row?, _ table: Table) -> Reason? {
    put(change.applied(to: before, of: table), at: change.row, over: before)
  }

  mutating func put(_ row: Row?, at name: RowName, over before: Row?) -> Reason? {
    let tablesBefore = tables
    tables[name] = row
    return scopeRefusal(name, over: before) ?? leadRefusal(name, since: tablesBefore)
  }

  /// A write never brings its writer into a scope that he was not in before it.
  func leadRefusal(_ name: RowName, since before: MemoryTables) -> Reason? {
    guard let table = state.schema.table(name.table) else { return nil }
    var isBrought = false
    for shown in state.schema.synchronized {
      for case .via(table.name, let target) in shown.scopeColumns.map(\.source) {
        let brought = before.rows(of: shown.name).values.contains { row in
          scope.finding(row, of: shown, in: before) != .inside && scope.finding(row, of: shown, in: tables) == .inside
        }
        guard brought else { continue }
        if table.references.contains(where: { $0.column == target && $0.table == shown.name }) {
          return missingParent(table)
        }
        isBrought = true
      }
    }
    return isBrought ? outOfScope(table) : nil
  }

  /// What speaks against a row that was written.
  mutating func scopeRefusal(_ name: RowName, over before: Row?) -> Reason? {
    guard let row = tables[name], let table = state.schema.table(name.table) else { return nil }
    switch scope.finding(row, of: table, in: tables) {
    case .inside: return nil
    case .outside: return before != nil && table.handover ? nil : outOfScope(table)
    // As if it were not there.
    case .parentOutside: return before != nil && table.handover ? nil : missingParent(table)
    case .parentMissing:
      guard postponed != nil, let deciding else { return missingParent(table) }
      postponed?.append((deciding, name))
      return nil
    }
  }

  func isInside(_ row: Row, _ name: RowName, _ table: Table) -> Bool {
    scope.finding(row, of: table, in: tables) == .inside || postponed?.contains { $0.row == name } == true
  }

  func rowDeleted(_ table: Table) -> Reason {
    (.rowDeleted, "The row of \(table.name) was deleted on the server, or is not within your scope.")
  }

  func outOfScope(_ table: Table) -> Reason {
    (.outOfScope, "The row of \(table.name) is outside of what you may write. Withdraw the change.")
  }

  func missingParent(_ table: Table) -> Reason {
    (
      .missingParent,
      "A row that the row of \(table.name) references is not on the server. Insert it, or change the reference."
    )
  }

  /// What a constraint that a unit breaks is to its client, and which request is to blame. The lowest rank counts.
  private func reason(for violation: Violation, of unit: [Int]) -> (rank: Int, reason: Reason, culprit: Int) {
    func last(_ row: RowName, _ isMeant: (Change) -> Bool = { _ in true }) -> Int? {
      unit.last { requests[$0].changes.contains { $0.row == row && isMeant($0) } }
    }
    let end = unit[unit.count - 1]
    switch violation {
    case .notNull(let row, _), .check(let row, _):
      return (3, (.constraint, "\(violation.table): \(violation.summary). Correct the row."), last(row) ?? end)
    case .unique(let one, let other, _):
      let culprit = [last(one), last(other)].compactMap(\.self).max() ?? end
      return (3, (.constraint, "\(violation.table): \(violation.summary). Correct the row."), culprit)
    case .missingParent(let child, let reference):
      if last(child, { $0.operation == .insert || $0.column(reference.column) != nil }) != nil {
        let reason = state.schema.table(child.table).map(missingParent)
        return (1, reason ?? (.missingParent, violation.summary), last(child) ?? end)
      }
      let value = state.schema.table(child.table).flatMap { table in
        tables[child].map { table.value(reference.column, of: $0) }
      }
      let culprit = last(RowName(table: reference.table, key: [value ?? .null])) ?? end
      if reference.onDelete == .cascade || reference.onDelete == .setNull {
        // It would take rows along that the client did not see.
        return (
          2, (.conflict, "Rows of \(child.table) that the client did not see reference the deleted row."), culprit
        )
      }
      return (3, (.constraint, "Rows of \(child.table) still reference the deleted row. Delete them first."), culprit)
    }
  }

  /// The rows of a refused request as they are now, as far as the sender may read them.
  func serverRows(of request: Request, _ budget: inout ServerRowBudget) -> [ServerRow] {
    request.changes.compactMap { change in
      guard let table = state.schema.table(change.row.table), table.maintained != .client,
        let row = tables[change.row], scope.finding(row, of: table, in: tables) == .inside
      else { return nil }
      let values = table.travelling.map { NamedValue($0.name, table.value($0.name, of: row)) }
      return budget.takes(values) ? ServerRow(counter: change.counter, values: values) : nil
    }
  }

  /// The rows where the server does not hold exactly the client's base plus what it sent, or that the client may no
  /// longer read: they must be fed although this remote wrote them.
  var touched: Set<RowName> {
    var expected = state.tables
    var names: Set<RowName> = []
    for (index, request) in requests.enumerated() where outcomes[index]?.isRefused == false {
      for change in request.changes where !unseen.contains(change.counter) {
        guard let table = state.schema.table(change.row.table) else { continue }
        expected[change.row] = change.applied(to: expected[change.row], of: table)
        if metAnother.contains(change.counter) { names.insert(change.row) }
      }
    }
    for request in requests {
      for name in request.rows {
        guard let table = state.schema.table(name.table) else { continue }
        if expected[name] != tables[name] { names.insert(name) }
        if let row = tables[name], state.tables[name] != row, scope.finding(row, of: table, in: tables) != .inside {
          names.insert(name)
        }
      }
    }
    return names.filter { state.schema.table($0.table)?.maintained != .client }
  }
}
