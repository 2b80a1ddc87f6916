import Dispatch
import SalvorModel
import SalvorWire

#if canImport(Glibc)
  @preconcurrency import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What the parent says to a role, line by line, read on a thread of its own: the cooperative pool has only as many
/// threads as there are cores, and a role that waits for a command must not take one of them.
func roleCommands() -> AsyncStream<JSONValue> {
  AsyncStream { continuation in
    DispatchQueue(label: "salvor-bench.commands").async {
      while let line = readLine() {
        if let command = try? JSONValue(parsing: Array(line.utf8)) { continuation.yield(command) }
      }
      continuation.finish()
    }
  }
}

/// One answer line to the parent.
func reply(_ members: [(String, JSONValue)]) {
  let bytes = JSONValue.object(members.map { .init($0.0, $0.1) }).bytes + [0x0A]
  bytes.withUnsafeBytes { _ = write(1, $0.baseAddress, $0.count) }
}

/// What a process has used so far.
func usage() -> [(String, JSONValue)] {
  [
    ("peak", .integer(Measure.peakMemory())), ("resident", .integer(Measure.residentMemory())),
    ("cpu", .real(Measure.cpu())),
  ]
}
