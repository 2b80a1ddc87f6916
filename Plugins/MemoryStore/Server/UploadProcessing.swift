import SalvorModel
import SalvorStorage

/// Processes one upload's requests (semantics 7), row by row, on a copy of the tables.
struct UploadProcessing {
  enum Outcome: Sendable, Hashable {
    /// `kept`: a part of it went into a conflict version.
    case accepted(kept: Bool)
    case refused(RefusalReason, String, status: Int? = nil, blockedBy: RequestID?)

    var isRefused: Bool { if case .refused = self { true } else { false } }
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
  private(set) var tables: MemoryTables
  private(set) var outcomes: [Int: Outcome] = [:]
  /// What is kept beside the server's rows, request by request, without IDs.
  private(set) var kept: [[ConflictVersion]] = []
  /// Counters of changes that met another row than the one they were made on: the sender may hold something else than what
  /// the server does.
  private var metAnother: Set<Int64> = []
  /// `ProcessRequest.isNarrowed`
  private let isNarrowed: Bool
  /// The request being decided.
  private var deciding: RequestID?
  /// A change of the request being decided is in conflict, and both versions are kept.
  private var isKept = false
  private let violationsBefore: Set<Violation>

  init(
    _ requests: [Request], of upload: ProcessRequest, on state: ServerState, policies: [String: any ConflictPolicy],
    time: Int64
  ) throws {
    self.state = state
    self.remote = upload.remote
    isNarrowed = upload.isNarrowed
    self.policies = policies
    self.time = time
    self.requests = requests
    refusedBefore = Dictionary(upload.refused.map { ($0.id, $0) }) { first, _ in first }
    scope = ScopeCheck(schema: state.schema, scope: ReadScope(upload.principal))
    constraints = try Constraints(state.schema, softForeignKeys: true)
    dependence = Dependence(requests, on: state.tables, schema: state.schema)
    tables = state.tables
    violationsBefore = constraints.violations(in: state.tables)
  }

  mutating func run() {
    for (index, request) in requests.enumerated() {
      // Settled before, under whatever remote ID: never applied twice (semantics 5).
      guard let before = state.settled[ServerState.Settled(request)] else { continue }
      outcomes[index] =
        before.refusal.map { .refused($0.reason, $0.message, status: $0.status, blockedBy: $0.blockedBy) }
        ?? .accepted(kept: false)
      // The sender shows its changes again, on whatever bases it has now.
      metAnother.formUnion(request.changes.map(\.counter))
    }
    apply(dependence.order.filter { outcomes[$0] == nil })
  }

  /// Applies a set of requests; where it breaks a constraint, its halves one after the other, down to the one to refuse.
  private mutating func apply(_ set: [Int]) {
    guard !set.isEmpty else { return }
    var attempt = self
    for index in set { attempt.outcomes[index] = attempt.decide(index) }
    let broken = constraints.violations(in: attempt.tables).subtracting(violationsBefore)
    if broken.isEmpty {
      self = attempt
    } else if set.count == 1 {
      outcomes[set[0]] = refusal(for: broken, of: requests[set[0]])
    } else {
      apply(Array(set.prefix(set.count / 2)))
      apply(Array(set.dropFirst(set.count / 2)))
    }
  }

  /// Decides one request and writes its rows where it is accepted.
  private mutating func decide(_ index: Int) -> Outcome {
    if let refused = dependence.direct[index].sorted().first(where: { outcomes[$0]?.isRefused == true }) {
      return .refused(
        .blocked, "It depends on a request that was refused. Settle that one first.", blockedBy: requests[refused].id)
    }
    let request = requests[index]
    if let refusal = refusedBefore[request.id] {
      return .refused(refusal.reason, refusal.message, status: refusal.status, blockedBy: nil)
    }
    let tablesBefore = tables
    isKept = false
    deciding = request.id
    for change in request.changes {
      if let (reason, message) = apply(change) {
        tables = tablesBefore
        return .refused(reason, message, blockedBy: nil)
      }
    }
    if isKept {
      // A request stands or falls as a whole: none of its rows is written, each is kept beside the server's.
      tables = tablesBefore
      kept.append(request.changes.compactMap { conflictVersion($0, of: request.id) })
    }
    return .accepted(kept: isKept)
  }

  private typealias Reason = (RefusalReason, String)

  private mutating func apply(_ change: Change) -> Reason? {
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
    switch change.operation {
    case .insert: return insert(change, table)
    case .update: return update(change, table)
    case .delete: return delete(change, table)
    }
  }

  private mutating func insert(_ change: Change, _ table: Table) -> Reason? {
    guard let present = tables[change.row] else { return write(change, over: nil, table) }
    if scope.finding(present, of: table, in: tables) != .inside { return outOfScope(table) }
    if change.columns.allSatisfy({ table.value($0.name, of: present) == $0.new }) {
      // A whole row that the server has just so is what the sender holds, and sees unless its subscriptions narrow that.
      if change.columns.count < table.travelling.count || isNarrowed { metAnother.insert(change.counter) }
      return nil
    }
    metAnother.insert(change.counter)
    if table.sameKey == .refuse {
      return (.keyExists, "\(table.name) has another row with this key. Give the new row another key.")
    }
    // The same key is the same thing: merged like an update of every column.
    return settleConflict(change, over: present, table)
  }

  private mutating func update(_ change: Change, _ table: Table) -> Reason? {
    guard let present = tables[change.row] else {
      return (.rowDeleted, "The row of \(table.name) was deleted on the server. Withdraw the change or insert the row.")
    }
    if scope.finding(present, of: table, in: tables) != .inside { return outOfScope(table) }
    let meetsNewer = isNewer(change)
    if meetsNewer { metAnother.insert(change.counter) }
    let isInConflict =
      meetsNewer
      && change.columns.contains { column in
        let value = table.value(column.name, of: present)
        return value != column.old && value != column.new
      }
    return isInConflict
      ? settleConflict(change, over: present, table) : write(change, over: present, table)
  }

  private mutating func delete(_ change: Change, _ table: Table) -> Reason? {
    guard let present = tables[change.row] else { return nil }
    if scope.finding(present, of: table, in: tables) != .inside { return outOfScope(table) }
    guard isNewer(change) else { return write(change, over: present, table) }
    metAnother.insert(change.counter)
    return settleConflict(change, over: present, table)
  }

  /// The row is newer than the version the change was made on, not counting this remote's own requests.
  private func isNewer(_ change: Change) -> Bool {
    // A row that this very upload made is no one else's, whatever was there before.
    if state.tables[change.row] == nil && tables[change.row] != nil { return false }
    // Older than what is kept: nobody can say, so the values decide.
    if change.made < state.trimmed { return true }
    return state.newestForeignCommit(of: change.row, besides: remote) > change.made
  }

  /// The table's policy settles a conflict.
  private mutating func settleConflict(_ change: Change, over present: Row, _ table: Table) -> Reason? {
    guard let policy = policies[table.name], let deciding else {
      return (.conflictPolicy, "\(table.name) has no conflict policy. Tell the server's operator.")
    }
    let conflict = Conflict(
      table: table, key: change.row.key, operation: change.operation, columns: conflictColumns(change),
      server: named(present, of: table), request: deciding, remote: remote, principal: scope.scope.principal.name,
      time: time, made: change.made)
    switch policy.answer(in: table, { conflict }) {
    case .failed(let message): return (.conflictPolicy, message)
    case .settled(.client): return write(change, over: present, table)
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
      return put(row, at: change.row, over: present, table)
    }
  }

  private func conflictColumns(_ change: Change) -> [ConflictColumn] {
    guard change.operation != .delete else { return [] }
    let isUpdate = change.operation == .update
    return change.columns.map { ConflictColumn($0.name, old: isUpdate ? .some($0.old) : .none, new: $0.new) }
  }

  private func named(_ row: Row, of table: Table) -> [NamedValue] {
    zip(table.travelling, table.travelling(row)).map { NamedValue($0.name, $1) }
  }

  private func conflictVersion(_ change: Change, of request: RequestID) -> ConflictVersion? {
    guard let table = state.schema.table(change.row.table) else { return nil }
    var server = ConflictVersion.ServerSide(row: tables[change.row].map { named($0, of: table) })
    if let write = state.newestForeignWrite(of: change.row, besides: remote, after: change.made) {
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
        columns: conflictColumns(change)),
      server: server)
  }

  private mutating func write(_ change: Change, over before: Row?, _ table: Table) -> Reason? {
    put(change.applied(to: before, of: table), at: change.row, over: before, table)
  }

  private mutating func put(_ row: Row?, at name: RowName, over before: Row?, _ table: Table) -> Reason? {
    tables[name] = row
    guard let row else { return nil }
    switch scope.finding(row, of: table, in: tables) {
    case .inside: return nil
    case .outside: return before != nil && table.handover ? nil : outOfScope(table)
    case .parentMissing: return missingParent(table)
    }
  }

  private func outOfScope(_ table: Table) -> Reason {
    (.outOfScope, "The row of \(table.name) is outside of what you may write. Withdraw the change.")
  }

  private func missingParent(_ table: Table) -> Reason {
    (
      .missingParent,
      "A row that the row of \(table.name) references is not on the server. Insert it, or change the reference."
    )
  }

  /// Why a request that breaks constraints on its own is refused.
  private func refusal(for broken: Set<Violation>, of request: Request) -> Outcome {
    let rows = Dictionary(grouping: request.changes, by: \.row)
    var reasons: [(rank: Int, reason: Reason)] = []
    for violation in broken {
      guard case .missingParent(let child, let reference) = violation else {
        reasons.append((3, (.constraint, "\(violation.table): \(violation.summary). Correct the row.")))
        continue
      }
      if rows[child]?.contains(where: { $0.operation == .insert || $0.column(reference.column) != nil }) == true {
        reasons.append((1, (.missingParent, "\(violation.table): \(violation.summary). Insert it first.")))
      } else if reference.onDelete == .cascade || reference.onDelete == .setNull {
        // It would take rows along that the client did not see.
        reasons.append(
          (2, (.conflict, "Rows of \(child.table) that the client did not see reference the deleted row.")))
      } else {
        reasons.append((3, (.constraint, "Rows of \(child.table) still reference the deleted row. Delete them first.")))
      }
    }
    let (reason, message) = reasons.min { $0.rank < $1.rank }?.reason ?? (.constraint, "A constraint is broken.")
    return .refused(reason, message, blockedBy: nil)
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
      for change in request.changes {
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
