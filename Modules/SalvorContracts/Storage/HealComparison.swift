import SalvorModel
import SalvorStorage

/// Random uploads with offers, on a server's store and on the specification: rows, answers and conflict versions must be the
/// same (semantics 10).
public struct HealComparison: Sendable {
  private let subject: StoreSubject<any ServerStore>
  private let specification: StoreSubject<any ServerStore>

  /// `specification` says what is right, e.g. `MemoryServerStore`. Neither needs to be restorable.
  public init(subject: StoreSubject<any ServerStore>, specification: StoreSubject<any ServerStore>) {
    self.subject = subject
    self.specification = specification
  }

  private static let schemas = [
    ContractSchemas.notes(), ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
    ContractSchemas.notes(unique: [["title"]]),
    ContractSchemas.notes(conflicts: ContractPolicies.serverWins, unique: [["body"]]),
  ]

  /// Throws `ContractFailure` with the seed, the step and what differs.
  public func run(seed: UInt64, steps: Int = 60, trace: (String) -> Void = { _ in }) async throws {
    let schema = Self.schemas[Int(seed % UInt64(Self.schemas.count))]
    var found = try await ServerBench(subject, schema)
    var wanted = try await ServerBench(specification, schema)
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

  private enum Step {
    case write(ApplicationWrite)
    case upload(Int, [Sent], lost: [IncarnationID], made: Int64)
    case restart, trim
  }

  private func run(
    _ seed: UInt64, _ steps: Int, _ found: inout ServerBench, _ wanted: inout ServerBench, _ trace: (String) -> Void
  ) async throws {
    var random = SeededGenerator(seed)
    let incarnations = ["a", "b", "c"].compactMap { IncarnationID(String(repeating: $0, count: 32)) }
    var foundDevices: [Device] = [], wantedDevices: [Device] = []
    for name in ["anna", "bert"] {
      foundDevices.append(try await found.device(name))
      wantedDevices.append(try await wanted.device(name))
    }
    var fresh = 0
    for number in 1...steps {
      let head = try await wanted.store.sweep().number
      let step = Self.step(&random, incarnations, head: head, &fresh)
      trace("\(number): \(step)")
      do {
        switch step {
        case .write(let write):
          let a: Void? = try? await found.store.write([write])
          let b: Void? = try? await wanted.store.write([write])
          try expectEqual(a == nil, b == nil, "whether the write is refused")
        case .upload(let place, let sent, let lost, let made):
          let a = try await Self.upload(&foundDevices[place], found, sent, lost, made)
          let b = try await Self.upload(&wantedDevices[place], wanted, sent, lost, made)
          trace("   specification: \(b)\n   subject: \(a)")
          try expectEqual(a, b, "the answer")
        case .restart:
          try await found.restart()
          try await wanted.restart()
        case .trim:
          try await found.store.trim(before: .max)
          try await wanted.store.trim(before: .max)
        }
        try expectEqual(try await found.store.sweep().number, try await wanted.store.sweep().number, "the head")
        try expectEqual(
          try await found.store.rows(of: "note"), try await wanted.store.rows(of: "note"), "the server's rows")
        try expectEqual(try await Self.conflicts(found), try await Self.conflicts(wanted), "the conflict versions")
      } catch { throw ContractFailure("seed \(seed), step \(number) (\(step)): \(error)") }
    }
  }

  private static func upload(
    _ device: inout Device, _ bench: ServerBench, _ sent: [Sent], _ lost: [IncarnationID], _ made: Int64
  ) async throws -> String {
    // The store is another one after a restart.
    var now = bench.following(device)
    now.lost = lost
    let chunk = now.chunk(sent, made: made)
    let results = try await now.process([chunk], as: SequenceID(from: SystemRandom()))
    device = now
    return
      "accepted \(results.acceptedRequests), conflicts \(results.conflicts), healed \(results.healed), superseded "
      + "\(results.superseded), refused \(results.refused.map { "\($0.counter) \($0.reason.rawValue)" })"
  }

  private static func conflicts(_ bench: ServerBench) async throws -> [String] {
    try await bench.store.conflicts(after: 0, limit: 10_000, state: nil).map { version in
      let columns = version.client.columns.map { "\($0.name): \($0.old?.description ?? "-") > \($0.new)" }
      let row = version.server.row.map { $0.map { "\($0.name)=\($0.value)" }.joined(separator: ",") }
      let offer = version.client.offer.map { "\($0.incarnation.text.prefix(1)) \($0.number)" }
      return
        "\(version.state.rawValue) \(version.client.operation.rawValue) \(version.key) \(columns), server \(row ?? "none"), "
        + "of \(offer ?? "-")"
    }.sorted()
  }

  private static func step(
    _ random: inout SeededGenerator, _ incarnations: [IncarnationID], head: Int64, _ fresh: inout Int
  ) -> Step {
    func key() -> Value { .text("n\(random.below(4))") }
    // A value that no row has had: what is changed and changed back at once, a log tells, and the specification does not.
    func value() -> Value {
      fresh += 1
      return random.chance(25) ? .text("v\(random.below(3))") : .text("w\(fresh)")
    }
    func newValue() -> Value {
      fresh += 1
      return .text("w\(fresh)")
    }
    func change() -> Sent {
      switch random.below(5) {
      case 0, 1: .insert("note", ["id": key(), "title": value(), "body": value()])
      case 2: .delete("note", [key()])
      case 3: .update("note", [key()], [("title", value(), value())])
      default: .update("note", [key()], [("title", value(), value()), ("body", value(), value())])
      }
    }
    switch random.below(20) {
    case 0: return .restart
    case 1: return random.chance(20) ? .trim : .restart
    case 2, 3: return .write(.insert("note", ["id": key(), "title": newValue(), "body": newValue()]))
    case 4: return .write(.update("note", [key()], ["title": newValue()]))
    case 5: return .write(.update("note", [key()], ["body": newValue()]))
    case 6: return .write(.delete("note", [key()]))
    default:
      var lost = random.chance(60) ? incarnations : [incarnations[0], incarnations[random.chance(50) ? 1 : 2]]
      if random.chance(3) { lost.reverse() }
      if random.chance(10) { lost = [lost[0]] }
      var seen: Set<Int> = []
      var sent: [Sent] = []
      for _ in 0...random.below(3) {
        // One change of each row in an upload, as devices make them.
        let place = random.below(4)
        guard seen.insert(place).inserted else { continue }
        var made = change().of(.text("n\(place)"))
        if random.chance(75) {
          let parting = max(0, head - Int64(random.below(4)))
          let version = LostVersion(
            incarnation: random.pick(lost), number: parting + 1 + Int64(random.below(4)), parting: parting)
          let written: [String] =
            switch made {
            case .insert: ["title"]
            case .update(_, _, let columns): columns.map(\.0)
            case .delete: ["id", "title", "body"]
            default: []
            }
          made = .offer(version, made, written: random.chance(25) ? written : [])
        }
        sent.append(made)
      }
      return .upload(random.below(2), sent, lost: lost, made: max(0, head - Int64(random.below(2))))
    }
  }

}

extension Sent {
  /// The same change of another row.
  fileprivate func of(_ key: Value) -> Sent {
    switch self {
    case .insert(let table, let values):
      .insert(table, ["id": key, "title": values[1].value, "body": values[2].value])
    case .update(let table, _, let columns): .update(table, [key], columns)
    case .delete(let table, _): .delete(table, [key])
    default: self
    }
  }
}
