/// What a history may have in it. Each seed switches features on and off and so meets them in ever new company; a swarm
/// by name is for looking at one part.
public enum Feature: String, Sendable, Hashable, CaseIterable {
  // Schemas.
  /// Tables may have a primary key of two columns.
  case compositeKeys = "composite-keys"
  /// Tables may have integer keys, so that devices make the same ones.
  case integerKeys = "integer-keys"
  /// Tables may have blob keys.
  case blobKeys = "blob-keys"
  /// Tables reference earlier tables.
  case references
  /// Tables reference themselves.
  case selfReferences = "self-references"
  /// Foreign keys may have ON DELETE CASCADE.
  case cascades
  /// Foreign keys may have ON DELETE SET NULL.
  case setNull = "set-null"
  /// Tables may have a UNIQUE column.
  case unique
  /// Tables may have a CHECK constraint.
  case checks
  /// The column `note` may be NOT NULL, with a default.
  case notNull = "not-null"
  /// Tables are in two groups.
  case groups
  /// Tables may have `download: "key-set"`.
  case keySet = "key-set"
  /// Rows may belong to a principal, or reach devices only while they are open.
  case scopes
  /// Tables have a conflict policy each.
  case policies
  /// Tables say what becomes of two rows made under one key.
  case sameKey = "same-key"
  /// The first table may be one that devices only read.
  case serverTables = "server-tables"
  /// A table `draft` never leaves the device.
  case clientTables = "client-tables"
  /// Tables may have the application's triggers off while Salvor writes.
  case applicationTriggers = "application-triggers"
  // Statements.
  /// Statements with ON CONFLICT DO UPDATE.
  case upserts
  /// Statements with REPLACE, OR IGNORE, OR REPLACE and OR FAIL.
  case replaces
  /// Updates of key columns.
  case keyChanges = "key-changes"
  /// Updates and deletes of many rows at once.
  case wholeTable = "whole-table"
  /// Applications group a transaction's writes into one tagged request.
  case requests
  /// Transactions and savepoints that are rolled back.
  case rollbacks
  /// Two rows exchange their unique values.
  case swaps
  // The world.
  /// Other programs write in the server's tables.
  case programs
  /// Messages are lost, cut, repeated, late, or answered with 503.
  case messageFaults = "message-faults"
  /// Two devices synchronize at once.
  case pairs
  /// Two processes of one device synchronize at once.
  case twoProcesses = "two-processes"
  /// The application writes while its device synchronizes.
  case writesMeanwhile = "writes-meanwhile"
  /// The server is copied, and put back to a copy.
  case serverRestore = "server-restore"
  /// A restore may come without the server's side file.
  case sideFileLost = "side-file-lost"
  /// The server starts on an empty database.
  case serverReplaced = "server-replaced"
  /// The server forgets its tombstones.
  case trim
  /// A device's files are copied, and put back.
  case deviceRestore = "device-restore"
  /// One device's files become another's, too.
  case clones
  /// A device's process ends in the middle of a synchronization.
  case crashes
  /// An application drops Salvor's triggers.
  case missingTriggers = "missing-triggers"
  /// A person deletes, retries, reapplies and withdraws requests.
  case archiveCommands = "archive-commands"
  /// A person has a device recover.
  case recoverByHand = "recover-by-hand"
  /// The operator deletes remote IDs, and demands resets.
  case remotesDeleted = "remotes-deleted"
  /// The operator resolves conflict versions.
  case conflictsResolved = "conflicts-resolved"
  /// Tables get a column, first on the server and later on the devices.
  case evolution
  /// Clocks of devices jump by up to 1,000 hours, forward or back.
  case clockJumps = "clock-jumps"
  /// Devices have different recovery strategies.
  case strategies
  /// Some devices compress.
  case gzip
  // Those that came later: what a seed draws of the others does not move with them.
  /// A machine loses its power while a device synchronizes.
  case powerCuts = "power-cuts"
  /// A disk is full, fails or is locked while a device synchronizes.
  case diskFaults = "disk-faults"
  /// The application may have made its tables before Salvor, also STRICT or WITHOUT ROWID.
  case adoptedTables = "adopted-tables"
  /// The application may have a trigger that writes to the parent of each new row.
  case applicationCode = "application-code"
  /// The application changes its own tables, with capture paused or not.
  case migrations
  /// Everything that only shows something is asked between the steps.
  case looks
  /// The server has a validator that refuses some notes.
  case validators
  /// Rows may reach those whose credentials list their region.
  case parameterScopes = "parameter-scopes"
  /// Rows may reach those whom a row of the table `member` names.
  case joinScopes = "join-scopes"
  /// Devices choose rows by their region, and take the choice back.
  case subscriptions
  /// Tables may have dirty and deleted columns of the application's own.
  case flags
  /// Tables may have a blob column; blobs from 1,024 bytes on travel beside the payload.
  case blobs
  /// Devices differ in what they give back, and the oracle looks at what healing promises.
  case heal
  /// Devices that never synchronize again.
  case absences
  /// An operator purges rows of the server.
  case purges
  /// The operator reviews what devices give back, pauses healing and lets it go on; and tables keep conflict versions.
  case consent
  /// The server makes files of its groups, however few rows they have.
  case snapshots
  /// Devices that stay and synchronize when either side changes.
  case watches
  /// Uploads and downloads go in chunks of some rows each, and no synchronization is one round trip.
  case smallChunks = "small-chunks"
  /// The specification of the stores does the same beside, and its rows are compared.
  case specification
  /// A copy may be written into the file of a server that runs (`.restore` of SQLite's shell).
  case restoreInPlace = "restore-in-place"
  /// Devices and tables change what they give back.
  case healChanges = "heal-changes"
  /// Tables are in three groups, and devices synchronize some of them alone.
  case partSyncs = "part-syncs"
  /// Tables come into other groups.
  case movedTables = "moved-tables"
  /// Subscriptions are to groups as well, and take their region from a personalization key.
  case groupSubscriptions = "group-subscriptions"
  /// The server ends while devices watch, and is there again.
  case watchedEnds = "watched-ends"
  /// A device's disk fails, or its power goes, while the application writes.
  case writeFaults = "write-faults"
  /// The application has triggers that write into the row's own table, into others, and delete.
  case furtherCode = "further-code"
  /// Later versions of the server's schema rename, drop and add tables and columns.
  case schemaChanges = "schema-changes"
  /// Applications rebuild their tables, and change columns.
  case rebuilds
  /// Tables reference later ones, so that references go in a circle.
  case circles
  /// Readers, and transactions of the application's, stay open while their device synchronizes.
  case openTransactions = "open-transactions"
  /// The server's tables have unique indexes and triggers of the server's own.
  case serverCode = "server-code"
  /// A device's process ends while it watches.
  case watchedKills = "watched-kills"

  static let later: Set<Feature> = newest.union(healing).union(byName).union([
    .powerCuts, .diskFaults, .adoptedTables, .applicationCode, .migrations, .looks, .validators, .watches,
    .smallChunks,
  ])

  /// Only in the swarm that has them by name.
  static let healing: Set<Feature> = [.heal, .absences, .purges, .consent]

  /// Only in swarms that have them by name, so that what a seed draws elsewhere stays what it was.
  static let byName: Set<Feature> = wide.union(beside).union([
    .snapshots, .specification, .restoreInPlace, .healChanges, .furtherCode, .schemaChanges, .rebuilds,
  ])

  /// Those of the swarms `groups` and `wide`.
  static let wide: Set<Feature> = [.partSyncs, .movedTables, .groupSubscriptions, .watchedEnds, .writeFaults]

  /// Those of the swarm `beside`.
  static let beside: Set<Feature> = [.circles, .openTransactions, .serverCode, .watchedKills]

  /// Those that came last.
  static let newest: Set<Feature> = [.parameterScopes, .joinScopes, .subscriptions, .flags, .blobs]
}

/// Which features a seed's history has, and how large it is.
public struct Swarm: Sendable, Hashable {
  /// What the history may have in it.
  public var features: Set<Feature>
  /// How many steps the history has.
  public var steps: Int
  /// How many devices take part: 1 to 6.
  public var devices: Int

  /// Whether the history may have this in it.
  public func has(_ feature: Feature) -> Bool { features.contains(feature) }

  /// Swarms by name, e.g. `restores`: what is drawn from besides what every history may have.
  public static let names: [String: Set<Feature>] = [
    "all": all,
    "earlier": all.subtracting(Feature.newest),
    "plain": plain,
    "network": plain.union([
      .messageFaults, .pairs, .writesMeanwhile, .twoProcesses, .crashes, .gzip, .smallChunks,
    ]),
    "restores": plain.union([
      .serverRestore, .sideFileLost, .serverReplaced, .trim, .strategies, .recoverByHand, .remotesDeleted,
    ]),
    "devices": plain.union([.deviceRestore, .clones, .crashes, .missingTriggers, .strategies, .clockJumps]),
    "archive": plain.union([.archiveCommands, .policies, .conflictsResolved, .validators]),
    "disks": plain.union([
      .powerCuts, .diskFaults, .validators, .serverRestore, .strategies, .archiveCommands, .crashes,
    ]),
    "tables": plain.union([.adoptedTables, .applicationCode, .migrations, .missingTriggers]),
    "code": plain.union([
      .applicationCode, .furtherCode, .adoptedTables, .missingTriggers, .validators, .archiveCommands,
      .conflictsResolved, .serverRestore, .strategies, .flags, .smallChunks, .crashes,
    ]),
    "reach": plain.union([.parameterScopes, .joinScopes, .subscriptions, .deviceRestore, .serverRestore, .trim]),
    // Without what the specification has not: applications' own tables and triggers, and marks.
    "specification": plain.union([
      .specification, .validators, .parameterScopes, .joinScopes, .subscriptions, .blobs, .looks, .gzip, .smallChunks,
      .conflictsResolved,
    ]),
    "heal": healing,
    "consent": healing.union([.consent, .policies]),
    "in-place": healing.union([.restoreInPlace]),
    "settings": healing.union([.healChanges]),
    "groups": plain.union(Feature.wide).union([
      .specification, .parameterScopes, .joinScopes, .subscriptions, .messageFaults, .pairs, .twoProcesses, .crashes,
      .writesMeanwhile, .watches, .serverRestore, .missingTriggers, .smallChunks,
    ]),
    "schemas": plain.union([
      .schemaChanges, .rebuilds, .adoptedTables, .migrations, .missingTriggers, .validators, .archiveCommands,
      .conflictsResolved, .serverRestore, .trim, .deviceRestore, .clones, .strategies, .recoverByHand, .flags, .blobs,
      .parameterScopes, .joinScopes, .subscriptions, .smallChunks, .crashes, .messageFaults, .writesMeanwhile, .looks,
    ]),
    "beside": plain.union(Feature.beside).union([
      .watches, .writesMeanwhile, .messageFaults, .crashes, .validators, .archiveCommands, .conflictsResolved,
      .serverRestore, .trim, .strategies, .missingTriggers, .adoptedTables, .applicationCode, .flags, .blobs,
      .parameterScopes, .subscriptions, .smallChunks, .deviceRestore,
    ]),
    "wide": all.union(Feature.wide),
    "storm": all.union(Feature.byName).union(Feature.healing).subtracting([.specification, .serverReplaced]),
    "files": plain.union([
      .snapshots, .serverRestore, .trim, .strategies, .recoverByHand, .remotesDeleted, .deviceRestore, .crashes,
      .messageFaults, .writesMeanwhile, .gzip, .parameterScopes, .subscriptions, .blobs,
    ]),
    "columns": plain.union([.flags, .blobs, .archiveCommands, .messageFaults, .serverRestore]),
  ]

  private static let all = Set(Feature.allCases).subtracting(Feature.healing).subtracting(Feature.byName)

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
    var named = named
    if named.isSuperset(of: [.schemaChanges, .serverCode]) {
      // Triggers of the application's and of the server's own name what a schema renames, and make rows again that were purged.
      named.subtract(
        generator.chance(50) ? [.schemaChanges, .rebuilds, .purges] : [.applicationCode, .furtherCode, .serverCode])
    }
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
    if named.contains(.specification) { always.append(.specification) }
    if named.contains(.restoreInPlace) { always.append(.restoreInPlace) }
    if named.contains(.consent) { always += [.consent, .policies] }
    if named.contains(.healChanges) { always.append(.healChanges) }
    if named.contains(.furtherCode) { always.append(.furtherCode) }
    if named.contains(.schemaChanges) { always.append(.schemaChanges) }
    if named.contains(.openTransactions) {
      always += [.circles, .openTransactions, .serverCode, .watchedKills].filter {
        named.contains($0) && own.chance(65)
      }
    }
    if named.contains(.partSyncs) { always += [.partSyncs, .groups, .references, .setNull] }
    return Swarm(features: Set(features + chosen(true, &own) + always), steps: steps, devices: devices)
  }
}
