import SalvorModel
import SalvorStorage
import SalvorWire

/// What one `synchronize` did (`sync --json`).
public struct SyncReport: Sendable {
  /// What a synchronization came to, as `sync --json` names it.
  public enum Outcome: String, Sendable {
    case synchronized
    case recovered
    case recoveryRequired = "recovery-required"
  }

  /// Why requests still wait after a synchronization.
  public enum QueuedReason: String, Sendable {
    /// The device must be recovered first.
    case recoveryRequired = "recovery-required"
    /// It ended with `error`.
    case syncFailed = "sync-failed"
    /// Only some groups were synchronized, and these requests may be of others.
    case otherGroups = "other-groups"
    /// They were written while it ran, or the server does not know their tables or columns yet.
    case nextSync = "next-sync"
    /// They are offers of rows that the server had lost: it holds them until its operator accepts them, or a row comes that they need.
    case waiting
  }

  /// Nil: it failed, and no recovery was done or is required.
  public var outcome: Outcome? {
    get { error != nil && reached == .synchronized ? nil : reached }
    set { reached = newValue ?? .synchronized }
  }
  private var reached: Outcome = .synchronized
  /// Requests the server accepted.
  public var uploaded: Int64 = 0
  /// Rows that were written on this device because of the download.
  public var upserts: Int64 = 0
  /// Rows that were removed from it.
  public var deletes: Int64 = 0
  /// Requests the server refused, the blocked ones included.
  public var refused: Int64 = 0
  /// Their first counters, as long as the archive has them: one that is sent again with a later edit is not counted twice.
  var refusedCounters: Set<Int64> = []
  /// Those of them that were not tried, since they depend on another.
  var heldCounters: Set<Int64> = []
  /// Of requests that could not stand as a session began, the first counters, until it is known which of them came back with the download.
  var displacedCounters: Set<Int64> = []
  /// Those of the notices that name rows which were left out, by table.
  private var leftOutNotices: [String: [String]] = [:]
  /// Requests that met a change of somebody else's and were settled by the conflict policy.
  public var conflicts: Int64 = 0
  /// Offers of rows that a restored server had lost (semantics 10): those that brought something back, and those that found a newer
  /// version there.
  public var healed: Int64 = 0
  /// Offers that found a newer version on the server.
  public var superseded: Int64 = 0
  /// Offers of this device that the server holds: they need its operator's consent, or a row that is not there yet.
  public var waiting: Int64 = 0
  /// Requests that still wait, and why; nil: none does.
  public var queued: Int64 = 0
  /// Why they wait; nil: none does.
  public var queuedReason: QueuedReason?
  /// Requests that could not stand on the new bases.
  public var displaced: Int64 = 0
  /// Bodies as sent, after compression.
  public var bytesSent: Int64 = 0
  /// Bytes of the answers' bodies, before they are decoded.
  public var bytesReceived: Int64 = 0
  /// Requests over the network, each with its answer.
  public var roundTrips: Int64 = 0
  /// What a person should hear of, in sentences.
  public var notices: [String] = []
  /// The rows that were written or removed on this device, by table. May name more rows than were changed, never fewer.
  public var changes: [TableChange] { changed.list }
  var changed = ChangedRows()
  /// The recovery that was done, or that is required; of several the last one.
  public var recovery: RecoverySummary?
  /// Why it failed; nil: it went through.
  public var error: SalvorError?

  /// Groups that came as files.
  public var snapshots: Int64 = 0

  /// Nothing was done yet.
  public init() {}

  /// What became of requests as a session began.
  mutating func count(_ session: ClientSession) {
    // What this sync saw refused and now sends again with a later edit is not in the archive any more.
    let again = refusedCounters.intersection(session.joined)
    refusedCounters.subtract(again)
    refused -= Int64(again.count)
    // Nor is what depended on one that was settled meanwhile.
    let released = heldCounters.subtracting(session.held)
    refused -= Int64(released.intersection(refusedCounters).count)
    refusedCounters.subtract(released)
    // What depends on a request in error is not sent: it is in the archive, as where both were sent together.
    refused += Int64(session.blocked.subtracting(refusedCounters).count)
    refusedCounters.formUnion(session.blocked)
    heldCounters = heldCounters.intersection(session.held).union(session.blocked)
    displacedCounters.formUnion(session.displaced)
  }

  /// What an application of a download says. Where tables were compared with the server, it is so of them now, whatever was left out in this
  /// synchronization before.
  mutating func noteLeftOut(_ applied: ApplyReport, comparing tables: [String]) {
    for table in tables {
      for notice in leftOutNotices.removeValue(forKey: table) ?? [] { notices.removeAll { $0 == notice } }
    }
    notices += applied.notices
    leftOutNotices.merge(applied.leftOutNotices) { $0 + $1 }
  }

  /// What became of an upload.
  mutating func count(_ results: UploadResults, refused: Int64) {
    self.refused += refused
    refusedCounters.formUnion(results.refused.map(\.counter))
    heldCounters.formUnion(results.refused.filter { $0.reason == .blocked }.map(\.counter))
  }

  mutating func fail(_ error: SalvorError) {
    self.error = error
    if error.code == .recoveryRequired { outcome = .recoveryRequired }
  }

  /// The exit code of the command line (interfaces.md); of several that hold: 2, 5, 4, 3, 6, 0.
  public var exitCode: Int32 {
    if let error, error.code.exitCode == 2 { return 2 }
    if outcome == .recoveryRequired { return 5 }
    if let error { return error.code.exitCode }
    return refused > 0 ? 6 : 0
  }

  /// As `sync --json` prints it.
  public var json: JSONValue {
    return [
      "outcome": (outcome?.rawValue).map(JSONValue.string) ?? .null,
      "uploaded": .integer(uploaded),
      "downloaded": ["upserts": .integer(upserts), "deletes": .integer(deletes)],
      "refused": .integer(refused),
      "conflicts": .integer(conflicts),
      "healed": .integer(healed),
      "superseded": .integer(superseded),
      "waiting": .integer(waiting),
      "snapshots": .integer(snapshots),
      "queued": .integer(queued),
      "queuedReason": queuedReason.map { .string($0.rawValue) } ?? .null,
      "displaced": .integer(displaced),
      "bytesSent": .integer(bytesSent),
      "bytesReceived": .integer(bytesReceived),
      "roundTrips": .integer(roundTrips),
      "notices": .array(notices.map(JSONValue.string)),
      "changes": .array(changes.map(\.json)),
      "recovery": recovery.map { recovery in
        var recovery = recovery
        recovery.healed = healed
        return recovery.json
      } ?? .null,
      "error": error.map(\.json) ?? .null,
    ]
  }
}

/// What a synchronization that went through came to. One that failed throws.
@dynamicMemberLookup
public struct SyncResult: Sendable, CustomStringConvertible {
  /// What it came to.
  public enum Outcome: Sendable, Hashable {
    /// Both sides have the same.
    case synchronized
    /// They have, after a recovery: `report.recovery` says what became of the changes that were not sent yet.
    case recovered
    /// They have, but for so many requests: the server refused them, and they are in `errorArchive()`. Where there was a
    /// recovery, too, `report.recovery` says so.
    case refused(Int64)
  }

  /// What it came to: look at it with `switch`.
  public let outcome: Outcome
  /// The figures.
  public let report: SyncReport

  init(_ report: SyncReport) {
    self.report = report
    outcome = report.refused > 0 ? .refused(report.refused) : report.outcome == .recovered ? .recovered : .synchronized
  }

  /// Each figure of `report`.
  public subscript<Value>(dynamicMember path: KeyPath<SyncReport, Value>) -> Value { report[keyPath: path] }

  /// For people, in English.
  public var description: String {
    switch outcome {
    case .synchronized: "synchronized"
    case .recovered: "recovered"
    case .refused(let count): count == 1 ? "1 request refused" : "\(count) requests refused"
    }
  }
}

extension SalvorError {
  /// As reports and the log have an error.
  public var json: JSONValue {
    [
      "code": .integer(Int64(code.number)), "name": .string(code.rawValue),
      "reason": reason.map(JSONValue.string) ?? .null, "message": .string(message),
      "retryAfterMilliseconds": retryAfterMilliseconds.map(JSONValue.integer) ?? .null,
    ]
  }
}
