import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// For whom a row is explained: a remote, and what is known of it beside its record.
public struct ExplainedRemote: Sendable {
  /// What the server's database has of it.
  public var record: RemoteRecord
  /// With the lists of its credential; nil: not known, so that nothing can be said of its scope.
  public var principal: Principal?
  /// As of its last begin; nil: it has not begun since the server's start.
  public var subscriptions: ResolvedSubscriptions?
  /// By group, of its last begin; nil: as above. A group that it never had is not in it.
  public var cursors: [String: Int64]?
  /// By default without subscriptions and cursors, as beside a database whose server does not run.
  public init(
    _ record: RemoteRecord, principal: Principal?, subscriptions: ResolvedSubscriptions? = nil,
    cursors: [String: Int64]? = nil
  ) {
    self.record = record
    self.principal = principal
    self.subscriptions = subscriptions
    self.cursors = cursors
  }
}

extension RowExplanation {
  /// Why a row is in the server's table, or not, and why a remote has it, or not.
  ///
  /// - Parameter texts: of the key, one for each column.
  public static func ofServer(
    _ store: any ServerStore, _ schema: Schema, _ name: String, key texts: [String], for remote: ExplainedRemote?
  ) async throws -> RowExplanation {
    guard let explaining = store as? any ExplainingServerStore else {
      throw SalvorError(.notFound, "This server's storage module cannot explain rows. Use the storage \"sqlite\".")
    }
    guard let table = schema.table(name) else {
      throw SalvorError(
        .notFound, "The schema has no table \(name). It has \(schema.tables.map(\.name).joined(separator: ", ")).",
        context: ["table": name])
    }
    let key = try table.key(ofTexts: texts)
    guard table.maintained != .client else {
      var told = RowExplanation(side: .server, table: name, key: key, isThere: false)
      told.add("client-only", "\(name) is maintained by devices alone: its rows never reach a server.")
      return told
    }
    let scopes = remote?.principal.map { principal in
      [ReadScope(principal), ReadScope(principal, remote?.subscriptions ?? ResolvedSubscriptions())]
    }
    let facts = try await explaining.facts(of: name, key, in: scopes ?? [])
    return ServerExplanation(table, key, facts, remote).made()
  }
}

private struct ServerExplanation {
  private let table: Table
  private let facts: ServerRowFacts
  private let remote: ExplainedRemote?
  private var told: RowExplanation

  init(_ table: Table, _ key: Key, _ facts: ServerRowFacts, _ remote: ExplainedRemote?) {
    self.table = table
    self.facts = facts
    self.remote = remote
    told = RowExplanation(side: .server, table: table.name, key: key, isThere: facts.isThere)
  }

  consuming func made() -> RowExplanation {
    if let remote { sayFor(remote) }
    sayLastChange()
    sayConflicts()
    told.facts = [
      .init("group", .string(table.group)), .init("lastChange", facts.lastChange.map(\.json) ?? .null),
      .init(
        "conflicts",
        .array(facts.conflicts.map { ["id": .integer($0.id), "state": .string(Self.state(of: $0))] })),
      .init("remote", remote.map { .string($0.record.id.text) } ?? .null),
      .init("principal", remote.map { .string($0.record.principal) } ?? .null),
    ]
    return told
  }

  private static func state(of version: ConflictVersion) -> String {
    if version.settlement != nil { return "settled" }
    return version.resolution == nil ? "open" : "resolved"
  }

  private mutating func sayFor(_ remote: ExplainedRemote) {
    let record = remote.record
    if record.isBlocked { told.add("remote-blocked", "An administrator has blocked this remote ID: it gets nothing.") }
    if record.isDeleted { told.add("remote-deleted", "This remote ID was deleted: its next sync is a first contact.") }
    if record.isResetDemanded {
      told.add("reset-demanded", "An operator has demanded that it recovers: until then it gets nothing.")
    }
    if facts.isThere { sayScope(remote) }
    sayCursor(remote)
  }

  private mutating func sayScope(_ remote: ExplainedRemote) {
    guard let allowed = facts.findings.first, let chosen = facts.findings.last else {
      told.add(
        "principal-unknown",
        "What \(remote.record.principal) may see is not known here: the authentication module does not say it of a name. Ask while the server runs and the device has synchronized (--url)."
      )
      return
    }
    switch allowed {
    case .inside: break
    case .outside:
      told.add(
        "out-of-scope",
        "\(remote.record.principal) may not see it: by the scope of \(table.name) its values are not among the principal's."
      )
    case .parentMissing(let reference):
      told.add(
        "parent-missing",
        "\(remote.record.principal) does not see it: the row of \(reference.table) that its \(reference.column) names is not there."
      )
    case .parentOutside(let reference):
      told.add(
        "parent-out-of-scope",
        "\(remote.record.principal) may not see it: the row of \(reference.table) that its \(reference.column) names is outside of the principal's scope."
      )
    }
    guard allowed == .inside else { return }
    if chosen != .inside {
      told.add(
        "not-subscribed",
        "\(remote.record.principal) may see it, and the device's subscriptions, as of its last begin, do not cover it.")
    } else if remote.subscriptions == nil {
      told.add(
        "in-scope",
        "\(remote.record.principal) may see it. What the device subscribes to is not known here: it says so at each begin; ask the running server with --url, or the device."
      )
    } else {
      told.add("in-scope", "\(remote.record.principal) may see it, and the device's subscriptions cover it.")
    }
  }

  private mutating func sayCursor(_ remote: ExplainedRemote) {
    guard let cursors = remote.cursors else { return }
    guard let cursor = cursors[table.group] else {
      told.add(
        "never-synchronized",
        "At its last begin the device had never synchronized the group \(table.group), or did not ask for it.")
      return
    }
    guard let commit = facts.lastChange?.commit else { return }
    told.add(
      cursor < commit ? "behind" : "in-step",
      cursor < commit
        ? "At its last begin the device was at commit \(cursor), before this row's last change: that sync brought it, or the next one does."
        : "At its last begin the device was at commit \(cursor), which has this row's last change.")
  }

  private mutating func sayLastChange() {
    guard let change = facts.lastChange else {
      told.add(
        facts.isThere ? "unchanged" : "never-there",
        facts.isThere
          ? "It has not been changed since commit \(facts.trimmed), as far back as the change log goes."
          : "It is not in the table, and the change log, which goes back to commit \(facts.trimmed), has never seen it."
      )
      return
    }
    let verb =
      switch change.operation {
      case .insert: "made"
      case .update: "changed"
      case .delete: "deleted"
      }
    let who =
      change.remote.map { "the upload of \(change.principal ?? "a forgotten principal") (remote ID \($0))" }
      ?? "a program of the server"
    told.add(
      facts.isThere ? "last-written" : change.operation == .delete ? "deleted" : "gone",
      "It was \(verb) last by \(who)\(change.commit.map { ", with commit \($0)" } ?? "").")
  }

  private mutating func sayConflicts() {
    for version in facts.conflicts where version.resolution == nil && version.settlement == nil {
      told.add(
        "conflict-open",
        "Conflict version \(version.id) of it, from \(version.client.principal), waits for a person: salvor conflicts show \(version.id)."
      )
    }
    let others = facts.conflicts.filter { $0.resolution != nil || $0.settlement != nil }
    if let newest = others.first {
      told.add(
        "conflict-settled",
        "\(others.count == 1 ? "One conflict" : "\(others.count) conflicts") of it \(others.count == 1 ? "was" : "were") settled, the newest as version \(newest.id)."
      )
    }
  }
}

extension ServerRowFacts.Change {
  fileprivate var json: JSONValue {
    [
      "operation": .string(operation.rawValue), "commit": commit.map(JSONValue.integer) ?? .null,
      "time": time.map(JSONValue.integer) ?? .null, "remote": remote.map { .string($0.text) } ?? .null,
      "principal": principal.map(JSONValue.string) ?? .null,
    ]
  }
}

extension ServerEngine {
  /// `GET /admin/v1/explain/TABLE?key=A&key2=B&remote=ID`: the columns of the key are `key`, `key2`, `key3` …
  func explain(_ request: TransportRequest, _ table: String) async throws -> TransportResponse {
    let given = queryParameters(request.path)
    var names = ["remote", "key", "key2"]
    while given["key\(names.count - 1)"] != nil { names.append("key\(names.count)") }
    let query = try query(of: request, knowing: names)
    let texts = names.dropFirst().prefix { query[$0] != nil }.compactMap { query[$0] }
    var remote: ExplainedRemote?
    if let text = query["remote"] {
      guard let id = RemoteID(text), let record = try await configuration.store.remote(id) else { throw noRemote(text) }
      let seen = activity[id]
      remote = ExplainedRemote(
        record,
        principal: seen?.principal
          ?? configuration.authentication.principal(named: record.principal)?.listing(in: configuration.schema),
        subscriptions: seen?.subscriptions, cursors: seen?.cursors)
    }
    let told = try await RowExplanation.ofServer(
      configuration.store, configuration.schema, percentDecoded(table), key: texts, for: remote)
    return json(told.json)
  }
}
