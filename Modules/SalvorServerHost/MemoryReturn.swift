@preconcurrency import Dispatch
import SalvorConfiguration
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

  /// Of a process that answers many: few heaps for all threads, and what is large always apart, so that it goes back at once
  /// when it is free. The C library would learn otherwise from the first large body. Before there are many threads.
  static func settle() {
    #if canImport(Glibc)
      guard let symbol = dlsym(nil, "mallopt") else { return }
      let set = unsafeBitCast(symbol, to: (@convention(c) (Int32, Int32) -> Int32).self)
      _ = set(heapsMax, 2)
      _ = set(apartBytesMin, 256 << 10)
    #endif
  }

  /// `M_ARENA_MAX` and `M_MMAP_THRESHOLD` of malloc.h, which the importer does not see.
  private static let heapsMax: Int32 = -8
  private static let apartBytesMin: Int32 = -3

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

extension Host {
  /// For a process that is a server: the C library is told to keep little of what large bodies took. Before there are many
  /// threads.
  public static func settleMemory() { MemoryReturn.settle() }
}
