import SalvorModel
import SalvorRecovery
import SalvorStorage
import SalvorTransport
import SalvorWire

/// The device's questions to the server while it recovers (docs/reference/protocol.md, *Recovery*).
struct RecoveryExchange {
  let configuration: SalvorClient.Configuration
  var report: SyncReport
  let progress: @Sendable (SyncProgress) -> Void
  /// The rows of one question.
  private let keysMax = 2000

  init(
    _ configuration: SalvorClient.Configuration, _ report: SyncReport,
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
    message.subscriptions = try await subscriptions()
    var reader = try await post("/v1/recovery", [message.json])
    guard case .control(let line) = try await reader.next() else { throw Self.unexpected }
    let facts = try RecoveryFacts(line)
    var config: SyncConfig?
    while let event = try await reader.next() {
      if case .control(let line) = event, let json = line["config"] { config = try SyncConfig(json) }
    }
    report.bytesReceived += reader.bytesReceived
    return (facts, config)
  }

  /// What the device subscribes to now.
  func subscriptions() async throws -> ResolvedSubscriptions {
    try await configuration.store.deviceSettings().resolved(configuration.schema.parameters).subscriptions
  }

  /// Calls `sink` with the payload that answers the questions.
  mutating func rows(
    _ queries: [RowQuery], _ facts: RecoveryFacts, _ sink: ([UInt8], String) async throws -> Void
  ) async throws {
    for batch in batches(queries) {
      var reader = try await post("/v1/recovery/\(facts.token)/rows", batch.map(\.json))
      var page: [UInt8] = []
      while let event = try await reader.next() {
        guard case .payload(let line) = event else { throw try Self.problem(event) }
        page += line
        page.append(0x0A)
        if page.count >= configuration.limits.chunkBytesTarget {
          try await sink(page, "rows")
          page.removeAll(keepingCapacity: true)
        }
      }
      report.bytesReceived += reader.bytesReceived
      if !page.isEmpty { try await sink(page, "rows") }
      progress(.downloading(bytes: report.bytesReceived))
    }
  }

  /// Questions of a bounded number of keys; one that names more is cut. A question about a range stays whole.
  private func batches(_ queries: [RowQuery]) -> [[RowQuery]] {
    var batches: [[RowQuery]] = []
    var batch: [RowQuery] = []
    var count = 0
    func flush() {
      if !batch.isEmpty { batches.append(batch) }
      batch = []
      count = 0
    }
    for query in queries {
      var rest = query
      while rest.range == nil, rest.keys.count > keysMax {
        var part = rest
        part.keys = Array(rest.keys.prefix(keysMax))
        part.digests = Array(rest.digests.prefix(keysMax))
        rest.keys.removeFirst(keysMax)
        rest.digests.removeFirst(min(keysMax, rest.digests.count))
        flush()
        batches.append([part])
      }
      if count + rest.keys.count > keysMax { flush() }
      batch.append(rest)
      count += rest.keys.count + 1
    }
    flush()
    return batches
  }

  mutating func ranges(of table: String, after key: Key?, _ facts: RecoveryFacts) async throws -> RangePage {
    let question: JSONValue = [
      "table": .string(table), "after": key.map { .array($0.map { JSONValue($0) }) } ?? .null,
    ]
    var reader = try await post("/v1/recovery/\(facts.token)/ranges", [question])
    guard case .control(let line) = try await reader.next() else { throw Self.unexpected }
    let page = try RangePage(line)
    while try await reader.next() != nil {}
    report.bytesReceived += reader.bytesReceived
    return page
  }

  /// The feed from the groups' cursors to the head. Answers with the groups as they are then.
  ///
  /// - Parameter subscriptions: nil: each group goes on with its own.
  mutating func download(
    _ groups: [GroupState], subscriptions: ResolvedSubscriptions?, _ facts: RecoveryFacts,
    _ sink: ([UInt8], String) async throws -> Void
  ) async throws -> [GroupState] {
    var members: [JSONValue.Member] = [
      .init("groups", .array(groups.map { BeginMessage.Group($0).json })), .init("position", .null),
    ]
    if let subscriptions { members.append(.init("subscriptions", subscriptions.json)) }
    let question = JSONValue.object(members)
    var reader = try await post("/v1/recovery/\(facts.token)/download", [question])
    defer { report.bytesReceived += reader.bytesReceived }
    var page: [UInt8] = []
    while let event = try await reader.next() {
      switch event {
      case .payload(let line):
        page += line
        page.append(0x0A)
      case .control(let line):
        if line["session"] != nil || line["config"] != nil { continue }
        if let position = line["position"]?.string {
          try await sink(page, position)
          page.removeAll(keepingCapacity: true)
          progress(.downloading(bytes: report.bytesReceived + reader.bytesReceived))
        } else if let end = line["end"] {
          if !page.isEmpty { try await sink(page, "end") }
          var ends: [GroupState] = []
          for entry in try end.array("groups") {
            var group = try GroupState(entry)
            group.lastSync = configuration.clock.now()
            ends.append(group)
          }
          return ends
        } else {
          throw try Self.problem(event)
        }
      }
    }
    throw SalvorError(.unreachable, "The server's answer was cut. The recovery goes on with the next sync.")
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
  mutating func end(_ facts: RecoveryFacts) async throws {
    let body: JSONValue = ["demand": facts.demand.map(JSONValue.integer) ?? .null]
    let response = try await configuration.request(
      "POST", "/v1/recovery/\(facts.token)/end", body.bytes + [0x0A], counting: &report)
    _ = try? await response.body.collect(upTo: configuration.limits.chunkBytesMax)
  }

  private mutating func post(_ path: String, _ lines: [JSONValue]) async throws -> ResponseReader {
    var body = PayloadWriter()
    for line in lines {
      line.write(to: &body)
      body.raw("\n")
    }
    return ResponseReader(
      try await configuration.request("POST", path, body.bytes, counting: &report), configuration)
  }

  private static var unexpected: SalvorError {
    SalvorError(.malformed, "The server's answer to a recovery's question has a line that is not of the protocol.")
  }

  private static func problem(_ event: ResponseReader.Event) throws -> SalvorError {
    if case .control(let line) = event, let problem = line["problem"] { return Problem.error(problem, status: 500) }
    return unexpected
  }
}
