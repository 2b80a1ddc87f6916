/// What a history may have in it. Each seed switches features on and off and so meets them in ever new company; a swarm
/// by name is for looking at one part.
public enum Feature: String, Sendable, Hashable, CaseIterable {
  // Schemas.
  case compositeKeys = "composite-keys"
  case integerKeys = "integer-keys"
  case blobKeys = "blob-keys"
  case references
  case selfReferences = "self-references"
  case cascades
  case setNull = "set-null"
  case unique
  case checks
  case notNull = "not-null"
  case groups
  case keySet = "key-set"
  case scopes
  case policies
  case sameKey = "same-key"
  case serverTables = "server-tables"
  case clientTables = "client-tables"
  case applicationTriggers = "application-triggers"
  // Statements.
  case upserts
  case replaces
  case keyChanges = "key-changes"
  case wholeTable = "whole-table"
  case requests
  case rollbacks
  case swaps
  // The world.
  case programs
  case messageFaults = "message-faults"
  case pairs
  case twoProcesses = "two-processes"
  case writesMeanwhile = "writes-meanwhile"
  case serverRestore = "server-restore"
  case sideFileLost = "side-file-lost"
  case serverReplaced = "server-replaced"
  case trim
  case deviceRestore = "device-restore"
  case clones
  case crashes
  case missingTriggers = "missing-triggers"
  case archiveCommands = "archive-commands"
  case recoverByHand = "recover-by-hand"
  case remotesDeleted = "remotes-deleted"
  case conflictsResolved = "conflicts-resolved"
  case evolution
  case clockJumps = "clock-jumps"
  case strategies
  case gzip
  // Those that came later: what a seed draws of the others does not move with them.
  case powerCuts = "power-cuts"
  case diskFaults = "disk-faults"
  case adoptedTables = "adopted-tables"
  case applicationCode = "application-code"
  case migrations
  case looks
  case validators
  case parameterScopes = "parameter-scopes"
  case joinScopes = "join-scopes"
  case subscriptions
  case flags
  case blobs
  /// Devices differ in what they give back, and the oracle looks at what healing promises.
  case heal
  /// Devices that never synchronize again.
  case absences
  case purges
  /// The operator reviews what devices give back, pauses healing and lets it go on; and tables keep conflict versions.
  case consent
  /// The server makes files of its groups, however few rows they have.
  case snapshots
  /// Devices that stay and synchronize when either side changes.
  case watches

  static let later: Set<Feature> = newest.union(healing).union(byName).union([
    .powerCuts, .diskFaults, .adoptedTables, .applicationCode, .migrations, .looks, .validators, .watches,
  ])

  /// Only in the swarm that has them by name.
  static let healing: Set<Feature> = [.heal, .absences, .purges, .consent]

  /// Only in the swarm `files`.
  static let byName: Set<Feature> = [.snapshots]

  /// Those that came last.
  static let newest: Set<Feature> = [.parameterScopes, .joinScopes, .subscriptions, .flags, .blobs]
}

/// Which features a seed's history has, and how large it is.
public struct Swarm: Sendable, Hashable {
  public var features: Set<Feature>
  public var steps: Int
  public var devices: Int

  public func has(_ feature: Feature) -> Bool { features.contains(feature) }

  /// Swarms by name, e.g. `restores`: what is drawn from besides what every history may have.
  public static let names: [String: Set<Feature>] = [
    "all": Set(Feature.allCases).subtracting(Feature.healing).subtracting(Feature.byName),
    "earlier": Set(Feature.allCases).subtracting(Feature.newest).subtracting(Feature.healing)
      .subtracting(Feature.byName),
    "plain": plain,
    "network": plain.union([.messageFaults, .pairs, .writesMeanwhile, .twoProcesses, .crashes, .gzip]),
    "restores": plain.union([
      .serverRestore, .sideFileLost, .serverReplaced, .trim, .strategies, .recoverByHand, .remotesDeleted,
    ]),
    "devices": plain.union([.deviceRestore, .clones, .crashes, .missingTriggers, .strategies, .clockJumps]),
    "archive": plain.union([.archiveCommands, .policies, .conflictsResolved, .validators]),
    "disks": plain.union([
      .powerCuts, .diskFaults, .validators, .serverRestore, .strategies, .archiveCommands, .crashes,
    ]),
    "tables": plain.union([.adoptedTables, .applicationCode, .migrations, .missingTriggers]),
    "reach": plain.union([.parameterScopes, .joinScopes, .subscriptions, .deviceRestore, .serverRestore, .trim]),
    "heal": healing,
    "consent": healing.union([.consent, .policies]),
    "files": plain.union([
      .snapshots, .serverRestore, .trim, .strategies, .recoverByHand, .remotesDeleted, .deviceRestore, .crashes,
      .messageFaults, .writesMeanwhile, .gzip, .parameterScopes, .subscriptions, .blobs,
    ]),
    "columns": plain.union([.flags, .blobs, .archiveCommands, .messageFaults, .serverRestore]),
  ]

  private static let healing: Set<Feature> = Feature.healing.subtracting([.consent]).union([
    .compositeKeys, .integerKeys, .blobKeys, .references, .cascades, .notNull, .groups, .upserts, .keyChanges,
    .wholeTable,
    .requests, .programs, .serverRestore, .sideFileLost, .messageFaults, .pairs, .twoProcesses, .crashes,
    .writesMeanwhile,
  ])

  private static let plain: Set<Feature> = [
    .compositeKeys, .integerKeys, .blobKeys, .references, .selfReferences, .cascades, .setNull, .unique, .checks,
    .notNull, .groups, .keySet, .scopes, .policies, .sameKey, .serverTables, .clientTables, .applicationTriggers,
    .upserts, .replaces, .keyChanges, .wholeTable, .requests, .rollbacks, .swaps, .programs,
  ]

  /// The swarm of a seed: each feature of `named` with a chance that is itself drawn, so that some histories have nearly
  /// all of them and others nearly none.
  public static func draw(_ generator: inout SeededGenerator, named: Set<Feature>, steps: Int) -> Swarm {
    let percent = generator.pick([15, 35, 35, 55, 80]) ?? 35
    func chosen(_ later: Bool, _ generator: inout SeededGenerator) -> [Feature] {
      Feature.allCases.filter { Feature.later.contains($0) == later }.filter { feature in
        let isChosen = generator.chance(percent)
        return isChosen && named.contains(feature)
      }
    }
    let features = chosen(false, &generator)
    let devices = generator.pick([1, 2, 2, 2, 3, 3, 4, 6]) ?? 2
    var own = generator.derived(1)
    var always: [Feature] = named.contains(.heal) ? [.heal, .serverRestore] : []
    if named.contains(.snapshots) { always.append(.snapshots) }
    if named.contains(.consent) { always += [.consent, .policies] }
    return Swarm(features: Set(features + chosen(true, &own) + always), steps: steps, devices: devices)
  }
}
