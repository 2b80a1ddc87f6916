import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage
import SalvorWire

/// A strategy as a planner: incident in, decision out.
extension RecoveryStrategyContract {
  private static let planRule = "RecoveryStrategy.swift, plan"

  static let planCases: [Case] = [
    Case("its name is a module's name, and it does not fall back on itself", rule: "RecoveryStrategy.swift") {
      subject in
      let strategy = subject.strategy
      try expect(ModuleRegistry.isModuleName(strategy.name), "\(strategy.name) is no module name")
      try expect(strategy.fallBack != strategy.name, "it falls back on itself")
    },
    Case("its fall-back is a strategy of the host", rule: "RecoveryStrategy.swift, fallBack") { subject in
      guard let fallBack = subject.strategy.fallBack, fallBack != StrategyChain.manual else { return }
      try expect(
        subject.known.contains(fallBack),
        "it falls back on \(fallBack), which is none of \(subject.known.sorted().joined(separator: ", ")) (RecoverySubject.known)"
      )
    },
    Case("the same incident has the same plan, however often and in whichever order it is asked", rule: planRule) {
      subject in
      var incidents: [Incident] = []
      try each { incidents.append($0) }
      let first = incidents.map { subject.strategy.plan(for: $0) }
      for round in 2...5 {
        let places = round % 2 == 0 ? Array(incidents.indices.reversed()) : Array(incidents.indices)
        for place in places {
          let incident = incidents[place]
          try expectEqual(
            subject.strategy.plan(for: incident), first[place],
            "\(incident.reason.rawValue): the plan, asked \(round) times")
        }
      }
    },
    Case(
      "what becomes of unsynced changes is as declared, however many wait and whatever is in the archive",
      rule: planRule
    ) {
      subject in
      for reason in RecoveryReason.allCases where reason != .localCorruption {
        for differences in [[], ["table a: dropped or renamed"]] {
          try meetAmounts(incident(reason, differences: differences), subject)
        }
      }
    },
    Case("a plan recovers or waits at its end, and applies nothing that was not fetched", rule: planRule) { subject in
      try each { incident in
        switch subject.strategy.plan(for: incident) {
        case .cannot(let why): try expect(why.count > 10, "\(incident.reason.rawValue): it does not say why it cannot")
        case .steps(let steps):
          let names = steps.map(\.name)
          try expect(
            ["apply", "wait"].contains(names.last ?? ""), "\(incident.reason.rawValue): the plan ends with \(names)")
          try expectEqual(Set(names).count, names.count, "the steps of \(names), each once")
          if names.last == "apply" {
            try expect(names.dropLast().last == "fetch", "the step before apply is \(names.dropLast().last ?? "none")")
          }
          if let upload = names.firstIndex(of: "upload") {
            try expect(names.firstIndex(of: "fetch") ?? 0 > upload, "what waits is uploaded after the fetch")
          }
        }
      }
    },
    Case("tables that are made anew are copied before, with nothing in their queue", rule: "semantics 9, backup") {
      subject in
      try each { incident in
        guard case .steps(let steps) = subject.strategy.plan(for: incident) else { return }
        for case .apply(let requests, let rebuild) in steps where rebuild != .nothing {
          try expectEqual(requests, .discard, "what becomes of the queue where tables are made anew")
          try expect(steps.first == .copy, "the plan's first step is \(steps.first?.name ?? "none"), must be copy")
        }
      }
    },
    Case("a damaged file is made anew whole, or left to a person", rule: "semantics 9, local-corruption") { subject in
      try each { incident in
        guard incident.reason == .localCorruption, case .steps(let steps) = subject.strategy.plan(for: incident),
          steps.last != .wait
        else { return }
        try expect(makesAnew(steps), "a plan of \(steps.map(\.name)) needs what a damaged file held")
      }
    },
  ]

  private static let amounts: [Int64] = [1, 2, 10, 50, 51, 100, 101, 999, 1_001, 10_001, 100_001, 1_000_001]

  /// A strategy must treat unsynced changes alike, however many there are and whatever the archive holds. One that discards where
  /// much waits passes every small case and loses data in use.
  private static func meetAmounts(_ incident: Incident, _ subject: RecoverySubject) throws {
    let declared = subject.strategy.guarantees.unsyncedChanges
    var first: String?
    for queued in amounts {
      for (inError, displaced, kept) in [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (51, 51, 51), (0, 0, 10_001)] {
        var incident = incident
        incident.status.queued = queued
        incident.status.inError = Int64(inError)
        incident.status.displaced = Int64(displaced)
        incident.status.kept = Int64(kept)
        let outcome = outcome(of: subject.strategy.plan(for: incident))
        let what =
          "\(incident.reason.rawValue), \(queued) changes, \(inError) in error, \(displaced) displaced, \(kept) kept"
        try expectEqual(
          outcome, first ?? outcome, "\(what): the outcome for unsynced changes, compared with one change alone")
        first = outcome
        switch (declared, outcome) {
        case (.kept, "discard"): throw ContractFailure("\(what): the changes are discarded; they are declared kept")
        case (.uploaded, "discard"), (.uploaded, "keep"):
          throw ContractFailure("\(what): the changes are not uploaded; they are declared uploaded")
        case (.untouched, "discard"), (.untouched, "keep"), (.untouched, "upload"):
          throw ContractFailure("\(what): the changes are touched; they are declared untouched")
        default: break
        }
      }
    }
  }

  /// In a word.
  private static func outcome(of decision: RecoveryDecision) -> String {
    guard case .steps(let steps) = decision else { return "cannot" }
    if steps.contains(.upload) { return "upload" }
    for case .apply(let requests, _) in steps { return requests.rawValue }
    return "wait"
  }

  /// Nothing of the old database is needed for these steps.
  static func makesAnew(_ steps: [RecoveryStep]) -> Bool {
    guard case .apply(_, let rebuild) = steps.last else { return false }
    return rebuild != .nothing && !steps.contains(.upload)
  }

  /// Every reason, with and without the server's consent, with and without a destructive difference.
  private static func each(_ body: (Incident) throws -> Void) throws {
    for reason in RecoveryReason.allCases {
      for (hasConsent, differences) in [(true, []), (false, []), (true, ["table a: dropped or renamed"])] {
        try body(incident(reason, hasConsent: hasConsent, differences: differences))
      }
    }
  }

  static func incident(_ reason: RecoveryReason, hasConsent: Bool = true, differences: [String] = []) -> Incident {
    let random = SystemRandom()
    let facts = RecoveryFacts(
      token: "t", server: ServerID(from: random), incarnation: IncarnationID(from: random), principal: "anna",
      reason: reason, shared: nil, trimmed: 0, head: Commit(number: 7, id: CommitID(from: random)),
      stored: SequenceID(from: random), scopes: [:], rows: 10, clientRecoveryEnabled: hasConsent,
      selfServiceRemoteDeletion: false, differences: differences)
    let state = ClientState(remoteID: RemoteID(from: random), principal: "anna")
    return Incident(
      reason: reason, message: "of the suite", facts: facts,
      status: ClientStatus(state: state, queued: 2, inError: 1, displaced: 0, kept: 0))
  }
}
