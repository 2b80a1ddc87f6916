import SalvorModel
import SalvorStorage

/// What `GET /metrics` counts since the server's start. Every number of labels is bounded: routes, codes and reasons are
/// fixed lists.
public final class ServerMetrics: Sendable {
  public final class Counter: Sendable {
    private let count = Mutex<Int64>(0)
    public func add(_ more: Int64) { count.withLock { $0 += more } }
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

    public var values: [String: Int64] { counts.withLock { $0 } }
  }

  public let requests = Counter()
  public let problems = Counter()
  public let problemsByCode = LabelledCounter()
  public let loginsRefused = Counter()
  public let registrations = Counter()
  public let uploads = Counter()
  public let accepted = Counter()
  public let refused = Counter()
  public let refusedByReason = LabelledCounter()
  /// Batches that validators were asked about.
  public let validations = Counter()
  public let validationFailures = Counter()
  public let downloads = Counter()
  public let resets = Counter()
  public let resetsByReason = LabelledCounter()
  /// Begins that were told to rewind.
  public let rewinds = Counter()
  public let recoveriesEnded = Counter()
  /// Its labels come from devices: at most so many different ones, the rest are `other`.
  public let recoveriesByStrategy = LabelledCounter(labelsMax: 64)
  /// Answers and transactions that took longer than `slowMilliseconds`.
  public let slow = Counter()
  /// Snapshots named in answers.
  public let snapshotsOffered = Counter()
  public let snapshotsMade = Counter()
  public let snapshotFailures = Counter()
  public let snapshotMilliseconds = Counter()
  /// Answers that carry a file or a range of it.
  public let snapshotsSent = Counter()
  public let snapshotBytesSent = Counter()
  public let administrationActs = LabelledCounter()
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
  public var cpuSeconds: Double
  public var residentBytes: Int64
  public var openFiles: Int64
  public var openFilesMax: Int64
  /// Seconds since 1970.
  public var startedAt: Double
  public init(cpuSeconds: Double, residentBytes: Int64, openFiles: Int64, openFilesMax: Int64, startedAt: Double) {
    self.cpuSeconds = cpuSeconds
    self.residentBytes = residentBytes
    self.openFiles = openFiles
    self.openFilesMax = openFilesMax
    self.startedAt = startedAt
  }
}
