#if PostgreSQL
  import Dispatch

  /// The executor of an actor that owns a connection: a serial queue of its own, so that waiting for the database never blocks a
  /// thread of the cooperative pool.
  final class ConnectionQueue: SerialExecutor {
    private let queue: DispatchQueue

    init(_ label: String) { queue = DispatchQueue(label: "salvor.postgresql." + label) }

    #if canImport(Darwin)
      func enqueue(_ job: UnownedJob) { add(job) }
    #else
      func enqueue(_ job: consuming ExecutorJob) { add(UnownedJob(job)) }
    #endif

    private func add(_ job: UnownedJob) {
      queue.async { job.runSynchronously(on: self.asUnownedSerialExecutor()) }
    }

    func asUnownedSerialExecutor() -> UnownedSerialExecutor { UnownedSerialExecutor(ordinary: self) }
    func checkIsolated() { dispatchPrecondition(condition: .onQueue(queue)) }
  }
#endif
