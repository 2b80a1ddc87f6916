#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

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

  /// The schedule of this thread.
  static var current: SimulationSchedule? {
    get {
      pthread_getspecific(key).map { Unmanaged<SimulationSchedule>.fromOpaque($0).takeUnretainedValue() }
    }
    set { pthread_setspecific(key, newValue.map { UnsafeRawPointer(Unmanaged.passUnretained($0).toOpaque()) }) }
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
