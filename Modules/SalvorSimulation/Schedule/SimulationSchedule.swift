import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Everything that wants to run in a simulation, on one thread, and a seed that says what goes next.
///
/// Tasks and actors are those of the product: their jobs come here instead of to the runtime's threads. Whatever order
/// the seed chooses is one that threads could have chosen, too. Time stands still while anything can run, and then
/// jumps to the next moment that somebody waits for.
public final class SimulationSchedule: JobTaker, @unchecked Sendable {
  /// Jobs that run one after the other, in the order in which they came: what a serial dispatch queue is.
  public final class Lane: @unchecked Sendable {
    private let schedule: SimulationSchedule
    fileprivate var jobs: [(UnownedJob, UnownedSerialExecutor)] = []
    fileprivate var first = 0

    fileprivate init(_ schedule: SimulationSchedule) { self.schedule = schedule }

    /// Puts a job behind those that wait in the lane. May be called from any thread.
    public func add(_ job: UnownedJob, of executor: UnownedSerialExecutor) {
      schedule.state.withLock { state in
        jobs.append((job, executor))
        if jobs.count - first == 1 { state.ready.append(.lane(self)) }
      }
    }

    /// Called with the schedule's lock held.
    fileprivate func take() -> (UnownedJob, UnownedSerialExecutor) {
      let job = jobs[first]
      first += 1
      if first == jobs.count {
        jobs.removeAll(keepingCapacity: true)
        first = 0
      }
      return job
    }

    fileprivate var isEmpty: Bool { first == jobs.count }
  }

  fileprivate enum Ready {
    case job(UnownedJob)
    case lane(Lane)
  }

  fileprivate struct Timer {
    var id: Int
    var deadline: Int64
    var continuation: CheckedContinuation<Void, any Error>
  }

  fileprivate struct State {
    var random: SeededGenerator
    var ready: [Ready] = []
    var timers: [Timer] = []
    var cancelled: Set<Int> = []
    var now: Int64
    var timerCount = 0
  }

  private final class TaskJobs: TaskExecutor {
    /// Jobs are taken by the runtime's hook; this one is a name to run them under.
    func enqueue(_ job: consuming ExecutorJob) { ExecutorHooks.current?.add(UnownedJob(job)) }
  }

  fileprivate let state: Mutex<State>
  private let executor = TaskJobs()
  /// What is run is added to it.
  public let trace: Trace
  private var jobCount = 0

  /// - Parameters:
  ///   - random: chooses what goes next.
  ///   - now: the time at the beginning, in milliseconds since 1970.
  public init(_ random: SeededGenerator, trace: Trace, now: Int64 = 1_767_225_600_000) {
    state = Mutex(State(random: random, now: now))
    self.trace = trace
  }

  /// Why `run` gave up.
  public enum Standstill: Error, Sendable {
    /// It ran so many jobs without coming to an end.
    case livelock(jobs: Int)
    /// Nothing can run, and nobody waits for a time.
    case deadlock
    /// This Swift runtime does not let anybody else run its jobs.
    case unsupported
  }

  /// The schedule's time, in milliseconds since 1970: the same for every machine.
  public var now: Int64 { state.withLock { $0.now } }

  /// Moves the clock on, for everybody.
  public func advance(milliseconds: Int64) { state.withLock { $0.now += milliseconds } }

  func add(_ job: UnownedJob) { state.withLock { $0.ready.append(.job(job)) } }

  /// A new lane without jobs. Lanes do not wait for each other.
  public func makeLane() -> Lane { Lane(self) }

  /// Runs `body` on this thread, with everything that it starts, until it has ended and nothing is left to run.
  ///
  /// - Parameter jobsMax: after so many jobs it counts as a livelock.
  public func run<Result: Sendable>(
    jobsMax: Int, _ body: @escaping @Sendable () async -> Result
  ) throws(Standstill) -> Result {
    guard ExecutorHooks.isInstalled else { throw .unsupported }
    let before = ExecutorHooks.current
    ExecutorHooks.current = self
    defer { ExecutorHooks.current = before }
    let box = Mutex<Result?>(nil)
    Task {
      let result = await body()
      box.withLock { $0 = result }
    }
    let start = jobCount
    var idle = 0
    while true {
      if step() {
        idle = 0
        guard jobCount - start < jobsMax else { throw .livelock(jobs: jobsMax) }
        continue
      }
      if let result = box.withLock({ $0 }) { return result }
      if wake() { continue }
      // A thread of the runtime's own may be about to bring a job.
      guard idle < 2000 else { throw .deadlock }
      idle += 1
      usleep(500)
    }
  }

  /// Runs one job; false where none can run.
  private func step() -> Bool {
    enum Next {
      case job(UnownedJob)
      case serial(UnownedJob, UnownedSerialExecutor)
    }
    let next: Next? = state.withLock { state in
      guard !state.ready.isEmpty else { return nil }
      let place = state.ready.count == 1 ? 0 : state.random.below(state.ready.count)
      switch state.ready[place] {
      case .job(let job):
        state.ready.swapAt(place, state.ready.count - 1)
        state.ready.removeLast()
        return .job(job)
      case .lane(let lane):
        let (job, executor) = lane.take()
        if lane.isEmpty {
          state.ready.swapAt(place, state.ready.count - 1)
          state.ready.removeLast()
        }
        return .serial(job, executor)
      }
    }
    switch next {
    case nil: return false
    case .job(let job): job.runSynchronously(on: executor.asUnownedTaskExecutor())
    case .serial(let job, let executor): job.runSynchronously(on: executor)
    }
    jobCount += 1
    return true
  }

  /// The next moment that somebody waits for; false where nobody does.
  private func wake() -> Bool {
    let due: Timer? = state.withLock { state in
      guard let first = state.timers.indices.min(by: { state.timers[$0].order < state.timers[$1].order }) else {
        return nil
      }
      let timer = state.timers.remove(at: first)
      state.now = max(state.now, timer.deadline)
      return timer
    }
    guard let due else { return false }
    due.continuation.resume()
    return true
  }

  func sleep(milliseconds: Int64) async throws {
    let id = state.withLock { state in
      state.timerCount += 1
      return state.timerCount
    }
    try await withTaskCancellationHandler {
      try await withCheckedThrowingContinuation { continuation in
        let isCancelled = state.withLock { state in
          if state.cancelled.remove(id) != nil { return true }
          state.timers.append(
            Timer(id: id, deadline: state.now + max(0, milliseconds), continuation: continuation))
          return false
        }
        if isCancelled { continuation.resume(throwing: CancellationError()) }
      }
    } onCancel: {
      let timer: Timer? = state.withLock { state in
        guard let place = state.timers.firstIndex(where: { $0.id == id }) else {
          state.cancelled.insert(id)
          return nil
        }
        return state.timers.remove(at: place)
      }
      timer?.continuation.resume(throwing: CancellationError())
    }
    _ = state.withLock { $0.cancelled.remove(id) }
  }

  /// How many jobs were run so far.
  public var jobsRun: Int { jobCount }
}

extension SimulationSchedule.Timer {
  fileprivate var order: (Int64, Int) { (deadline, id) }
}

/// The clock of one machine of a simulation: the schedule's time, and how wrong this machine has it.
public final class VirtualClock: Clock {
  private let schedule: SimulationSchedule
  private let offset = Mutex<Int64>(0)

  /// A clock that is right until it jumps.
  public init(_ schedule: SimulationSchedule) { self.schedule = schedule }

  /// Milliseconds since 1970, as this machine believes.
  public func now() -> Int64 { schedule.now + offset.withLock { $0 } }

  /// Waits for so much of the schedule's time; a jump does not change it. Throws `CancellationError` when cancelled.
  public func sleep(milliseconds: Int64) async throws { try await schedule.sleep(milliseconds: milliseconds) }

  /// The machine's clock is set forward or back.
  public func jump(milliseconds: Int64) { offset.withLock { $0 += milliseconds } }
}
