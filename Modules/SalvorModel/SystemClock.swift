#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The clock of the operating system.
public struct SystemClock: Clock {
  /// Holds no state: one is as good as another.
  public init() {}

  /// The time of day, which may be set back; in milliseconds since 1970.
  public func now() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_REALTIME, &time)
    return Int64(time.tv_sec) * 1000 + Int64(time.tv_nsec) / 1_000_000
  }

  /// Sleeps without holding a thread. Throws `CancellationError` where the task is cancelled.
  public func sleep(milliseconds: Int64) async throws {
    try await Task.sleep(for: .milliseconds(milliseconds))
  }
}
