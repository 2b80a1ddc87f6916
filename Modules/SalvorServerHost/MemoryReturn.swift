@preconcurrency import Dispatch
import SalvorModel

#if canImport(Glibc)
  import Glibc
#endif

/// Gives memory that is free in this process back to the system, at most once a second: the C library keeps what large
/// bodies took.
final class MemoryReturn: Sendable {
  private let isDue = Mutex(false)

  #if canImport(Glibc)
    /// `malloc_trim`, which the importer does not see; nil with another C library.
    private static let trim: (@convention(c) (Int) -> Int32)? = dlsym(nil, "malloc_trim").map {
      unsafeBitCast($0, to: (@convention(c) (Int) -> Int32).self)
    }
  #endif

  @Sendable func give() {
    #if canImport(Glibc)
      let isFirst = isDue.withLock { isDue in
        defer { isDue = true }
        return !isDue
      }
      guard isFirst else { return }
      DispatchQueue.global(qos: .utility).asyncAfter(deadline: .now() + 1) { [self] in
        isDue.withLock { $0 = false }
        _ = Self.trim?(0)
      }
    #endif
  }
}
