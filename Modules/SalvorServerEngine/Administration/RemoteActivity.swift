import SalvorModel
import SalvorStorage
import SalvorWire

/// What this start of the server has seen of each remote: in memory, since a sync with nothing to upload writes nothing. At
/// most `remotesMax` are remembered; the longest unseen ones go first.
final class RemoteActivity: Sendable {
  struct Entry: Sendable {
    /// Milliseconds since 1970.
    var lastSeen: Int64
    var lastBegin: Int64?
    /// When the last page of its last download was made.
    var lastDownload: Int64?
    var lastRecovery: (reason: String?, strategy: String?, time: Int64)?
    var recoveries: Int64 = 0
    var lastError: (code: String, reason: String?, time: Int64)?
    /// The oldest cursor of its groups, at its last begin or after the last download.
    var cursor: Int64?
    var schemaVersion: Int64?
    /// Of Salvor, on the device.
    var release: String?
    var groups: [String] = []
    /// Of those of `groups` that have one.
    var cursors: [String: Int64] = [:]
    /// With the lists of its credential.
    var principal: Principal?
    var subscriptions: ResolvedSubscriptions?
    var refused: Int64 = 0
    var refusedByReason: [String: Int64] = [:]
    var accepted: Int64 = 0
  }

  private static let remotesMax = 100_000
  private let entries = Mutex<[RemoteID: Entry]>([:])
  private let clock: any Clock

  init(clock: any Clock) { self.clock = clock }

  private func change(_ remote: RemoteID, _ body: (inout Entry, Int64) -> Void) {
    let now = clock.now()
    entries.withLock { entries in
      if entries[remote] == nil, entries.count >= Self.remotesMax {
        // A tenth at once, so that the search is paid for seldom.
        let oldest = entries.sorted { $0.value.lastSeen < $1.value.lastSeen }.prefix(Self.remotesMax / 10)
        for (id, _) in oldest { entries[id] = nil }
      }
      body(&entries[remote, default: Entry(lastSeen: now)], now)
      entries[remote]?.lastSeen = now
    }
  }

  func noteBegin(_ message: BeginMessage, _ principal: Principal) {
    let release = LogContext.current?["release"]
    change(message.remote) { entry, now in
      entry.lastBegin = now
      entry.release = release
      entry.schemaVersion = message.schemaVersion
      entry.groups = message.groups.map(\.name)
      entry.cursors = Dictionary(
        message.groups.compactMap { group in group.cursor.map { (group.name, $0.number) } }, uniquingKeysWith: { $1 })
      entry.principal = principal
      entry.subscriptions =
        message.subscriptions
        ?? ResolvedSubscriptions(
          message.groups.reduce(into: [:]) { $0.merge($1.subscriptions.targets) { $0.union($1) } })
      entry.cursor = message.groups.compactMap { $0.cursor?.number }.min()
    }
  }

  func note(_ results: UploadResults, of remote: RemoteID) {
    change(remote) { entry, _ in
      entry.accepted += results.acceptedRequests
      entry.refused += Int64(results.refused.count)
      for refusal in results.refused { entry.refusedByReason[refusal.reason.rawValue, default: 0] += 1 }
    }
  }

  /// A download has come to its end: these are the groups as the device has them once it has applied it.
  func noteDownload(of remote: RemoteID, _ groups: [GroupState]) {
    change(remote) { entry, now in
      entry.lastDownload = now
      for group in groups { entry.cursors[group.name] = group.cursor?.number ?? entry.cursors[group.name] }
      entry.cursor = entry.cursors.values.min()
    }
  }

  func noteRecovery(of remote: RemoteID, reason: String?, strategy: String?) {
    change(remote) { entry, now in
      entry.recoveries += 1
      entry.lastRecovery = (reason, strategy, now)
    }
  }

  func note(_ error: SalvorError, of remote: RemoteID) {
    // A device that is asked for its history, or put off for a moment, has no error.
    guard error.code != .historyNeeded, error.code != .historyParted else { return }
    change(remote) { entry, now in entry.lastError = (error.code.rawValue, error.context["reason"], now) }
  }

  /// It went through: what was in the way before is over.
  func noteSuccess(of remote: RemoteID) { change(remote) { entry, _ in entry.lastError = nil } }

  subscript(remote: RemoteID) -> Entry? { entries.withLock { $0[remote] } }

  /// How many devices have begun with each release of Salvor, as far as they said it; at most twenty releases.
  var releases: [String: Int64] {
    let all = entries.withLock { entries in
      entries.values.reduce(into: [String: Int64]()) { counts, entry in
        if let release = entry.release { counts[release, default: 0] += 1 }
      }
    }
    return Dictionary(
      uniqueKeysWithValues: all.sorted { ($1.value, $0.key) < ($0.value, $1.key) }.prefix(20).map { ($0.key, $0.value) }
    )
  }

  /// Those that had everything up to `head` when they were last seen, and no error.
  func inStep(with head: Int64) -> [RemoteID] {
    entries.withLock { entries in
      entries.filter { $0.value.cursor.map { $0 >= head } == true && $0.value.lastError == nil }.keys
        .sorted { $0.text < $1.text }
    }
  }

  /// Those whose last begin was refused for a reason to recover.
  var recoveryRequired: [RemoteID] {
    entries.withLock { entries in
      entries.filter { $0.value.lastError?.reason != nil }.keys.sorted { $0.text < $1.text }
    }
  }
}

extension RemoteActivity.Entry {
  func json(head: Int64) -> [JSONValue.Member] {
    [
      .init("lastSeen", .integer(lastSeen)), .init("lastBegin", lastBegin.map(JSONValue.integer) ?? .null),
      .init("lastDownload", lastDownload.map(JSONValue.integer) ?? .null),
      .init("cursor", cursor.map(JSONValue.integer) ?? .null),
      .init("behind", cursor.map { .integer(max(0, head - $0)) } ?? .null),
      .init("schemaVersion", schemaVersion.map(JSONValue.integer) ?? .null),
      .init("release", release.map(JSONValue.string) ?? .null),
      .init("groups", .array(groups.map(JSONValue.string))), .init("accepted", .integer(accepted)),
      .init("refused", .integer(refused)),
      .init("refusals", .object(refusedByReason.sorted { $0.key < $1.key }.map { .init($0.key, .integer($0.value)) })),
      .init("recoveries", .integer(recoveries)),
      .init(
        "lastRecovery",
        lastRecovery.map {
          [
            "reason": $0.reason.map(JSONValue.string) ?? .null, "strategy": $0.strategy.map(JSONValue.string) ?? .null,
            "time": .integer($0.time),
          ]
        } ?? .null),
      .init(
        "lastError",
        lastError.map {
          ["code": .string($0.code), "reason": $0.reason.map(JSONValue.string) ?? .null, "time": .integer($0.time)]
        } ?? .null),
    ]
  }
}
