#if canImport(Darwin)
  import Darwin

  /// A value that one thread at a time works on, with the interface of `Synchronization.Mutex`: that one needs macOS 15 and
  /// iOS 18, this one runs on macOS 13 and iOS 16.
  public final class Mutex<Value>: @unchecked Sendable {
    private let lock = UnsafeMutablePointer<pthread_mutex_t>.allocate(capacity: 1)
    private var value: Value

    /// Takes the value over: from here on it is reached through `withLock` alone.
    public init(_ value: consuming sending Value) {
      self.value = value
      pthread_mutex_init(lock, nil)
    }

    deinit {
      pthread_mutex_destroy(lock)
      lock.deallocate()
    }

    /// Waits until no other thread works on the value, and gives it to `body`.
    public func withLock<Result, Failure: Error>(
      _ body: (inout Value) throws(Failure) -> sending Result
    ) throws(Failure) -> sending Result {
      pthread_mutex_lock(lock)
      defer { pthread_mutex_unlock(lock) }
      return try body(&value)
    }
  }
#else
  @_exported import Synchronization
#endif
