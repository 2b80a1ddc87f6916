import Dispatch
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Runs work one after the other, apart from the threads that all tasks share: those are as many as there are cores, and
/// may all be busy. Where the system has no task executors (before macOS 15 and iOS 18), work runs where its task runs.
public final class OwnThread: Sendable {
  private let lane: any Lane
  private let count = Mutex(0)

  /// - Parameter isPatient: others get the processor first.
  public init(_ label: String, isPatient: Bool = false) {
    #if canImport(Glibc)
      // Dispatch's classes of service are nothing to Linux' scheduler.
      if isPatient {
        lane = PatientThread()
        return
      }
    #endif
    lane = DispatchQueue(label: "salvor." + label, qos: isPatient ? .utility : .unspecified)
  }

  /// The pieces of work that were given to it.
  public var workCount: Int { count.withLock { $0 } }

  /// One for each processor, eight at most.
  public static func forEachProcessor(_ label: String, isPatient: Bool = false) -> [OwnThread] {
    let count = min(8, max(1, Int(sysconf(Int32(_SC_NPROCESSORS_ONLN)))))
    return (0..<count).map { OwnThread("\(label).\($0)", isPatient: isPatient) }
  }

  /// Runs `work` on `thread`; nil: where the task runs. `work` yields once before it begins, which is when it moves.
  public static func run<Result: Sendable>(
    on thread: OwnThread?, _ work: @Sendable () async throws -> Result
  ) async throws -> Result {
    guard let thread else { return try await work() }
    thread.count.withLock { $0 += 1 }
    if #available(macOS 15, iOS 18, *) {
      return try await withTaskExecutorPreference(Executor(lane: thread.lane), operation: work)
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
      return Task(executorPreference: Executor(lane: thread.lane), operation: work)
    }
    return Task(operation: work)
  }

  @available(macOS 15, iOS 18, *)
  private final class Executor: TaskExecutor {
    let lane: any Lane

    init(lane: any Lane) { self.lane = lane }

    func enqueue(_ job: consuming ExecutorJob) {
      let job = UnownedJob(job)
      lane.add { job.runSynchronously(on: self.asUnownedTaskExecutor()) }
    }
  }
}

extension ByteStream {
  /// The same pieces, each made on `thread`.
  public func made(on thread: OwnThread) -> ByteStream {
    ByteStream(
      next: {
        try await OwnThread.run(on: thread) {
          // The task goes there before anything is done.
          await Task.yield()
          return try await next()
        }
      }, close: close)
  }
}

/// Runs one piece of work after the other.
private protocol Lane: Sendable {
  func add(_ work: @escaping @Sendable () -> Void)
}

extension DispatchQueue: Lane {
  fileprivate func add(_ work: @escaping @Sendable () -> Void) { async(execute: work) }
}

#if canImport(Glibc)
  /// A thread that gets the processor where others leave it (nice 10, for good: nobody but root may take that back). It ends
  /// with this object, after what was given to it.
  private final class PatientThread: Lane {
    private final class Work: Sendable {
      private let pieces = Mutex<[@Sendable () -> Void]>([])
      private let count = DispatchSemaphore(value: 0)

      func add(_ piece: (@Sendable () -> Void)?) {
        if let piece { pieces.withLock { $0.append(piece) } }
        count.signal()
      }

      /// Until it is told that there is no more.
      func run() {
        while true {
          count.wait()
          guard let piece = pieces.withLock({ $0.isEmpty ? nil : $0.removeFirst() }) else { return }
          piece()
        }
      }
    }

    private let work = Work()

    init() {
      var thread = pthread_t()
      let argument = Unmanaged.passRetained(work)
      let code = pthread_create(
        &thread, nil,
        { argument in
          guard let argument else { return nil }
          let work = Unmanaged<Work>.fromOpaque(argument).takeRetainedValue()
          // Of this thread alone: 0 is who calls.
          _ = setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10)
          work.run()
          return nil
        }, argument.toOpaque())
      precondition(code == 0, "a thread can be made")
      pthread_detach(thread)
    }

    deinit { work.add(nil) }

    func add(_ work: @escaping @Sendable () -> Void) { self.work.add(work) }
  }
#endif
