import Dispatch
import SalvorModel

/// Runs work one after the other, apart from the threads that all tasks share: those are as many as there are cores, and
/// may all be busy. Where the system has no task executors (before macOS 15 and iOS 18), work runs where its task runs.
public final class OwnThread: Sendable {
  private let queue: DispatchQueue
  private let count = Mutex(0)

  /// - Parameter isPatient: others get the processor first.
  public init(_ label: String, isPatient: Bool = false) {
    queue = DispatchQueue(label: "salvor." + label, qos: isPatient ? .utility : .unspecified)
  }

  /// The pieces of work that were given to it.
  public var workCount: Int { count.withLock { $0 } }

  /// Runs `work` on `thread`; nil: where the task runs. `work` yields once before it begins, which is when it moves.
  public static func run<Result: Sendable>(
    on thread: OwnThread?, _ work: @Sendable () async throws -> Result
  ) async throws -> Result {
    guard let thread else { return try await work() }
    thread.count.withLock { $0 += 1 }
    if #available(macOS 15, iOS 18, *) {
      return try await withTaskExecutorPreference(Executor(queue: thread.queue), operation: work)
    }
    return try await work()
  }

  /// Runs `work` in a task of its own, on `thread`; nil: where any task runs.
  public static func task(
    on thread: OwnThread?, _ work: @escaping @Sendable () async -> Void
  ) -> Task<Void, Never> {
    guard let thread else { return Task(operation: work) }
    thread.count.withLock { $0 += 1 }
    if #available(macOS 15, iOS 18, *) {
      return Task(executorPreference: Executor(queue: thread.queue), operation: work)
    }
    return Task(operation: work)
  }

  @available(macOS 15, iOS 18, *)
  private final class Executor: TaskExecutor {
    let queue: DispatchQueue

    init(queue: DispatchQueue) { self.queue = queue }

    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
  }
}
