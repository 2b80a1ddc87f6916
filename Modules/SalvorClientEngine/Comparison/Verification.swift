import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// What `SalvorClient.verify` found.
public struct VerificationReport: Sendable {
  /// What was found of one table.
  public struct Table: Sendable, Hashable {
    /// The table's name.
    public var name: String
    /// The group that it is synchronized with.
    public var group: String
    /// The rows that this device has from the server.
    public var rows: Int64
    /// The rows that the server has for this device.
    public var serverRows: Int64
    /// Rows with requests that wait or are in error.
    public var dirty: Int64
    /// Rows that differ, the dirty ones among them.
    public var differing: Int64
    /// The digest of the rows that this device has; the server's is the same where none differs.
    public var digest: String
  }

  /// In the order of the schema.
  public var tables: [Table] = []
  /// Rows that differ, one by one.
  public var differences: [RowDifference] = []
  /// What was repaired; nil: nothing was asked to be, or nothing had to be.
  public var repair: RecoveryReport?
  /// After a repair: those that differ all the same, since a row that they reference did not come.
  public var leftOut: [RowDifference] = []
  /// Rows that are larger than this device takes, in words: they are on the server alone.
  public var notices: [String] = []
  /// The synchronization before.
  public var sync = SyncReport()

  /// Rows that differ, are not dirty, and were not repaired.
  public var remaining: Int { repair == nil ? differences.count { !$0.isDirty } : leftOut.count }

  /// - Parameter values: whether values are in it, besides those of keys.
  public func json(values: Bool) -> JSONValue {
    [
      "equal": .bool(remaining == 0),
      "tables": .array(
        tables.map { table in
          [
            "name": .string(table.name), "group": .string(table.group), "rows": .integer(table.rows),
            "serverRows": .integer(table.serverRows), "dirty": .integer(table.dirty),
            "different": .integer(table.differing), "digest": .string(table.digest),
          ]
        }),
      "differences": .array(differences.map { $0.json(values: values) }),
      "repair": repair.map(\.json) ?? .null, "leftOut": .array(leftOut.map { $0.json(values: values) }),
      "notices": .array(notices.map(JSONValue.string)),
    ]
  }
}

/// Compares every row of some tables with the server's, under a session of its own: nothing is sent, and nothing written
/// but what is repaired (docs/architecture/comparison.md).
struct Verification {
  let configuration: ClientConfiguration
  let store: any RecoveringClientStore
  let progress: @Sendable (SyncProgress) -> Void
  var report: VerificationReport

  /// - Parameter names: of the tables; their groups are synchronized.
  mutating func run(_ names: [String], repair: Bool) async throws {
    let session = try await store.beginSession(groups: [])
    do {
      guard session.upload == nil else {
        throw SalvorError(
          .sessionInUse, "An upload is under way whose outcome is not known. Synchronize, then verify again.")
      }
      try await run(names, session.state, repair: repair)
    } catch {
      await store.endSession()
      throw error
    }
    await store.endSession()
  }

  private mutating func run(_ names: [String], _ state: ClientState, repair: Bool) async throws {
    let tables = try await store.history().tables.filter { names.contains($0.name) }
    var digests: [TableDigest] = []
    for table in tables {
      var digest = try await store.digest(of: table.name)
      digest.isFed = true
      digests.append(digest)
    }
    let offer = try await begin(digests, tables, state)
    var questions = Questions(configuration, path: "/v1/sync/\(offer.token)", report.sync, progress)
    let kept = KeptAnswers(store)
    for offered in offer.tables {
      guard let table = tables.first(where: { $0.name == offered.name }) else { continue }
      var comparison = TableComparison(store: store, questions: questions)
      try await comparison.run(
        table.name, columns: table.travelling.map(\.name), serverCount: offered.count
      ) { bytes, _ in try await kept.keep(bytes) }
      questions = comparison.questions
    }
    // What has changed on the server since the synchronization is no difference.
    _ = try await questions.download([]) { bytes, _ in try await kept.keep(bytes) }
    report.sync = questions.report
    let examination = try await examine(kept, repairing: repair ? order(state) : nil)
    report.differences = examination.differences
    (report.repair, report.leftOut) = (examination.repair, examination.leftOut)
    report.notices += examination.notices
    for (table, digest) in zip(tables, digests) {
      report.tables.append(
        VerificationReport.Table(
          name: table.name, group: table.group, rows: digest.count,
          serverRows: offer.tables.first { $0.name == table.name }?.count ?? digest.count,
          dirty: try await store.dirtyRows(of: table.name),
          differing: Int64(report.differences.count { $0.table == table.name }), digest: digest.digest))
    }
  }

  private mutating func examine(_ kept: KeptAnswers, repairing order: RecoveryOrder?) async throws -> Examination {
    guard await kept.referToBlobs else {
      progress(.applying)
      return try await store.examine(repairing: order)
    }
    do {
      var received = false
      try await BlobTransfer(configuration: configuration).fetch(
        counting: &report.sync, received: &received, progress: progress)
      progress(.applying)
      let examination = try await store.examine(repairing: order)
      if examination.repair == nil { try await store.discardStaged() }
      return examination
    } catch {
      try await store.discardStaged()
      throw error
    }
  }

  private mutating func begin(
    _ digests: [TableDigest], _ tables: [Table], _ state: ClientState
  ) async throws -> ComparisonOffer {
    let groups = Set(tables.map(\.group))
    var message = BeginMessage(
      remote: state.remoteID, server: state.serverID, previous: state.previous, current: nil,
      schemaVersion: state.schemaVersion, schemaDigest: state.configDigest,
      groups: state.groups.filter { groups.contains($0.name) }.map { BeginMessage.Group($0) }, upload: .none,
      position: nil, history: nil, compare: digests)
    message.principal = state.owner
    let response: TransportResponse
    do {
      response = try await send(message)
    } catch let error as SalvorError where error.code == .historyNeeded {
      message.history = try await store.beginHistory()
      response = try await send(message)
    }
    var reader = ResponseReader(response, configuration)
    var offer: ComparisonOffer?
    while let event = try await reader.next() {
      if case .control(let line) = event, let compare = line["compare"] { offer = try ComparisonOffer(compare) }
    }
    report.sync.bytesReceived += reader.bytesReceived
    guard let offer else {
      throw SalvorError(.notFound, "The server's storage module cannot compare. Use the storage \"sqlite\" there.")
    }
    return offer
  }

  private mutating func send(_ message: BeginMessage) async throws -> TransportResponse {
    try await configuration.request("POST", "/v1/sync", message.json.bytes + [0x0A], counting: &report.sync)
  }

  private func order(_ state: ClientState) throws -> RecoveryOrder {
    guard let server = state.serverID else {
      throw SalvorError(.failed, "This database has not met its server yet. Synchronize first, then verify.")
    }
    return RecoveryOrder(
      id: hexadecimal(configuration.random.bytes(8)), reason: .operatorRequested, strategy: Self.strategy,
      requests: .keep, rebuild: .nothing, absence: .deleted, starts: [], groups: [], previous: state.previous,
      shared: nil, remoteID: nil, server: server, removedShareMax: nil, keepsBeforeImages: true)
  }

  /// The name of a repair in reports.
  static let strategy = "verify-repair"
}

/// The server's answers. Those that refer to blobs are staged, too: staging says which of them are missing.
private actor KeptAnswers {
  private let store: any RecoveringClientStore
  private(set) var referToBlobs = false

  init(_ store: any RecoveringClientStore) { self.store = store }

  func keep(_ payload: [UInt8]) async throws {
    try await store.keepForRehearsal(payload)
    guard mentionsBlobs(payload) else { return }
    referToBlobs = true
    try await store.stage(StagedChunk(download: "verification", bytes: payload, position: ""))
  }
}

extension SalvorClient {
  /// Synchronizes, and then compares every row that this device has from the server with the server's, by digests that each
  /// side computes from its tables. A row that something altered while Salvor's triggers were away shows as different, too.
  ///
  /// Rows with requests that wait or are in error are *dirty*: they are told where the row under the requests differs, and
  /// never repaired.
  ///
  /// - Parameters:
  ///   - groups: the groups to verify; nil: all that were synchronized.
  ///   - tables: only these tables of them; nil: all.
  ///   - repair: bring the rows that differ to the server's state, in one transaction; what it changes is kept as a backup
  ///     (`backups`), and the report is among `recoveries`.
  /// - Throws: what a synchronization that fails says; `usage` for names that are not there, or that were never synchronized.
  public func verify(
    groups: Set<String>? = nil, tables: Set<String>? = nil, repair: Bool = false,
    progress: @escaping @Sendable (SyncProgress) -> Void = { _ in }
  ) async throws -> VerificationReport {
    let names = try await tablesToVerify(groups, tables)
    let synced = await attemptSync(groups: Set(names.map(\.group)), progress: progress)
    if let error = synced.error { throw error }
    // The synchronization may have renamed, dropped or added tables.
    let (now, notices) = try await followed(names, isNamed: tables != nil, groups)
    let outcome = Outcome()
    let turn = await alone {
      await outcome.set { try await self.verified(now, repair: repair, synced, notices, progress) }
      return SyncReport()
    }
    if let error = turn.error { throw error }
    return try await outcome.get()
  }

  private func tablesToVerify(_ groups: Set<String>?, _ tables: Set<String>?) async throws -> [Table] {
    let state = try await status().state
    let known = try await configuration.store.history().tables
    for group in groups ?? [] where !state.groups.contains(where: { $0.name == group }) {
      throw SalvorError(
        .usage,
        "There is no synchronization group \"\(group)\". The groups are: \(state.groups.map(\.name).joined(separator: ", "))."
      )
    }
    for table in tables ?? [] where !known.contains(where: { $0.name == table }) {
      throw SalvorError(
        .usage,
        "There is no synchronized table \"\(table)\". The tables are: \(known.map(\.name).joined(separator: ", "))."
      )
    }
    if let groups, let tables {
      for table in known where tables.contains(table.name) && !groups.contains(table.group) {
        throw SalvorError(
          .usage,
          "The table \"\(table.name)\" is in the group \"\(table.group)\", which is not among those to verify: \(groups.sorted().joined(separator: ", ")). Name its group, too, or no group."
        )
      }
    }
    let found = known.filter { table in
      (groups?.contains(table.group) ?? true) && (tables?.contains(table.name) ?? true)
        && state.groups.contains { $0.name == table.group && $0.isSynchronized }
    }
    guard !found.isEmpty else {
      throw SalvorError(
        .usage, "Nothing of this was synchronized yet, so there is nothing to compare. Synchronize first.")
    }
    return found
  }

  /// What these tables are called after the synchronization, and what of them is not compared.
  private func followed(
    _ tables: [Table], isNamed: Bool, _ groups: Set<String>?
  ) async throws -> (names: [String], notices: [String]) {
    let known = try await configuration.store.history().tables
    let gone = tables.map(\.name).filter { known.table(formerly: $0) == nil }
    let notices = gone.map { "The server's schema has dropped the table \($0): it is not compared." }
    let names = isNamed ? [] : try await tablesToVerify(groups, nil).map(\.name)
    let asked = tables.compactMap { known.table(formerly: $0.name)?.name }
    let all = names + asked.filter { !names.contains($0) }
    guard !all.isEmpty else {
      throw SalvorError(
        .usage, "\(notices.joined(separator: " ")) There is nothing left to compare. salvor status names the tables.")
    }
    return (all, notices)
  }

  private func verified(
    _ names: [String], repair: Bool, _ synced: SyncReport, _ notices: [String],
    _ progress: @escaping @Sendable (SyncProgress) -> Void
  ) async throws -> VerificationReport {
    let store = try recoveringStore()
    var report = VerificationReport()
    report.notices = notices
    report.sync = synced
    var verification = Verification(configuration: configuration, store: store, progress: progress, report: report)
    try await verification.run(names, repair: repair)
    if verification.report.repair != nil { try await store.prune(keeping: configuration.recovery.backupsKept) }
    return verification.report
  }
}

/// Takes a result out of a call that gives another one.
private actor Outcome {
  private var result: Result<VerificationReport, any Error>?

  func set(_ body: @Sendable () async throws -> VerificationReport) async {
    do { result = .success(try await body()) } catch { result = .failure(error) }
  }

  func get() throws -> VerificationReport {
    guard let result else { throw CancellationError() }
    return try result.get()
  }
}

extension RecoveringClientStore {
  /// Deletes all but the newest backups.
  func prune(keeping count: Int) async throws {
    for backup in try await backups().dropFirst(max(count, 0)) { _ = try await deleteBackup(backup.id) }
  }
}
