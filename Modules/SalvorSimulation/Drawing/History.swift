/// What a seed says: the schema, who takes part, and the steps.
public struct History: Sendable, Hashable {
  /// How one device of a history is configured.
  public struct Device: Sendable, Hashable {
    /// Whom the device synchronizes as: one of `principals`.
    public var principal: String
    /// The module of `client.recovery.strategy`: one of `strategies`.
    public var strategy: String
    /// For `server-replaced`, which is manual otherwise.
    public var replacedStrategy: String?
    /// `client.errorArchive.individualDeletion`: entries of the error archive are deleted one by one.
    public var individualDeletion: Bool
    /// `client.queue.optimise`: changes of one row that wait become one request.
    public var optimises: Bool
    /// The device's transport prefers gzip; false: `identity`.
    public var gzip: Bool
    /// Nil: as it is by default.
    public var heal: String?
  }

  /// What everything else follows from, and what chooses the order of jobs and the faults while the history runs.
  public var seed: UInt64
  /// The features that were drawn for this seed.
  public var swarm: Swarm
  /// The schema of both sides at the beginning.
  public var schema: DrawnSchema
  /// At least one; a step names a device by its place here.
  public var devices: [Device]
  /// In the order in which they run. `Step.id` is the place in the whole history, also where steps were left out.
  public var steps: [Step]

  /// The names of those whom devices synchronize as. Without scopes all devices are the first one's.
  public static let principals = ["anna", "bert"]

  /// The recovery strategies to draw from. Without the feature `strategies` every device has the first one.
  public static let strategies = [
    "recover-unsynced-changes", "recover-or-discard-unsynced-changes", "discard-unsynced-changes", "recreate",
    "copy-and-resubscribe", "upload-then-recreate", "manual",
  ]

  /// - Parameters:
  ///   - features: what is drawn from (`Swarm.names`).
  ///   - steps: how many there are.
  public static func draw(seed: UInt64, features: Set<Feature>, steps: Int) -> History {
    var generator = SeededGenerator(seed: seed &* 2 &+ 1)
    let swarm = Swarm.draw(&generator, named: features, steps: steps)
    let schema = DrawnSchema.draw(&generator, swarm)
    let devices = (0..<swarm.devices).map { _ in Device.draw(&generator, swarm) }
    var drawing = StepDrawing(schema: schema, swarm: swarm, devices: devices)
    let list = (0..<steps).map { id in Step(id: id, action: drawing.action(id, &generator)) }
    return History(seed: seed, swarm: swarm, schema: schema, devices: devices, steps: list)
  }

  /// The same without some of its steps.
  public func keeping(_ steps: [Step]) -> History {
    var other = self
    other.steps = steps
    return other
  }
}

extension History.Device {
  fileprivate static func draw(_ generator: inout SeededGenerator, _ swarm: Swarm) -> History.Device {
    let strategies = swarm.has(.strategies) ? History.strategies : ["recover-unsynced-changes"]
    let strategy = generator.pick(strategies) ?? "recover-unsynced-changes"
    let replaced = generator.chance(50) ? generator.pick(History.strategies) : nil
    // Older seeds draw it where it is the only scope that there is.
    var own = generator.derived(7)
    let principal =
      swarm.has(.scopes)
      ? generator.pick(History.principals) ?? "anna"
      : swarm.has(.parameterScopes) || swarm.has(.joinScopes) || swarm.has(.subscriptions)
        ? own.pick(History.principals) ?? "anna" : "anna"
    return History.Device(
      principal: principal,
      strategy: strategy, replacedStrategy: swarm.has(.strategies) ? replaced : nil,
      individualDeletion: generator.chance(40), optimises: generator.chance(20),
      gzip: swarm.has(.gzip) && generator.chance(50),
      heal: swarm.has(.heal) ? own.pick(healModes(swarm)) : nil)
  }
}

private func healModes(_ swarm: Swarm) -> [String] {
  swarm.has(.consent) ? ["own", "own", "all", "review", "off"] : ["own", "own", "own", "all", "off"]
}

/// Draws what happens next.
private struct StepDrawing {
  let schema: DrawnSchema
  let swarm: Swarm
  let devices: [History.Device]

  private enum Kind {
    case write, program, sync, pair, twoProcesses, crash, restartDevice, restartServer, backup, restore, replace, trim,
      copy, putBack, clone, dropTriggers, deleteErrors, deleteKept, retry, reapply, withdraw, recover, deleteRemote,
      demandReset, resolve, evolveServer, evolveDevice, clockJump, verify, wait,
      powerCut, diskFault, migrate, look, subscribe, unsubscribe, leave, purge, acceptOffers, paceHealing, duel, watch,
      setHeal, setTableHeal, syncGroups, uproot, moveTable, setHome, writeFault,
      changeSchema, rebuild, hold
  }

  /// The tables that a device can choose rows of.
  private var byRegion: [String] { schema.tables.filter(\.hasRegion).map(\.name) }

  private func weights(_ id: Int) -> [(Int, Kind)] {
    func when(_ feature: Feature, _ weight: Int) -> Int { swarm.has(feature) ? weight : 0 }
    return [
      (40, .write), (when(.programs, 10), .program), (34, .sync), (when(.pairs, 6), .pair),
      (when(.twoProcesses, 4), .twoProcesses), (when(.crashes, 6), .crash), (2, .restartDevice), (1, .restartServer),
      (when(.serverRestore, 6), .backup), (id > 4 ? when(.serverRestore, 5) : 0, .restore),
      (when(.serverReplaced, 1), .replace), (when(.trim, 2), .trim),
      (when(.deviceRestore, 4), .copy), (when(.deviceRestore, 3), .putBack), (when(.clones, 2), .clone),
      (when(.missingTriggers, 2), .dropTriggers), (when(.archiveCommands, 4), .deleteErrors),
      (when(.archiveCommands, 1), .deleteKept), (when(.archiveCommands, 4), .retry),
      (when(.archiveCommands, 2), .reapply), (when(.archiveCommands, 2), .withdraw),
      (when(.recoverByHand, 3), .recover), (when(.remotesDeleted, 2), .deleteRemote),
      (when(.remotesDeleted, 1), .demandReset), (when(.conflictsResolved, 3), .resolve),
      (when(.evolution, 1), .evolveServer), (when(.evolution, 3), .evolveDevice), (when(.clockJumps, 2), .clockJump),
      (1, .verify), (1, .wait), (when(.powerCuts, 6), .powerCut), (when(.diskFaults, 5), .diskFault),
      (when(.migrations, 2), .migrate), (when(.looks, 4), .look),
      (byRegion.isEmpty ? 0 : when(.subscriptions, 7), .subscribe),
      (byRegion.isEmpty ? 0 : when(.subscriptions, 4), .unsubscribe), (id > 10 ? when(.absences, 2) : 0, .leave),
      (when(.purges, 3), .purge), (when(.consent, 4), .acceptOffers), (when(.consent, 2), .paceHealing),
      (devices.count > 1 ? when(.consent, 8) : 0, .duel), (when(.watches, 5), .watch),
      (when(.healChanges, 8), .setHeal), (when(.healChanges, 3), .setTableHeal), (when(.partSyncs, 24), .syncGroups),
      (when(.partSyncs, 8), .uproot),
      (when(.movedTables, 2), .moveTable), (byRegion.isEmpty ? 0 : when(.groupSubscriptions, 4), .setHome),
      (when(.writeFaults, 6), .writeFault), (when(.schemaChanges, 7), .changeSchema),
      (when(.schemaChanges, 4), .evolveDevice), (when(.rebuilds, 5), .rebuild),
      (when(.openTransactions, 9), .hold),
    ]
  }

  mutating func action(_ id: Int, _ generator: inout SeededGenerator) -> Step.Action {
    // What a step draws for itself moves no other step.
    var own = generator.derived(id)
    _ = generator.next()
    let device = own.below(devices.count)
    let slot = own.below(2)
    switch own.pick(weighted: weights(id)) ?? .sync {
    case .write: return .write(device: device, statements: statements(device, id, &own))
    case .program: return .program(statements: programStatements(id, &own))
    case .watch:
      let turns = (0..<(1 + own.below(3))).map { turn in
        // Notes that no other turn has.
        let place = id + 1000 * (turn + 1)
        return Step.Turn(
          seconds: own.pick([0, 1, 7, 90]) ?? 1, statements: own.chance(70) ? statements(device, place, &own) : [],
          program: swarm.has(.programs) && own.chance(40) ? programStatements(place, &own) : [],
          restartsServer: swarm.has(.watchedEnds) && own.chance(40),
          kill: swarm.has(.watchedKills) && own.chance(50) ? 1 + own.below(own.chance(50) ? 8 : 25) : nil)
      }
      let faults = faults(&own)
      let isPart = swarm.has(.partSyncs) && own.chance(50)
      return .watch(device: device, groups: isPart ? someGroups(&own) : nil, faults: faults, turns: turns)
    case .hold:
      return .hold(
        device: device, statements: own.chance(65) ? statements(device, id, &own) : nil,
        after: own.below(own.pick([6, 30]) ?? 6),
        jobs: 1 + own.below(own.pick([4, 15, 60]) ?? 15), commits: own.chance(80))
    case .syncGroups: return .syncGroups(device: device, groups: someGroups(&own), faults: faults(&own))
    case .sync:
      let isBusy = swarm.has(.writesMeanwhile) && own.chance(20)
      return .sync(
        device: device, faults: faults(&own), meanwhile: isBusy ? statements(device, id, &own) : [])
    case .pair:
      guard devices.count > 1 else { return .twoProcesses(device: device) }
      return .pair(device, (device + 1 + own.below(devices.count - 1)) % devices.count, faults: faults(&own))
    case .twoProcesses: return .twoProcesses(device: device)
    case .crash: return .crash(device: device, call: 1 + own.below(own.chance(50) ? 12 : 30))
    case .restartDevice: return .restartDevice(device)
    case .restartServer: return .restartServer
    case .backup: return .backup(slot: slot)
    case .restore:
      let sideFile = !(swarm.has(.sideFileLost) && own.chance(40))
      return .restore(slot: slot, sideFile: sideFile, inPlace: swarm.has(.restoreInPlace) && own.chance(60))
    case .replace: return .replaceServer
    case .trim: return .trim
    case .copy: return .copyDevice(device, slot: slot)
    case .putBack: return .putBack(device, slot: slot, identity: own.chance(60))
    case .clone:
      guard devices.count > 1 else { return .restartDevice(device) }
      let other = (device + 1 + own.below(devices.count - 1)) % devices.count
      return .clone(from: device, to: other, identity: own.chance(50))
    case .dropTriggers: return .dropTriggers(device)
    case .deleteErrors: return .deleteErrors(device)
    case .deleteKept: return .deleteKept(device)
    case .retry: return .retryErrors(device)
    case .reapply: return .reapplyKept(device)
    case .withdraw: return .withdraw(device)
    case .recover: return .recover(device, strategy: own.chance(60) ? own.pick(History.strategies) : nil)
    case .deleteRemote: return .deleteRemote(device)
    case .demandReset: return .demandReset(device)
    case .resolve: return .resolveConflicts(keepServer: own.chance(50))
    case .evolveServer: return .evolveServer(table: own.below(schema.tables.count))
    case .evolveDevice: return .evolveDevice(device)
    case .clockJump: return .clockJump(device: device, hours: own.below(2000) - 1000)
    case .verify: return .verify(device)
    case .powerCut:
      let atServer = own.chance(50)
      return .disk(
        device: device, atServer: atServer, plan: .init(fault: .powerCut, call: call(atServer, &own), times: 1))
    case .diskFault:
      let atServer = own.chance(50)
      return .disk(device: device, atServer: atServer, plan: diskFault(atServer, &own))
    case .migrate:
      let table = own.pick(schema.tables)?.name ?? "area"
      let statement =
        own.chance(50)
        ? "ALTER TABLE \(table) ADD COLUMN own\(id) TEXT" : "CREATE INDEX IF NOT EXISTS own_\(table) ON \(table) (note)"
      return .migrate(device: device, statement: statement, pauses: own.chance(70))
    case .look: return .look(device)
    case .subscribe:
      return .subscribe(device, table: target(&own), region: region(10, &own, orSetting: true))
    case .unsubscribe: return .unsubscribe(device, table: target(&own), region: region(30, &own))
    case .uproot: return .uproot(device: device, place: own.below(100))
    case .moveTable:
      return .moveTable(table: own.below(schema.tables.count), group: own.pick(["first", "second", nil]) ?? nil)
    case .setHome: return .setHome(device, region: region(25, &own))
    case .writeFault:
      let fault = own.pick([MachineDisk.Fault.powerCut, .powerCut, .full, .writeError]) ?? .powerCut
      let times = fault == .powerCut ? 1 : own.pick([1, 3, 1000]) ?? 1
      return .writeFault(
        device: device, statements: statements(device, id, &own),
        plan: .init(fault: fault, call: 1 + own.below(own.pick([3, 12]) ?? 3), times: times))
    case .changeSchema: return .changeSchema(.draw(&own, tables: schema.tables.count))
    case .rebuild:
      let kind = own.pick(Step.Rebuilding.allCases) ?? .rebuildsTable
      // Between pause and resume Salvor would refuse a table without one of its columns.
      let pauses = kind != .dropsColumn && own.chance(40)
      return .rebuild(device: device, table: own.below(schema.tables.count), kind, pauses: pauses)
    case .leave: return .leave(device)
    case .purge: return .purge(place: own.below(100))
    case .acceptOffers: return .acceptOffers(table: own.chance(50) ? own.pick(schema.tables)?.name : nil)
    case .duel:
      return .duel(device, (device + 1 + own.below(devices.count - 1)) % devices.count, place: own.below(100))
    case .paceHealing: return .paceHealing(pauses: own.chance(50))
    case .setHeal: return .setHeal(device, mode: own.pick(["own", "all", "review", "off"]) ?? "own")
    case .setTableHeal:
      return .setTableHeal(
        table: own.below(schema.tables.count), mode: own.chance(50) ? nil : own.pick(["own", "review", "off"]))
    case .wait: return .wait(hours: own.chance(30) ? 24 * 40 : own.below(48))
    }
  }

  private func programStatements(_ id: Int, _ generator: inout SeededGenerator) -> [String] {
    var drawing = StatementDrawing(
      schema, swarm, writer: "p", isProgram: true, principals: History.principals, step: id)
    return drawing.transaction(&generator)
  }

  private func statements(_ device: Int, _ id: Int, _ generator: inout SeededGenerator) -> [String] {
    let own = devices[device].principal
    let principals = [own] + History.principals.filter { $0 != own }
    var drawing = StatementDrawing(
      schema, swarm, writer: "d\(device)", isProgram: false, principals: principals, step: id)
    var list = drawing.transaction(&generator)
    if swarm.has(.requests), generator.chance(30) {
      list = ["INSERT INTO salvor_request (tag) VALUES ('t\(id)')"] + list + ["DELETE FROM salvor_request"]
    }
    if swarm.has(.rollbacks), generator.chance(8) { list.append("ROLLBACK") }
    return list
  }

  private func region(
    _ percentOfNone: Int, _ generator: inout SeededGenerator, orSetting: Bool = false
  ) -> String? {
    if orSetting, swarm.has(.groupSubscriptions), generator.chance(40) { return "setting:home" }
    return generator.chance(percentOfNone) ? nil : generator.pick(["north", "south", "west"])
  }

  /// A table that a device can choose rows of, or its group.
  private func target(_ generator: inout SeededGenerator) -> String {
    let table = generator.pick(byRegion) ?? ""
    guard swarm.has(.groupSubscriptions), generator.chance(50) else { return table }
    return schema.table(table)?.group ?? "default"
  }

  /// One group, mostly.
  private func someGroups(_ generator: inout SeededGenerator) -> [String] {
    let groups = schema.groups
    let first = generator.below(groups.count)
    return generator.chance(75) || groups.count == 1
      ? [groups[first]] : groups.enumerated().filter { $0.offset != first }.map(\.element)
  }

  /// The call that a disk fails at. A server that has nothing to write makes few.
  private func call(_ atServer: Bool, _ generator: inout SeededGenerator) -> Int {
    1 + generator.below(generator.pick(atServer ? [2, 6, 30] : [6, 25, 100]) ?? 6)
  }

  private func diskFault(_ atServer: Bool, _ generator: inout SeededGenerator) -> MachineDisk.Plan {
    let fault = generator.pick([MachineDisk.Fault.full, .writeError, .readError, .locked]) ?? .full
    let call = call(atServer, &generator)
    let times =
      switch fault {
      // Longer than anybody waits, or not.
      case .locked: generator.pick([1, 3, 500]) ?? 1
      case .full: generator.pick([1, 5, 1000]) ?? 1
      default: 1 + generator.below(3)
      }
    return MachineDisk.Plan(fault: fault, call: call, times: times)
  }

  private func faults(_ generator: inout SeededGenerator) -> NetworkFaults {
    var faults = NetworkFaults()
    guard swarm.has(.messageFaults), generator.chance(50) else { return faults }
    let strength = generator.pick([5, 20, 60]) ?? 20
    for path: WritableKeyPath<NetworkFaults, Int> in [
      \.loseRequest, \.loseAnswer, \.cutRequest, \.cutAnswer, \.repeats, \.busy, \.delay,
    ] where generator.chance(40) {
      faults[keyPath: path] = strength / 3
    }
    return faults
  }
}
