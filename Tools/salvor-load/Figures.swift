import Foundation
import SalvorModel

/// What was measured, by kind.
final class Figures: Sendable {
  struct Kind: Sendable {
    var milliseconds: [Double] = []
    var failures: [String: Int] = [:]

    var p50: Double { percentile(0.5) }
    var p99: Double { percentile(0.99) }

    private func percentile(_ share: Double) -> Double {
      guard !milliseconds.isEmpty else { return 0 }
      let sorted = milliseconds.sorted()
      return sorted[min(sorted.count - 1, Int(Double(sorted.count) * share))]
    }
  }

  private let kinds = Mutex<[String: Kind]>([:])

  func add(_ kind: String, milliseconds: Double) {
    kinds.withLock { $0[kind, default: Kind()].milliseconds.append(milliseconds) }
  }

  func fail(_ kind: String, _ why: String) {
    kinds.withLock { $0[kind, default: Kind()].failures[why, default: 0] += 1 }
  }

  var all: [(String, Kind)] { kinds.withLock { $0.sorted { $0.key < $1.key } } }
  subscript(kind: String) -> Kind { kinds.withLock { $0[kind] ?? Kind() } }
}

/// Milliseconds of this clock since `start`.
func milliseconds(since start: ContinuousClock.Instant) -> Double {
  (ContinuousClock.now - start) / .milliseconds(1)
}
