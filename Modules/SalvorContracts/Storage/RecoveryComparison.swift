import SalvorModel
import SalvorStorage

/// As `StoreComparison`, with a server that goes back to its backups and forgets its history, and devices that recover:
/// rows of all sides, queue, archive and reports after every step, and convergence at the end.
///
/// The servers must be restorable (`StoreSubject.makeRestorable`), and all stores recover.
public struct RecoveryComparison: Sendable {
  /// The stores under test.
  public var subject: StorePairSubject
  /// The stores that say what is right, e.g. `MemoryClientStore` and `MemoryServerStore`.
  public var specification: StorePairSubject
  /// What the histories are about.
  public var theme: Theme

  /// Which schemas a history is drawn from.
  public enum Theme: Sendable {
    /// The schemas of `StoreComparison` for this theme; no device offers what the server lost.
    case everything
    /// Tables with dirty and deleted columns of the application's own: marks wait, are sent, and are refused.
    case flags
    /// Devices offer what the server lost (semantics 10).
    case healing
  }

  /// The servers of both pairs must be restorable (`StoreSubject.makeRestorable`).
  public init(subject: StorePairSubject, specification: StorePairSubject, about theme: Theme = .everything) {
    self.subject = subject
    self.specification = specification
    self.theme = theme
  }

  private var settings: [StoreComparison.Setting] {
    switch theme {
    case .everything, .healing: StoreComparison.settings
    case .flags: StoreComparison.flagSettings
    }
  }

  private enum Step: CustomStringConvertible {
    case plain(HistoryStep)
    /// An ordinary sync, or, where the histories have parted, the recovery that is wished for.
    case sync(Int, SyncCut, RecoveryWish)
    /// The operator demands it.
    case recover(Int, RecoveryWish)
    case copyServer(Int)
    case putServerBack(Int)
    case trimServer

    var description: String {
      switch self {
      case .plain(let step): step.description
      case .sync(let client, let cut, let wish): "client \(client) syncs, cut: \(cut), or recovers: \(wish)"
      case .recover(let client, let wish): "client \(client) recovers: \(wish)"
      case .copyServer(let slot): "the server is copied to \(slot)"
      case .putServerBack(let slot): "the server goes back to copy \(slot)"
      case .trimServer: "the server forgets its history"
      }
    }
  }

  /// Runs one history. The seed draws the schema too. Throws `ContractFailure` with the seed, the step and what differs;
  /// `trace` hears of every step.
  public func run(seed: UInt64, steps: Int = 60, trace: (String) -> Void = { _ in }) async throws {
    let settings = settings
    let setting = settings[Int(seed % UInt64(settings.count))]
    var found = try await PairBench(subject, setting.schema, principals: setting.principals)
    var wanted = try await PairBench(specification, setting.schema, principals: setting.principals)
    do {
      try await run(seed, steps, &found, &wanted, trace)
    } catch {
      await found.close()
      await wanted.close()
      throw error
    }
    await found.close()
    await wanted.close()
  }

  private func run(
    _ seed: UInt64, _ steps: Int, _ found: inout PairBench, _ wanted: inout PairBench, _ trace: (String) -> Void
  ) async throws {
    var random = SeededGenerator(seed &* 31)
    var history = RandomHistory(
      schema: wanted.schema, clients: wanted.clients.count, random: SeededGenerator(seed))
    if theme == .flags, seed % 4 == 1 {
      found.driver.refusedOneOf = 5
      wanted.driver.refusedOneOf = 5
    }
    var copies: Set<Int> = []
    for number in 1...steps {
      let step = try await step(&random, &history, wanted, copies)
      if case .copyServer(let slot) = step { copies.insert(slot) }
      trace("\(number): \(step)")
      do {
        let wantedResult = try await Self.perform(step, &wanted)
        trace("   specification: \(wantedResult.trace)")
        let foundResult = try await Self.perform(step, &found)
        trace("   subject: \(foundResult.trace)")
        try expectEqual(foundResult.summary, wantedResult.summary, "the outcome")
        try await StoreComparison.compare(found, wanted)
      } catch {
        throw ContractFailure("seed \(seed), step \(number) (\(step)): \(error)")
      }
    }
    for index in found.clients.indices {
      trace("at the end, client \(index)")
      do {
        for step in [Step.sync(index, .none, RecoveryWish())] {
          let wantedResult = try await Self.perform(step, &wanted)
          trace("   specification: \(wantedResult.trace)")
          let foundResult = try await Self.perform(step, &found)
          trace("   subject: \(foundResult.trace)")
          try expectEqual(foundResult.summary, wantedResult.summary, "the outcome")
        }
        try await wanted.expectConverged(index)
        try await found.expectConverged(index)
        try await StoreComparison.compare(found, wanted)
      } catch {
        throw ContractFailure("seed \(seed), at the end, client \(index): \(error)")
      }
    }
  }

  private func step(
    _ random: inout SeededGenerator, _ history: inout RandomHistory, _ bench: PairBench, _ copies: Set<Int>
  ) async throws -> Step {
    let slot = random.below(2)
    switch random.below(100) {
    case 0..<8: return .copyServer(slot)
    case 8..<15 where copies.contains(slot): return .putServerBack(slot)
    case 15..<18: return .trimServer
    case 18..<22: return .recover(random.below(bench.clients.count), wish(&random))
    default: break
    }
    let step = try await history.step { client in
      var rows: [String: [Row]] = [:]
      for table in client == nil ? bench.schema.synchronized : bench.schema.tables {
        if let client {
          rows[table.name] = try await bench.clients[client].store.rows(of: table.name)
        } else {
          rows[table.name] = try await bench.server.store.rows(of: table.name)
        }
      }
      return rows
    }
    // Groups stay together here: which of them is behind is not what is compared.
    if case .sync(let client, _, let cut) = step { return .sync(client, cut, wish(&random)) }
    return .plain(step)
  }

  private func wish(_ random: inout SeededGenerator) -> RecoveryWish {
    var wish = Self.wish(&random)
    if theme == .healing { wish.heal = [.own, .own, .all, .off][random.below(4)] }
    return wish
  }

  private static func wish(_ random: inout SeededGenerator) -> RecoveryWish {
    switch random.below(20) {
    case 0..<2: RecoveryWish(requests: .discard)
    case 2: RecoveryWish(requests: .discard, rebuild: .synchronizedTables, takesNewRemoteID: true)
    case 3: RecoveryWish(requests: .discard, rebuild: .everything, takesNewRemoteID: true)
    case 4: RecoveryWish(takesNewRemoteID: true)
    default: RecoveryWish()
    }
  }

  /// What stores must agree on.
  private static func perform(_ step: Step, _ bench: inout PairBench) async throws -> StoreComparison.Outcome {
    switch step {
    case .plain(let step): return try await StoreComparison.perform(step, &bench)
    case .copyServer(let slot): try await bench.server.copy(to: slot)
    case .putServerBack(let slot): try await bench.server.putBack(from: slot)
    case .trimServer: try await bench.server.store.trim(before: Int64.max)
    case .recover(let client, let wish): return StoreComparison.Outcome(summary: try await recover(client, wish, bench))
    case .sync(let client, let cut, let wish):
      if try await RecoveryDriver(bench, client).reason() != nil {
        return StoreComparison.Outcome(summary: try await recover(client, wish, bench))
      }
      return try await StoreComparison.perform(.sync(client, groups: nil, cut: cut), &bench)
    }
    return StoreComparison.Outcome(summary: "done")
  }

  private static func recover(_ client: Int, _ wish: RecoveryWish, _ bench: PairBench) async throws -> String {
    var driver = try RecoveryDriver(bench, client)
    let report = try await driver.recover(wish)
    guard let store = bench.clients[client].store as? any RecoveringClientStore else { return "" }
    let lines = try await store.recoveryItems(report.id, after: 0, limit: 100_000).map { item in
      let after = item.after.map { "\($0.name)=\($0.value)" }.joined(separator: ",")
      return "\(item.fate.rawValue) \(item.operation?.rawValue ?? "-") \(item.table) \(item.key) [\(after)] "
        + (item.reason ?? "-")
    }
    let counts = report.counts
    return "\(report.reason.rawValue): kept \(counts.kept), merged \(counts.merged), discarded \(counts.discarded), "
      + "upserts \(wish.rebuild == .nothing ? counts.upserts : 0), "
      + "deletes \(wish.rebuild == .nothing ? counts.deletes : 0), lost \(counts.lost); \(lines.sorted())"
  }
}
