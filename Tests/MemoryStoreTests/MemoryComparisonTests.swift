import Foundation
import MemoryStore
import SalvorContracts
import Testing

/// The specification against itself: what is proved is that it converges, and that nothing in it depends on IDs.
/// `SALVOR_SEEDS=from-to` runs others, `SALVOR_TRACE=1` prints their steps.
@Suite struct MemoryComparisonTests {
  static let seeds: ClosedRange<UInt64> = {
    let bounds = (ProcessInfo.processInfo.environment["SALVOR_SEEDS"] ?? "").split(separator: "-").compactMap {
      UInt64($0)
    }
    return bounds.count == 2 && bounds[0] <= bounds[1] ? bounds[0]...bounds[1] : 1...40
  }()

  @Test("random histories converge (semantics 11.4)", arguments: seeds)
  func converges(_ seed: UInt64) async throws {
    try await StoreComparison(subject: memoryPair, specification: memoryPair).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of conflicts converge (semantics 7, 11.4)", arguments: seeds)
  func settles(_ seed: UInt64) async throws {
    try await StoreComparison(subject: memoryPair, specification: memoryPair, about: .conflicts).run(seed: seed) {
      step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of memberships converge, and tell no key too many (semantics 7, 11.4)", arguments: seeds)
  func moves(_ seed: UInt64) async throws {
    try await StoreComparison(subject: memoryPair, specification: memoryPair, about: .membership).run(seed: seed) {
      step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  /// 129: fixes and retries in a circle.
  @Test("a history of memberships that did not come to rest once", arguments: [129] as [UInt64])
  func movesNow(_ seed: UInt64) async throws { try await moves(seed) }

  @Test("random histories of flag columns converge (semantics 3, 11.4)", arguments: seeds)
  func marks(_ seed: UInt64) async throws {
    try await StoreComparison(subject: memoryPair, specification: memoryPair, about: .flags).run(seed: seed) {
      step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of subscriptions that change converge (semantics 1, 11.4)", arguments: seeds)
  func subscribes(_ seed: UInt64) async throws {
    try await StoreComparison(subject: memoryPair, specification: memoryPair, about: .subscriptions).run(
      seed: seed
    ) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories with deferred foreign keys converge (semantics 7, 11.4)", arguments: seeds)
  func defers(_ seed: UInt64) async throws {
    try await StoreComparison(subject: memoryPair, specification: memoryPair, about: .circles).run(seed: seed) {
      step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories with servers that go back converge (semantics 11.4)", arguments: seeds)
  func recovers(_ seed: UInt64) async throws {
    try await RecoveryComparison(subject: memoryPair, specification: memoryPair).run(seed: seed) { step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }

  @Test("random histories of flag columns with servers that go back converge (semantics 3, 11.4)", arguments: seeds)
  func recoversMarks(_ seed: UInt64) async throws {
    try await RecoveryComparison(subject: memoryPair, specification: memoryPair, about: .flags).run(seed: seed) {
      step in
      if ProcessInfo.processInfo.environment["SALVOR_TRACE"] != nil { print(step) }
    }
  }
}
