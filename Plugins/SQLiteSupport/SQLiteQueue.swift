import Dispatch

/// The executor of an actor that owns a connection: its own serial queue, so that SQLite never blocks a thread of the
/// cooperative pool (which has only as many as there are cores).
///
/// ```swift
/// actor Store {
///   let queue = SQLiteQueue("store")
///   nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }
/// }
/// ```
public final class SQLiteQueue: SerialExecutor {
  /// Runs jobs one after the other, in place of a dispatch queue.
  public protocol Lane: Sendable {
    func add(_ job: UnownedJob, of executor: UnownedSerialExecutor)
  }

  /// Makes a lane for each queue.
  public protocol Lanes: Sendable {
    func makeLane() -> any Lane
  }

  /// What queues that are made in this task run their jobs on; nil: a dispatch queue each. A simulation decides by it
  /// which job goes next.
  @TaskLocal public static var lanes: (any Lanes)?

  private let queue: DispatchQueue
  private let lane: (any Lane)?

  /// Where `lanes` is set, the queue runs its jobs on a lane of it; else on a serial dispatch queue of its own.
  ///
  /// - Parameter label: the dispatch queue is named `salvor.` and this.
  public init(_ label: String) {
    queue = DispatchQueue(label: "salvor." + label)
    lane = Self.lanes?.makeLane()
  }

  #if canImport(Darwin)
    // `ExecutorJob` needs macOS 14 and iOS 17.
    /// Returns at once. Jobs run one at a time.
    public func enqueue(_ job: UnownedJob) { add(job) }
  #else
    /// Returns at once. Jobs run one at a time.
    public func enqueue(_ job: consuming ExecutorJob) { add(UnownedJob(job)) }
  #endif

  private func add(_ job: UnownedJob) {
    if let lane { return lane.add(job, of: asUnownedSerialExecutor()) }
    queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
  }

  /// For an actor's `unownedExecutor`. The actor must hold the queue: the answer does not.
  public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
    UnownedSerialExecutor(ordinary: self)
  }

  /// Stops the process where the caller does not run on this queue. On a lane nothing is checked.
  public func checkIsolated() {
    // A lane's jobs run on one thread, whichever of them is asked.
    guard lane == nil else { return }
    dispatchPrecondition(condition: .onQueue(queue))
  }
}
