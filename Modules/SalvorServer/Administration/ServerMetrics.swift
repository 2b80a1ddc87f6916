import SalvorStorage
import Synchronization

/// What `GET /metrics` counts since the server's start.
public final class ServerMetrics: Sendable {
  public final class Counter: Sendable {
    private let count = Atomic<Int64>(0)
    public func add(_ more: Int64) { count.add(more, ordering: .relaxed) }
    public var value: Int64 { count.load(ordering: .relaxed) }
  }

  public let requests = Counter()
  public let problems = Counter()
  public let registrations = Counter()
  public let uploads = Counter()
  public let accepted = Counter()
  public let refused = Counter()
  /// Batches that validators were asked about.
  public let validations = Counter()
  public let validationFailures = Counter()
  public let downloads = Counter()
  public let resets = Counter()
  /// Begins that were told to rewind.
  public let rewinds = Counter()
  private let recoveriesByReason = Mutex<[String: Int64]>([:])

  func countRecovery(_ reason: String) { recoveriesByReason.withLock { $0[reason, default: 0] += 1 } }

  /// Recoveries begun, by the reason that the server gave: a `RecoveryReason`, `history-parted`, or `none`.
  public var recoveries: [String: Int64] { recoveriesByReason.withLock { $0 } }
}

extension ServerEngine {
  /// Prometheus' text format.
  func metricsText() async throws -> String {
    let stats = try await configuration.store.stats()
    let counters: [(String, String, Int64)] = [
      ("salvor_requests_total", "Requests received", metrics.requests.value),
      ("salvor_problems_total", "Requests answered with a problem", metrics.problems.value),
      ("salvor_registrations_total", "Remote IDs registered", metrics.registrations.value),
      ("salvor_uploads_total", "Uploads processed", metrics.uploads.value),
      ("salvor_requests_accepted_total", "Requests of uploads that were accepted", metrics.accepted.value),
      ("salvor_requests_refused_total", "Requests of uploads that were refused", metrics.refused.value),
      ("salvor_validations_total", "Batches of requests that validators were asked about", metrics.validations.value),
      (
        "salvor_validation_failures_total", "Batches that a validator could not judge",
        metrics.validationFailures.value
      ),
      ("salvor_downloads_total", "Downloads begun", metrics.downloads.value),
      ("salvor_resets_total", "Begins refused with a reason for recovery", metrics.resets.value),
      ("salvor_rewinds_total", "Begins refused with a commit to rewind to", metrics.rewinds.value),
      ("salvor_event_rounds_total", "Changes that listeners were told of, all together", events.rounds.value),
    ]
    let recovering = recoveries.counts
    let gauges: [(String, String, Int64)] = [
      ("salvor_sessions", "Sessions under way", Int64(sessions.count)),
      ("salvor_recoveries", "Remote IDs that recover", Int64(recovering.underWay)),
      ("salvor_recoveries_waiting", "Remote IDs that were told to come back to recover", Int64(recovering.waiting)),
      ("salvor_event_listeners", "Streams of events", Int64(events.count)),
      ("salvor_remotes", "Remote IDs known", stats.remotes),
      ("salvor_head_commit", "Number of the newest commit", stats.head.number),
      ("salvor_log_entries", "Entries of the change log", stats.logEntries),
      ("salvor_conflicts_open", "Conflict versions that nobody has resolved", stats.openConflicts),
      ("salvor_staged_bytes", "Bytes in staging", stats.stagedBytes),
    ]
    func lines(_ list: [(String, String, Int64)], _ type: String) -> String {
      list.map { "# HELP \($0.0) \($0.1).\n# TYPE \($0.0) \(type)\n\($0.0) \($0.2)\n" }.joined()
    }
    let name = "salvor_recoveries_total"
    let byReason = metrics.recoveries.sorted { $0.key < $1.key }.map { "\(name){reason=\"\($0.key)\"} \($0.value)\n" }
    return lines(counters, "counter") + lines(gauges, "gauge")
      + "# HELP \(name) Recoveries begun, by reason.\n# TYPE \(name) counter\n" + byReason.joined()
  }
}
