import SalvorModel
import SalvorStorage

/// What `GET /metrics` counts since the server's start. Every number of labels is bounded: routes, codes and reasons are
/// fixed lists.
public final class ServerMetrics: Sendable {
  /// A number that only grows, from 0 at the start. Safe on any thread.
  public final class Counter: Sendable {
    private let count = Mutex<Int64>(0)
    /// Adds `more`, which is not negative.
    public func add(_ more: Int64) { count.withLock { $0 += more } }
    /// The sum so far.
    public var value: Int64 { count.withLock { $0 } }
  }

  /// Counts by labels, written as `name="value",…`.
  public final class LabelledCounter: Sendable {
    private let counts = Mutex<[String: Int64]>([:])
    private let labelsMax: Int

    init(labelsMax: Int = .max) { self.labelsMax = labelsMax }

    /// - Parameter other: counted in its place where there are too many.
    func add(_ labels: String, _ more: Int64 = 1, other: String = "") {
      counts.withLock { counts in
        counts[counts[labels] == nil && counts.count >= labelsMax ? other : labels, default: 0] += more
      }
    }

    /// The sums so far, by labels; empty where nothing was counted.
    public var values: [String: Int64] { counts.withLock { $0 } }
  }

  /// Requests received, whatever the route and the answer.
  public let requests = Counter()
  /// Requests that were answered with a problem.
  public let problems = Counter()
  /// The same by `code`, the name of the error.
  public let problemsByCode = LabelledCounter()
  /// Requests that were answered with `unauthenticated`, `forbidden`, `remote-blocked` or
  /// `remote-of-another-principal`.
  public let loginsRefused = Counter()
  /// Remote IDs that were registered.
  public let registrations = Counter()
  /// Uploads that were processed; one that is answered again from what was recorded does not count.
  public let uploads = Counter()
  /// Requests of uploads that were accepted.
  public let accepted = Counter()
  /// Requests of uploads that were refused.
  public let refused = Counter()
  /// The same by `reason`, a `RefusalReason`.
  public let refusedByReason = LabelledCounter()
  /// Batches that validators were asked about.
  public let validations = Counter()
  /// Batches that a validator could not judge, or answered with what cannot be used.
  public let validationFailures = Counter()
  /// Downloads begun; the answer of a sync that brings nothing counts, too.
  public let downloads = Counter()
  /// Begins that were refused with a reason for recovery.
  public let resets = Counter()
  /// The same by `reason`, a `RecoveryReason`.
  public let resetsByReason = LabelledCounter()
  /// Begins that were told to rewind.
  public let rewinds = Counter()
  /// Recoveries of which the device has said that they came to their end.
  public let recoveriesEnded = Counter()
  /// Its labels come from devices: at most so many different ones, the rest are `other`.
  public let recoveriesByStrategy = LabelledCounter(labelsMax: 64)
  /// Answers and transactions that took longer than `slowMilliseconds`.
  public let slow = Counter()
  /// Snapshots named in answers.
  public let snapshotsOffered = Counter()
  /// Snapshots that were made.
  public let snapshotsMade = Counter()
  /// Snapshots that could not be made.
  public let snapshotFailures = Counter()
  /// How long making them took, all together, in milliseconds.
  public let snapshotMilliseconds = Counter()
  /// Answers that carry a file or a range of it.
  public let snapshotsSent = Counter()
  /// Bytes of snapshots sent. A file that the system sends counts whole when the transport takes it.
  public let snapshotBytesSent = Counter()
  /// Acts of operators over HTTP, by `act` and `result` (`done`, `refused`).
  public let administrationActs = LabelledCounter()
  /// Answers sent or given up, by `route`, `method` and `status`.
  public let answers = LabelledCounter()
  let durations = Histogram(Histogram.seconds)
  let requestBytes = Histogram(Histogram.bytes)
  let responseBytes = Histogram(Histogram.bytes)
  let processing = Histogram(Histogram.seconds)
  private let recoveriesByReason = Mutex<[String: Int64]>([:])

  func countRecovery(_ reason: String) { recoveriesByReason.withLock { $0[reason, default: 0] += 1 } }

  /// Recoveries begun, by the reason that the server gave: a `RecoveryReason`, `history-parted`, or `none`.
  public var recoveries: [String: Int64] { recoveriesByReason.withLock { $0 } }
}

/// Observations in buckets, by labels.
final class Histogram: Sendable {
  static let seconds: [Double] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30]
  static let bytes: [Double] = [256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864]

  struct Series {
    /// Of each bucket alone, then of what is above all.
    var counts: [Int64]
    var sum: Double = 0
  }

  let bounds: [Double]
  private let series = Mutex<[String: Series]>([:])

  init(_ bounds: [Double]) { self.bounds = bounds }

  func observe(_ value: Double, _ labels: String = "") {
    let place = bounds.firstIndex { value <= $0 } ?? bounds.count
    let size = bounds.count + 1
    series.withLock { series in
      series[labels, default: Series(counts: Array(repeating: 0, count: size))].counts[place] += 1
      series[labels]?.sum += value
    }
  }

  var all: [String: Series] { series.withLock { $0 } }
}

/// What the operating system says of this process, for `/metrics`: the host brings it.
public struct ProcessFacts: Sendable, Hashable {
  /// Processor time of the process so far, its own and the system's for it, in seconds.
  public var cpuSeconds: Double
  /// Memory that the process holds, in bytes.
  public var residentBytes: Int64
  /// Open files and connections.
  public var openFiles: Int64
  /// How many it may have open (`ulimit -n`).
  public var openFilesMax: Int64
  /// Seconds since 1970.
  public var startedAt: Double
  /// All parts given.
  public init(cpuSeconds: Double, residentBytes: Int64, openFiles: Int64, openFilesMax: Int64, startedAt: Double) {
    self.cpuSeconds = cpuSeconds
    self.residentBytes = residentBytes
    self.openFiles = openFiles
    self.openFilesMax = openFilesMax
    self.startedAt = startedAt
  }
}
