import SalvorModel
import SalvorStorage
import SalvorWire

/// What a recovery's answers bring, and what its order says besides.
struct Recovered: Sendable {
  var requests = RecoveryOrder.Requests.keep
  var rebuild = RecoveryOrder.Rebuild.nothing
  var absence = RecoveryOrder.Absence.lost
  /// The newest commit that both have made; nil: nothing is shared.
  var shared: Int64?
  /// The server's newest one; nil: the next after that.
  var head: Int64?
  var id = "recovery 1"
  var previous: SequenceID?
  var remoteID: RemoteID?
  var server = ClientBench.server
  var config: SyncConfig?
  var removedShareMax: Double?
  var keepsBeforeImages = true
  var heal = HealMode.off
  /// The server's, with commits after the shared one.
  var incarnations: [Incarnation] = []
  /// Groups that were compared or came whole: none of their rows is known to be shared.
  var compared: Set<String> = []

  var full: [String] = []
  /// The server's rows, as it answers when asked for keys.
  var rows: [(String, Row)] = []
  /// The commit that the rows came with in the feed; nil: they were asked for.
  var version: Int64?
  var departed: [(String, Departure, Key)] = []
}

extension ClientBench {
  /// The store as one that recovers.
  var recovering: any RecoveringClientStore {
    get throws { try expectSome(store as? any RecoveringClientStore, "the store as a RecoveringClientStore") }
  }

  /// The server's history goes on: its head is its next commit, after the shared one where the others are lost.
  mutating func order(_ recovered: Recovered) -> RecoveryOrder {
    let isSameHistory = recovered.absence == .deleted
    for number in commits.keys where number > recovered.shared ?? 0 && !isSameHistory { forget(number) }
    let shared = recovered.shared.flatMap { commits[$0] }
    let head = nextCommit(isSameHistory ? nil : recovered.head ?? (recovered.shared ?? 0) + 1)
    return RecoveryOrder(
      id: recovered.id, reason: recovered.absence == .lost ? .serverRestored : .historyTrimmed, strategy: "a strategy",
      requests: recovered.requests, rebuild: recovered.rebuild, absence: recovered.absence,
      starts: schema.groups.map {
        GroupStart(name: $0.name, commit: recovered.compared.contains($0.name) ? nil : shared)
      },
      groups: schema.groups.map { GroupState(name: $0.name, cursor: head, scopeDigest: "all") },
      previous: recovered.previous, shared: recovered.shared, remoteID: recovered.remoteID, server: recovered.server,
      config: recovered.config, removedShareMax: recovered.removedShareMax,
      keepsBeforeImages: recovered.keepsBeforeImages, heal: recovered.heal, incarnations: recovered.incarnations)
  }

  static let server = ServerID(unchecked: String(repeating: "5", count: 32))

  /// The payload that a recovery's answers make.
  func payload(_ recovered: Recovered, head: Int64) throws -> [UInt8] {
    try payload(full: recovered.full, rows: recovered.rows, version: recovered.version)
      + payload(departed: recovered.departed, version: head)
  }

  /// Stages what the answers bring and recovers.
  @discardableResult
  mutating func recover(_ recovered: Recovered) async throws -> RecoveryReport {
    let order = order(recovered)
    let bytes = try payload(recovered, head: commit)
    if !bytes.isEmpty { try await store.stage(StagedChunk(download: order.id, bytes: bytes, position: "p")) }
    return try await recovering.recover(order)
  }

  /// The archive, sorted, one line for each change: state, reason, what was done, and the values before and after.
  func expectArchive(_ lines: [String], file: String = #fileID, line: Int = #line) async throws {
    let found = try await archived().map { entry in
      "\(entry.state.rawValue) \(entry.reason ?? "-") \(entry.operation.rawValue) \(entry.table) \(entry.key) "
        + "\(Self.text(entry.before)) > \(Self.text(entry.after))"
    }
    try expectEqual(found.sorted(), lines.sorted(), "the archive", file: file, line: line)
  }

  /// A recovery's lines: fate, what was done, and the values before and after.
  func expectItems(
    _ lines: [String], of id: String = "recovery 1", file: String = #fileID, line: Int = #line
  ) async throws {
    let found = try await recovering.recoveryItems(id, after: 0, limit: 1000).map { item in
      "\(item.fate.rawValue) \(item.operation?.rawValue ?? "-") \(item.table) \(item.key)"
    }
    try expectEqual(found.sorted(), lines.sorted(), "the recovery's lines", file: file, line: line)
  }

  /// What waits, without the numbers, and whose request it is.
  func waiting() async throws -> [RequestID: [SalvorModel.Operation]] {
    Dictionary(grouping: try await queued(), by: \.id).mapValues { $0.map(\.operation) }
  }

  private static func text(_ values: [NamedValue]) -> String {
    "[" + values.map { "\($0.name)=\($0.value)" }.joined(separator: ", ") + "]"
  }
}
