#if canImport(Glibc)
  import Glibc
#endif

/// What this process has, as the system counts it. Other tests of the process count as well, so limits are wide.
public struct ContractMemory: Sendable {
  /// More than this much memory at the end of a case than at its beginning is a failure.
  public static let ofACase = 2 << 30

  public var residentBytes: Int
  /// With what was asked for and never touched.
  public var addressBytes: Int

  /// Nil where the system does not say.
  public static func now() -> ContractMemory? {
    #if canImport(Glibc)
      guard let file = fopen("/proc/self/statm", "r") else { return nil }
      defer { fclose(file) }
      var buffer = [UInt8](repeating: 0, count: 200)
      let count = fread(&buffer, 1, buffer.count, file)
      let numbers = String(decoding: buffer[..<count], as: UTF8.self).split(separator: " ").prefix(2).compactMap {
        Int($0)
      }
      guard numbers.count == 2 else { return nil }
      let page = sysconf(Int32(_SC_PAGESIZE))
      return ContractMemory(residentBytes: numbers[1] * page, addressBytes: numbers[0] * page)
    #else
      return nil
    #endif
  }

  /// Nanoseconds of the processor that this thread has had: waiting for a busy machine does not count. Nil where the system
  /// does not say.
  static func processorTime() -> Int64? {
    #if canImport(Glibc)
      var time = timespec()
      guard clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0 else { return nil }
      return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    #else
      return nil
    #endif
  }
}
