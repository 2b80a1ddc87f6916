import SalvorModel
import SalvorRecovery

/// How a device recovers (semantics 9), as the configuration file has it under `client.recovery`.
///
/// The callbacks run within the synchronization. They may read (`status`, `errorArchive`, `recoveryPlan`), and what waits for the end of
/// that synchronization (`synchronize`, `recover`, `switch(to:)`, migrations) is refused there (`usage`): call it when `synchronize`
/// has returned, or in a `Task` that the callback does not wait for.
public struct RecoveryConfiguration: Sendable {
  /// What is told to `beforeReset` and `afterReset`.
  public struct Notice: Sendable, Hashable {
    /// Of the recovery; the same for both calls.
    public var id: String
    /// Why the device is recovered.
    public var reason: RecoveryReason
    /// The strategy that runs, or that ran.
    public var strategy: String
    /// The live database: before a reset to be read only.
    public var database: String
    /// After a reset, a copy of the database as it was before; nil before.
    public var before: String?
  }

  /// What the manual handler gets: the error, where the copy is, and the token that `recover` wants.
  public struct ManualReset: Sendable {
    /// What to show, with a way on.
    public var error: SalvorError
    /// Why a person has to decide.
    public var reason: RecoveryReason
    /// The copy of the database; nil: none could be made.
    public var backup: String?
    /// Empty where the file is damaged: there is nothing to go on with, and `recover` takes a strategy alone.
    public var token: String
  }

  /// A callback around a reset.
  public typealias Hook = @Sendable (Notice) async throws -> Void

  /// Every strategy that may be named.
  public var strategies: [any RecoveryStrategy]
  /// The strategy where `reasons` names none.
  public var strategy: String
  /// The strategy for a reason, by its name; `strategy` for those that are not named.
  public var reasons: [RecoveryReason: String]
  /// Copies and before-images that are kept; older ones are removed after a recovery.
  public var backupsKept: Int
  /// Which rows that a restored server lost are offered to it again (semantics 10).
  public var heal: HealMode
  /// How long what a device keeps for a server that goes back is kept at least, in milliseconds (default 90 days): longer where the
  /// server lists older copies of itself.
  public var lossRetentionMilliseconds: Int64 = 90 * 86_400_000
  /// Called before anything is touched; what it throws stops the recovery.
  public var beforeReset: Hook?
  /// Called when the database is as it will be.
  public var afterReset: Hook?
  /// Called where a person has to decide. Comes before `errorHandler`; either alone is called (realm-client-reset-mode).
  public var manualClientResetHandler: (@Sendable (ManualReset) async -> Void)?
  /// Called with every other error of a synchronization, and with a manual reset where there is no handler for those.
  public var errorHandler: (@Sendable (SalvorError) async -> Void)?

  /// The defaults recover by `recover-unsynced-changes` and keep three copies.
  public init(
    strategies: [any RecoveryStrategy] = [], strategy: String = "recover-unsynced-changes",
    reasons: [RecoveryReason: String] = [:], backupsKept: Int = 3, heal: HealMode = .own
  ) {
    self.heal = heal
    self.strategies = strategies
    self.strategy = strategy
    self.reasons = reasons
    self.backupsKept = backupsKept
  }

  var chain: StrategyChain { StrategyChain(strategies, standard: strategy, byReason: reasons) }

  /// The client's manual handler comes before the error handler; either alone is called.
  func askPerson(_ reset: ManualReset) async {
    if let handler = manualClientResetHandler { await handler(reset) } else { await errorHandler?(reset.error) }
  }
}

/// How a client reset is handled, for those who come from Realm: `configuration.clientResetMode =
/// .recoverUnsyncedChanges(beforeReset: …)`.
public struct ClientResetMode: Sendable {
  /// The name of the strategy.
  public var strategy: String
  /// Called before anything is touched; what it throws stops the recovery.
  public var beforeReset: RecoveryConfiguration.Hook?
  /// Called when the database is as it will be.
  public var afterReset: RecoveryConfiguration.Hook?
  /// Called where a person has to decide.
  public var manualHandler: (@Sendable (RecoveryConfiguration.ManualReset) async -> Void)?

  /// What was not sent is kept, and sent afterwards.
  public static func recoverUnsyncedChanges(
    beforeReset: RecoveryConfiguration.Hook? = nil, afterReset: RecoveryConfiguration.Hook? = nil
  ) -> ClientResetMode {
    ClientResetMode(strategy: "recover-unsynced-changes", beforeReset: beforeReset, afterReset: afterReset)
  }

  /// What was not sent is kept and sent afterwards; where that cannot be, it is discarded.
  public static func recoverOrDiscardUnsyncedChanges(
    beforeReset: RecoveryConfiguration.Hook? = nil, afterReset: RecoveryConfiguration.Hook? = nil
  ) -> ClientResetMode {
    ClientResetMode(strategy: "recover-or-discard-unsynced-changes", beforeReset: beforeReset, afterReset: afterReset)
  }

  /// What was not sent is discarded.
  public static func discardUnsyncedChanges(
    beforeReset: RecoveryConfiguration.Hook? = nil, afterReset: RecoveryConfiguration.Hook? = nil
  ) -> ClientResetMode {
    ClientResetMode(strategy: "discard-unsynced-changes", beforeReset: beforeReset, afterReset: afterReset)
  }

  /// Nothing is done until a person has decided.
  public static func manual(
    errorHandler: (@Sendable (RecoveryConfiguration.ManualReset) async -> Void)? = nil
  ) -> ClientResetMode {
    ClientResetMode(strategy: StrategyChain.manual, manualHandler: errorHandler)
  }

  /// A strategy of the configuration's list, by name.
  public static func strategy(_ name: String) -> ClientResetMode { ClientResetMode(strategy: name) }
}
