import SalvorModel
import SalvorWire

#if canImport(Glibc)
  @preconcurrency import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Salvor's benchmarks (docs/reference/benchmarks.md). It measures and shows; it judges nothing by its exit code.
@main
struct SalvorBench {
  static func main() async {
    // A process of this one that ended is an error, not this one's end.
    signal(SIGPIPE, SIG_IGN)
    let arguments = Array(CommandLine.arguments.dropFirst())
    do {
      if arguments.first == "role" {
        try await runRole(Array(arguments.dropFirst()))
      } else {
        try await runBenchmarks(BenchOptions(arguments))
      }
    } catch {
      fputs("salvor-bench: \(error)\n", stderr)
      exit((error as? SalvorError)?.code == .usage ? 2 : 1)
    }
  }
}

private func runRole(_ arguments: [String]) async throws {
  switch arguments.first {
  case "server": try await runServerRole(Array(arguments.dropFirst()))
  case "client": try await runClientRole(Array(arguments.dropFirst()))
  default: throw SalvorError(.usage, "role server … or role client …")
  }
}

private func runBenchmarks(_ options: BenchOptions) async throws {
  if options.help { return print(BenchOptions.usage, terminator: "") }
  if options.list {
    for workload in Workload.all { print("\(workload.name)  \(workload.summary)") }
    return
  }
  let bench = try Bench(options)
  defer { bench.removeDirectory() }
  var results: [WorkloadResult] = []
  for workload in Workload.all where options.only.isEmpty || options.only.contains(where: workload.isMeant) {
    results.append(try await workload.run(bench))
  }
  if options.json {
    let report: JSONValue = [
      "machine": machine(), "runs": .integer(Int64(options.runs)), "quick": .bool(options.isQuick),
      "workloads": .array(results.map(\.json)),
    ]
    print(report.text)
  } else {
    print(TableReport.text(results), terminator: "")
  }
}

/// What to know about the machine when figures are compared.
private func machine() -> JSONValue {
  let load = Measure.contents(of: "/proc/loadavg").split(separator: " ").first.map(String.init)
  let model = Measure.contents(of: "/proc/cpuinfo").split(separator: "\n")
    .first { $0.hasPrefix("model name") }?.split(separator: ":").last.map { $0.drop { $0 == " " } }
  return [
    "cores": .integer(Int64(sysconf(Int32(_SC_NPROCESSORS_ONLN)))),
    "processor": model.map { .string(String($0)) } ?? .null,
    "loadAverage": load.map(JSONValue.string) ?? .null,
  ]
}
