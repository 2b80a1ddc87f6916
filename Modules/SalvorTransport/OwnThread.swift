import Dispatch

/// Runs the tasks that prefer it one after the other, apart from the threads that all tasks share: those are as many as there
/// are cores, and may all be busy.
public final class OwnThread: TaskExecutor {
  private let queue: DispatchQueue

  public init(_ label: String) { queue = DispatchQueue(label: "salvor." + label) }

  public func enqueue(_ job: consuming ExecutorJob) {
    let job = UnownedJob(job)
    queue.async { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
  }
}
