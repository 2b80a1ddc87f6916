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
  private let queue: DispatchQueue

  public init(_ label: String) {
    queue = DispatchQueue(label: "salvor." + label)
  }

  public func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
  }

  public func asUnownedSerialExecutor() -> UnownedSerialExecutor {
    UnownedSerialExecutor(ordinary: self)
  }

  public func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }
}
