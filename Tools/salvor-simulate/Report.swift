import Foundation
import SalvorSimulation
import SalvorWire

/// What many histories came to, for people and as JSON.
struct Report {
  private let outcome: Runner.Outcome
  private let threads: Int
  private let swarm: String

  init(_ outcome: Runner.Outcome, threads: Int, swarm: String) {
    (self.outcome, self.threads, self.swarm) = (outcome, threads, swarm)
  }

  private var rate: Double { Double(outcome.coverage.histories) / max(outcome.seconds, 0.001) / Double(threads) }

  /// Broken rules, each with its seeds.
  private var rules: [(rule: String, seeds: [UInt64])] {
    var found: [String: [UInt64]] = [:]
    for (seed, violations) in outcome.violations {
      for rule in Set(violations.map(\.rule.rawValue)) { found[rule, default: []].append(seed) }
    }
    return found.sorted { $0.key < $1.key }.map { ($0.key, $0.value.sorted()) }
  }

  var text: String {
    let histories = outcome.coverage.histories
    var lines = ["", "what was met, of \(histories) histories (swarm \(swarm)):"]
    for (what, count) in outcome.coverage.counts.sorted(by: { $0.key < $1.key }) { lines.append("  \(count)\t\(what)") }
    let never = outcome.coverage.pairsNeverMet
    lines.append("pairs of features that never met: \(never.isEmpty ? "none" : "\(never.count)")")
    for pair in never.prefix(40) { lines.append("  \(pair)") }
    lines.append("")
    for (rule, seeds) in rules {
      let shown = seeds.prefix(12).map(String.init).joined(separator: " ")
      lines.append("\(seeds.count)\t\(rule): \(shown)\(seeds.count > 12 ? " …" : "")")
    }
    let speed = String(format: "%.1f histories a second and core, %.0f s", rate, outcome.seconds)
    lines.append("digest of all traces: \(String(outcome.digest, radix: 16))")
    lines.append("\(histories) histories, \(outcome.violations.count) with violations; \(speed)")
    return lines.joined(separator: "\n")
  }

  var json: JSONValue {
    let counts = outcome.coverage.counts.sorted { $0.key < $1.key }.map { ($0.key, JSONValue.integer(Int64($0.value))) }
    return [
      "histories": .integer(Int64(outcome.coverage.histories)),
      "seconds": .real(outcome.seconds),
      "perSecondAndCore": .real(rate),
      "jobs": .integer(Int64(outcome.jobs)),
      "digest": .string(String(outcome.digest, radix: 16)),
      "met": .object(counts.map { JSONValue.Member($0.0, $0.1) }),
      "pairsNeverMet": .array(outcome.coverage.pairsNeverMet.map(JSONValue.string)),
      "violations": .array(
        outcome.violations.sorted { $0.key < $1.key }.map { seed, violations in
          [
            "seed": .integer(Int64(bitPattern: seed)),
            "rules": .array(violations.map { .string($0.rule.rawValue) }),
            "messages": .array(violations.map { .string("\($0)") }),
          ]
        }),
    ]
  }
}
