#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Clocks and counters of this process. Seconds and bytes.
enum Measure {
  static func wall() -> Double { clock(CLOCK_MONOTONIC) }

  /// All threads of this process, user and system.
  static func cpu() -> Double { clock(CLOCK_PROCESS_CPUTIME_ID) }

  private static func clock(_ id: clockid_t) -> Double {
    var time = timespec()
    clock_gettime(id, &time)
    return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
  }

  /// The most memory this process ever had resident, since it was started. Not `ru_maxrss`: the kernel lets a child
  /// inherit its parent's there.
  static func peakMemory() -> Int64 { statusField("VmHWM:") }

  static func residentMemory() -> Int64 { statusField("VmRSS:") }

  /// A field of /proc/self/status, given there in kB; 0 where there is none.
  private static func statusField(_ name: String) -> Int64 {
    for line in contents(of: "/proc/self/status").split(separator: "\n") where line.hasPrefix(name) {
      let digits = line.filter { $0.isNumber }
      return (Int64(digits) ?? 0) * 1024
    }
    return 0
  }

  /// A small file's text; empty where it cannot be read.
  static func contents(of path: String) -> String {
    guard let file = fopen(path, "r") else { return "" }
    defer { fclose(file) }
    var bytes = [UInt8](repeating: 0, count: 64 << 10)
    let count = fread(&bytes, 1, bytes.count, file)
    return String(decoding: bytes.prefix(count), as: UTF8.self)
  }
}

/// What this process's open TCP connections have carried so far, as the kernel counts it: request lines, headers, chunk
/// framing and bodies; not the packets' own headers.
struct SocketBytes: Equatable {
  var connections = 0
  var sent: Int64 = 0
  var received: Int64 = 0

  static func now() -> SocketBytes {
    var total = SocketBytes()
    #if os(Linux)
      // struct tcp_info of linux/tcp.h: glibc's own declaration ends before these members (kernel 4.19 and later).
      let receivedOffset = 128
      let sentOffset = 200
      for descriptor in Int32(3)..<256 {
        var info = [UInt8](repeating: 0, count: 256)
        var length = socklen_t(info.count)
        guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, &info, &length) == 0,
          Int(length) >= sentOffset + 8
        else { continue }
        info.withUnsafeBytes {
          total.sent += $0.loadUnaligned(fromByteOffset: sentOffset, as: Int64.self)
          total.received += $0.loadUnaligned(fromByteOffset: receivedOffset, as: Int64.self)
        }
        total.connections += 1
      }
    #endif
    return total
  }
}

extension Sequence<Double> {
  /// The middle one; the mean of the middle two. 0 of none.
  var median: Double {
    let sorted = sorted()
    guard !sorted.isEmpty else { return 0 }
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
  }
}

extension Sequence<Int64> {
  var median: Int64 { Int64(map(Double.init).median) }
}

/// Seconds of wall and of CPU that something took.
struct Cost {
  var wall = 0.0
  var cpu = 0.0

  static func of(_ work: () throws -> Void) rethrows -> Cost {
    var cost = Cost()
    try cost.add(work)
    return cost
  }

  /// Adds what `work` takes.
  mutating func add(_ work: () throws -> Void) rethrows {
    let (wall, cpu) = (Measure.wall(), Measure.cpu())
    try work()
    self.wall += Measure.wall() - wall
    self.cpu += Measure.cpu() - cpu
  }
}

/// The value below which this share of them is.
func percentile(_ values: [Double], _ share: Double) -> Double {
  let sorted = values.sorted()
  return sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
}
