import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorTransport
import SalvorWire

/// The device's questions to the server while it recovers (docs/reference/protocol.md, *Recovery*).
struct RecoveryExchange {
  let configuration: ClientConfiguration
  var report: SyncReport
  let progress: @Sendable (SyncProgress) -> Void
  /// The facts say which groups the server has as files: for a plan.
  var asksForFiles = false

  init(
    _ configuration: ClientConfiguration, _ report: SyncReport,
    _ progress: @escaping @Sendable (SyncProgress) -> Void
  ) {
    self.configuration = configuration
    self.report = report
    self.progress = progress
  }

  /// What the server knows of the parting, and what it synchronizes where that differs from the device's tables.
  mutating func facts(_ status: ClientStatus, _ history: ClientHistory) async throws -> (RecoveryFacts, SyncConfig?) {
    let state = status.state
    var message = BeginMessage(
      remote: state.remoteID, server: state.serverID, previous: state.previous, current: state.current,
      schemaVersion: state.schemaVersion, schemaDigest: state.configDigest,
      groups: state.groups.map { BeginMessage.Group($0) },
      upload: .none, position: nil,
      history: BeginMessage.History(
        sequences: history.olderSequences, incarnations: history.incarnations, commits: history.commits,
        tables: .array(history.tables.map(TableDefinition.json))))
    message.principal = state.owner
    message.subscriptions = try await configuration.resolvedSubscriptions().subscriptions
    if asksForFiles {
      message.snapshot = await SnapshotTransfer(configuration: configuration, progress: progress).taking
    }
    var reader = ResponseReader(
      try await configuration.request("POST", "/v1/recovery", message.json.bytes + [0x0A], counting: &report),
      configuration)
    guard case .control(let line) = try await reader.next() else { throw Questions.unexpected }
    let facts = try RecoveryFacts(line)
    var config: SyncConfig?
    while let event = try await reader.next() {
      if case .control(let line) = event, let json = line["config"] { config = try SyncConfig(json) }
    }
    report.bytesReceived += reader.bytesReceived
    return (facts, config)
  }

  /// Questions about rows, under this recovery's token.
  func questions(_ facts: RecoveryFacts) -> Questions {
    Questions(configuration, path: "/v1/recovery/\(facts.token)", report, progress)
  }

  /// Asks the server to forget this remote ID. Throws `forbidden` where its operator does that himself.
  mutating func deleteRemote(_ facts: RecoveryFacts) async throws {
    let response = try await configuration.request(
      "DELETE", "/v1/recovery/\(facts.token)/remote", [], counting: &report)
    _ = try await response.body.collect(upTo: configuration.limits.chunkBytesMax)
  }

  /// Gives the place of this recovery at the server back, without an end of it.
  mutating func leave(_ facts: RecoveryFacts) async {
    guard
      let response = try? await configuration.request("DELETE", "/v1/recovery/\(facts.token)", [], counting: &report)
    else { return }
    _ = try? await response.body.collect(upTo: configuration.limits.chunkBytesMax)
  }

  /// The recovery is done, and the operator's demand that it met, where there was one, is settled. Throws where the server
  /// may not have heard it.
  ///
  /// - Parameter done: which strategy has run and why, for the operator; nil: it had ended before.
  mutating func end(_ facts: RecoveryFacts, _ done: (reason: RecoveryReason?, strategy: String)? = nil) async throws {
    let body: JSONValue = [
      "demand": facts.demand.map(JSONValue.integer) ?? .null,
      "reason": done.map { .string($0.reason?.rawValue ?? "by-hand") } ?? .null,
      "strategy": done.map { .string($0.strategy) } ?? .null,
    ]
    let response = try await configuration.request(
      "POST", "/v1/recovery/\(facts.token)/end", body.bytes + [0x0A], counting: &report)
    _ = try? await response.body.collect(upTo: configuration.limits.chunkBytesMax)
  }
}
