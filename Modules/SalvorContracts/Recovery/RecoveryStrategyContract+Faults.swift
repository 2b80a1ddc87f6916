import SalvorModel
import SalvorRecovery
import SalvorStorage

/// A recovery that is struck at every place where it can be: it is resumed, and ends as without.
extension RecoveryStrategyContract {
  private static let rule = "semantics 9, journal; 11"

  /// More places than any recovery of the suite has.
  private static let placesMax = 400

  static let faultCases: [Case] = [
    Case("killed at every step, and again while it resumes, it is resumed", rule: rule) { subject in
      try await strike(subject, [.serverRestored, .operatorRequested], again: true) { .kill($0) }
    },
    Case("the network is cut before every request", rule: rule) { subject in
      try await strike(subject, [.serverRestored, .operatorRequested]) { .loseRequest($0) }
    },
    Case("the network is cut before every answer", rule: rule) { subject in
      try await strike(subject, [.serverRestored, .operatorRequested]) { .loseAnswer($0) }
    },
    Case("the disk is full at every write", rule: rule) { subject in
      try await strike(subject, [.serverRestored]) { .fillDisk($0) }
    },
    Case("the server is restored again before every request", rule: "semantics 9, guards: a new restore is not a cycle")
    {
      subject in
      try await strike(subject, [.serverRestored, .operatorRequested]) { .restoreServer($0) }
    },
  ]

  private static func strike(
    _ subject: RecoverySubject, _ reasons: [RecoveryReason], again: Bool = false, _ blow: (Int) -> Strikes.Blow
  ) async throws {
    for reason in reasons { try await strikeEverywhere(subject, reason, again: again, blow) }
  }

  /// One world for each place, until one is not reached any more.
  private static func strikeEverywhere(
    _ subject: RecoverySubject, _ reason: RecoveryReason, again: Bool, _ blow: (Int) -> Strikes.Blow
  ) async throws {
    // Other strategies and reasons are struck at other places, and the same ones each time.
    var generator = SeededGenerator((subject.strategy.name + reason.rawValue).utf8.reduce(7) { $0 &* 31 &+ UInt64($1) })
    let gapMax = subject.placeStride * 2 - 1
    var place = 1 + generator.below(min(gapMax, 2))
    while place <= placesMax {
      let second = 1 + generator.below(20)
      // Nobody is waited for: the recovery is struck from its beginning to its end.
      let world = try await RecoveryWorld(subject, deletesItself: true)
      let hasStruck: Bool
      do {
        hasStruck = try await strike(
          world, reason, blow(place), again: again && place.isMultiple(of: 2) ? second : nil)
      } catch {
        await world.close()
        throw ContractFailure("\(reason.rawValue), \(blow(place)): \(error)")
      }
      await world.close()
      if !hasStruck {
        try expect(place > 2, "nothing was struck: the recovery made no step")
        return
      }
      place += 1 + generator.below(gapMax)
    }
    throw ContractFailure("a recovery has more than \(placesMax) steps")
  }

  /// False: the place was not reached.
  private static func strike(
    _ world: RecoveryWorld, _ reason: RecoveryReason, _ blow: Strikes.Blow, again: Int?
  ) async throws -> Bool {
    let story = try await world.tell(reason, .unanswered)
    let before = try await world.view()
    world.strikes.arm(blow)
    _ = await world.sync()
    let hasStruck = world.strikes.hasStruck
    if case .kill = blow {
      try await world.reopen()
      if let again {
        world.strikes.arm(.kill(again))
        _ = await world.sync()
        try await world.reopen()
      }
    }
    world.strikes.arm(nil)
    let report = try await world.settle()
    if report.outcome == .recoveryRequired {
      try expectEqual(
        world.subject.strategy.guarantees.unsyncedChanges, .untouched, "it waits for a person; the guarantee")
      try await world.expectUntouched(before, reason.rawValue)
    } else {
      var isRestored = false
      if case .restoreServer = blow { isRestored = hasStruck }
      try await world.expectRecovered(story, mayBeLostAgain: isRestored)
      if reason == .operatorRequested, !isRestored { try await world.expectOneRecovery(reason) }
    }
    return hasStruck
  }
}
