#if canImport(Glibc)
  import Glibc
#endif

/// What this process has, as the system counts it.
public struct ContractMemory: Sendable {
  /// Bytes: a case after which the process has more memory than that beyond what it had before fails. Nil: nobody looks.
  /// Set by who runs nothing else in the process meanwhile, as `salvor contract` does with 2 GiB: what a test beside it
  /// takes would be counted as the case's.
  @TaskLocal public static var ofACase: Int? = nil

  /// Bytes of this process that are in main memory now: whole pages, code and shared pages included.
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
