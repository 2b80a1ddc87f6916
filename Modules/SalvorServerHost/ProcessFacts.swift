import SalvorServerEngine

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension ProcessFacts {
  /// Nil where the system does not say.
  static func ofThisProcess() -> ProcessFacts? {
    #if canImport(Glibc)
      guard let status = smallFile("/proc/self/stat"), let boot = smallFile("/proc/stat") else { return nil }
      // The second field, the program's name in parentheses, may hold spaces.
      let fields = status[(status.lastIndex(of: ")") ?? status.startIndex)...].split(separator: " ")
      let ticks = Double(sysconf(Int32(_SC_CLK_TCK)))
      guard fields.count > 22, let user = Double(fields[12]), let system = Double(fields[13]),
        let started = Double(fields[20]), let pages = Int64(fields[22]),
        let bootedAt = boot.split(separator: "\n").first(where: { $0.hasPrefix("btime ") }).flatMap({
          Double($0.dropFirst(6))
        })
      else { return nil }
      var limit = rlimit()
      getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
      return ProcessFacts(
        cpuSeconds: (user + system) / ticks, residentBytes: pages * Int64(sysconf(Int32(_SC_PAGESIZE))),
        openFiles: openFiles(), openFilesMax: Int64(clamping: limit.rlim_cur), startedAt: bootedAt + started / ticks)
    #else
      return nil
    #endif
  }

  #if canImport(Glibc)
    private static func openFiles() -> Int64 {
      guard let folder = opendir("/proc/self/fd") else { return 0 }
      defer { closedir(folder) }
      var count: Int64 = 0
      while let entry = readdir(folder) {
        if entry.pointee.d_name.0 != CChar(UInt8(ascii: ".")) { count += 1 }
      }
      // The folder itself is one of them while it is read.
      return count - 1
    }

    private static func smallFile(_ path: String) -> String? {
      guard let file = fopen(path, "r") else { return nil }
      defer { fclose(file) }
      var buffer = [UInt8](repeating: 0, count: 64 << 10)
      let count = fread(&buffer, 1, buffer.count, file)
      return count > 0 ? String(decoding: buffer[..<count], as: UTF8.self) : nil
    }
  #endif
}
