import SalvorContracts
import SalvorStorage

/// A fault that is put into a system on purpose, to see that the simulator finds it: a rule inverted, a step left out.
///
/// They are the broken doubles of the contract suites, put round the real stores of every device, or of the server. So the
/// product itself has no switch for them.
public enum Mutant: Sendable, Hashable, CustomStringConvertible {
  /// The stores of every device have this fault.
  case device(BrokenClientStore.Fault)
  /// The store of the server has this fault.
  case server(BrokenServerStore.Fault)
  /// The devices' databases say that they have synced, and have not.
  case unsyncedDevices
  /// The server's database says that it has synced, and has not.
  case unsyncedServer
  /// Devices forget what was deleted on the server.
  case forgottenDeletes
  /// A device waits for as long as a busy server asks for.
  case endlessWaits
  /// A restore removes the purge ledger.
  case forgottenLedger

  /// The name on the command line of `salvor-simulate`, e.g. `device-losesRefusals`.
  public var description: String {
    switch self {
    case .device(let fault): "device-\(fault.rawValue)"
    case .server(let fault): "server-\(fault.rawValue)"
    case .unsyncedDevices: "device-syncs-no-file"
    case .unsyncedServer: "server-syncs-no-file"
    case .forgottenDeletes: "device-forgets-deletes"
    case .endlessWaits: "device-waits-for-ever"
    case .forgottenLedger: "server-forgets-its-ledger"
    }
  }

  /// The swarm whose seeds find it soonest: it draws most of what the fault has to do with.
  public var swarm: String {
    switch self {
    case .server(.showsOutOfScope), .server(.acceptsOutOfScope), .server(.answersOutOfScope),
      .server(.forgetsDepartures),
      .server(.forgetsSubscriptions), .server(.dropsNothing), .server(.forgetsWhatWasSubscribed),
      .device(.dropsNothing), .device(.forgetsSubscriptions), .device(.ignoresDepartures):
      "reach"
    case .unsyncedDevices, .unsyncedServer: "disks"
    case .device(.sendsTheNewestBlob): "columns"
    case .endlessWaits, .server(.appliesResendsTwice), .server(.forgetsResults), .server(.losesStagedChunks),
      .device(.keepsOldStaging), .device(.losesLastChunk), .device(.resendsUnderNewID):
      "network"
    case .forgottenDeletes, .server(.forgetsLostKeys), .server(.knowsEveryCursor), .device(.trustsTrimmedCursors),
      .server(.endsRangesEarly), .server(.digestsCounts):
      "restores"
    case .server(.dropsWaiting): "consent"
    case .server(.hidesReopenings): "in-place"
    case _ where Self.healing.contains(self): "heal"
    default: "all"
    }
  }

  /// The mutants that `salvor-simulate` takes unless it is told which.
  public static let all: [Mutant] = [
    .server(.dropsRefusals), .server(.appliesRefusedRequests), .server(.forgetsTombstones), .server(.seesNoConflicts),
    .server(.showsOutOfScope), .server(.forgetsDepartures), .server(.endsDownloadsEarly), .server(.blocksNothing),
    .server(.appliesResendsTwice), .server(.forgetsResults), .server(.splitsGroups), .server(.knowsEveryCursor),
    .server(.forgetsConflicts), .server(.overlooksOtherPrograms), .server(.acceptsOutOfScope), .server(.writesHalves),
    .server(.drawsServerIDAgain), .server(.losesStagedChunks),
    .device(.losesRefusals), .device(.losesAcceptedWrites), .device(.resendsUnderNewID), .device(.reusesStamps),
    .device(.dropsDependents), .device(.losesCursors), .device(.ignoresDepartures), .device(.forgetsGroups),
    .device(.archivesNoLostRows), .device(.takesLostForDeleted), .device(.keepsCurrent), .device(.discardsWhatWaits),
    .device(.keepsItsRemoteID), .device(.keepsLostCommits), .device(.retriesNothing), .device(.hidesArchive),
    .device(.keepsSessionsOpen), .device(.losesLastChunk), .unsyncedDevices, .unsyncedServer,
    .forgottenDeletes, .endlessWaits, .server(.forgetsSubscriptions), .server(.dropsNothing),
    .server(.forgetsWhatWasSubscribed), .server(.answersOutOfScope), .server(.forgetsLostKeys),
    .server(.endsRangesEarly), .server(.digestsCounts), .server(.losesCursors), .device(.dropsNothing),
    .device(.forgetsSubscriptions), .device(.ignoresFull), .device(.sendsTheNewestBlob), .device(.splitsRequests),
    .device(.trustsTrimmedCursors), .device(.keepsOldStaging), .device(.carriesTheNewestCommit),
  ]

  /// Those of healing, which its own swarm finds: rank ignored, incarnation ignored, what was written since overlooked, the own
  /// flag ignored, the ledger not applied, offers after the queue, what waits dropped, a copy in the open file not told of.
  public static let healing: [Mutant] = [
    .server(.ranksNothing), .server(.ordersIncarnationsBackwards), .server(.overlooksWrites),
    .device(.forgetsWhatItWrote), .forgottenLedger, .server(.putsOffersAfterTheQueue), .server(.dropsWaiting),
    .server(.hidesReopenings),
  ]

  /// The five that the test of the whole runs: those that are found soonest.
  public static let quick: [Mutant] = [
    .server(.dropsRefusals), .server(.forgetsTombstones), .device(.losesRefusals), .device(.losesAcceptedWrites),
    .device(.losesCursors),
  ]

  func mutated(_ store: any ClientStore) -> any ClientStore {
    if case .device(let fault) = self { BrokenClientStore(store, fault) } else { store }
  }

  func mutated(_ store: any ServerStore) -> any ServerStore {
    if case .server(let fault) = self { BrokenServerStore(store, fault) } else { store }
  }
}
