#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What takes a thread's jobs.
protocol JobTaker: AnyObject {
  func add(_ job: UnownedJob)
}

/// The Swift runtime's hook for jobs of the global executor: on a thread that runs a simulation they go to its schedule,
/// on every other thread where they always went. `Task {}` and actors without an executor of their own come by here; a
/// `TaskExecutor` alone would not see them, since unstructured tasks do not inherit it.
enum ExecutorHooks {
  private typealias Original = @convention(thin) (UnownedJob) -> Void
  private typealias Hook = @convention(thin) (UnownedJob, Original) -> Void

  private static let key: pthread_key_t = {
    var key = pthread_key_t()
    pthread_key_create(&key, nil)
    return key
  }()

  private final class Holder {
    let taker: any JobTaker
    init(_ taker: any JobTaker) { self.taker = taker }
  }

  /// The schedule of this thread.
  static var current: (any JobTaker)? {
    get { pthread_getspecific(key).map { Unmanaged<Holder>.fromOpaque($0).takeUnretainedValue().taker } }
    set {
      let before = pthread_getspecific(key)
      pthread_setspecific(key, newValue.map { UnsafeRawPointer(Unmanaged.passRetained(Holder($0)).toOpaque()) })
      before.map { Unmanaged<Holder>.fromOpaque($0).release() }
    }
  }

  /// False where this runtime has no such hook.
  static let isInstalled: Bool = {
    guard let library = dlopen(nil, RTLD_NOW), let symbol = dlsym(library, "swift_task_enqueueGlobal_hook") else {
      return false
    }
    symbol.assumingMemoryBound(to: Hook?.self).pointee = { job, original in
      if let schedule = ExecutorHooks.current { schedule.add(job) } else { original(job) }
    }
    return true
  }()
}
