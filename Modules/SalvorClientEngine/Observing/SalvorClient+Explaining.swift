import SalvorModel
import SalvorStorage
import SalvorWire

extension SalvorClient {
  /// Why a row is in this device's table, or not. Needs no server, and changes nothing.
  ///
  /// - Parameter texts: a text for each column of the key.
  public func explain(_ table: String, key texts: [String]) async throws -> RowExplanation {
    let store = try await openStore()
    guard let explaining = store as? any ExplainingClientStore else {
      throw SalvorError(.usage, "This device's storage module cannot explain rows. Use the storage \"sqlite\".")
    }
    let known = try await configuration.tablesHere()
    guard let definition = known.table(formerly: table) else {
      let names = known.map(\.name)
      throw SalvorError(
        .usage, "The schema has no table \(table). It has \(names.joined(separator: ", ")).", context: ["table": table])
    }
    let table = definition.name
    let key = try definition.key(ofTexts: texts)
    let facts = try await explaining.facts(of: table, key)
    guard definition.maintained != .client else {
      var told = RowExplanation(side: .device, table: table, key: key, isThere: facts.isThere)
      told.add("client-only", "\(table) is maintained by this device alone: its rows never leave it, and none comes.")
      return told
    }
    let status = try await store.status()
    let settings = try await store.deviceSettings()
    return DeviceExplanation(
      definition, key, facts, status, settings.resolved(configuration.schema.parameters).subscriptions
    ).made()
  }
}

/// From what a store knows of a row to what a person is told.
private struct DeviceExplanation {
  private let table: Table
  private let facts: DeviceRowFacts
  private let status: ClientStatus
  private let subscriptions: ResolvedSubscriptions
  private var told: RowExplanation

  init(
    _ table: Table, _ key: Key, _ facts: DeviceRowFacts, _ status: ClientStatus, _ subscriptions: ResolvedSubscriptions
  ) {
    self.table = table
    self.facts = facts
    self.status = status
    self.subscriptions = subscriptions
    told = RowExplanation(side: .device, table: table.name, key: key, isThere: facts.isThere)
  }

  private var group: GroupState? { status.state.groups.first { $0.name == table.group } }

  consuming func made() -> RowExplanation {
    sayRequests()
    if facts.isThere { sayWhyHere() } else { sayWhyNot() }
    sayWhatHinders()
    told.facts = [
      .init("group", .string(table.group)), .init("cursor", group?.cursor.map { .integer($0.number) } ?? .null),
      .init("version", facts.version.map(JSONValue.integer) ?? .null),
      .init("ownVersion", .bool(facts.isOwnVersion)),
      .init(
        "requests",
        .array(
          facts.requests.map {
            [
              "id": .string($0.id.description), "operation": .string($0.operation.rawValue),
              "state": .string($0.state.rawValue), "reason": $0.reason.map(JSONValue.string) ?? .null,
            ]
          })),
    ]
    return told
  }

  /// What this device did to the row and the server has not taken.
  private mutating func sayRequests() {
    for request in facts.requests {
      let what = "\(request.operation.rawValue) \(request.id)"
      let why = request.reason.map { " (\($0))" } ?? ""
      switch request.state {
      case .queued: told.add("queued", "The \(what) waits: the next sync sends it.")
      case .sent, .unknownOutcome:
        told.add("sent", "The \(what) was sent, and the server's answer is not known: the next sync asks for it.")
      case .refused:
        told.add(
          "refused",
          "The server refused the \(what)\(why). It still shows in the row; salvor errors show \(request.id).")
      case .blocked:
        told.add(
          "blocked",
          "The \(what) waits for \(request.blockedBy.map { "\($0)" } ?? "another one"), which is in error.")
      case .displaced:
        told.add(
          "displaced", "The \(what) cannot stand on what the server has: it is in the archive, and not in the row.")
      case .kept:
        told.add(
          "kept", "A recovery kept the \(what)\(why) in the archive; salvor errors retry \(request.id) does it again.")
      }
    }
  }

  private var shown: [QueuedRequest] {
    facts.requests.filter { $0.state != .displaced && $0.state != .kept }
  }

  private mutating func sayWhyHere() {
    if shown.first?.operation == .insert {
      told.add("made-here", "This device made the row; the server does not have it yet.")
    } else if let version = facts.version {
      told.add(
        "version",
        facts.isOwnVersion
          ? "The server has it as this device wrote it, since commit \(version)."
          : "The server sent it; it was changed there last with commit \(version).")
    } else if group?.isSynchronized == true {
      told.add(
        "first-download",
        "It came when the group \(table.group) was fetched whole, and has not changed since; the group stands at commit \(group?.cursor?.number ?? 0)."
      )
    } else {
      told.add("not-compared", "It was here before the group \(table.group) was synchronized for the first time.")
    }
    if facts.isLeaving {
      told.add(
        "leaving", "No subscription covers it any more: it goes when the changes that need it were sent.")
    }
  }

  private mutating func sayWhyNot() {
    if shown.last?.operation == .delete {
      told.add("deleted-here", "It was deleted on this device; the server may still have it.")
      return
    }
    switch facts.base {
    case .deleted:
      let who = facts.isOwnVersion ? "this device's upload" : "others"
      told.add("deleted", "It was deleted on the server by \(who), with commit \(facts.version ?? 0).")
    case .left:
      told.add(
        "left-scope",
        "It left what this device may see or has subscribed to, with commit \(facts.version ?? 0). It was not deleted on the server."
      )
    case .present, nil: sayNeverCame()
    }
  }

  private mutating func sayNeverCame() {
    guard let group, group.isSynchronized else {
      told.add(
        "never-synchronized",
        "The group \(table.group) was never synchronized here: salvor sync --group \(table.group)."
      )
      return
    }
    if let choices = subscriptions.alternatives(forTable: table) {
      let values = choices.map { choice in
        choice.isEmpty
          ? "everything" : choice.sorted { $0.key < $1.key }.map { "\($0.key)=\($0.value)" }.joined(separator: " ")
      }
      told.add(
        choices.isEmpty ? "not-subscribed" : "subscribed",
        choices.isEmpty
          ? "\(table.name) was subscribed to once, and is not any more: it brings nothing. salvor subscribe \(table.name)."
          : "This device subscribes to \(values.sorted().joined(separator: "; ")): a row with other values does not come."
      )
    }
    told.add(
      "never-came",
      "The server has never sent it up to commit \(group.cursor?.number ?? 0): it is not there, was made later, or is outside of what \(status.state.principal.isEmpty ? "this device" : "the principal \(status.state.principal)") may see. salvor explain on the server, with --remote \(status.state.remoteID), says which."
    )
  }

  private mutating func sayWhatHinders() {
    if facts.isUnproven {
      told.add(
        "unproven", "\(table.name) was written to while Salvor's triggers were away: the next sync compares it.")
    }
    if let reason = status.state.recoveryRequired {
      told.add(
        "recovery-required", "This device must recover first (\(reason.rawValue)): salvor recover --plan.")
    }
    if let last = group?.lastSync {
      told.facts.append(.init("lastSync", .integer(last)))
    }
  }
}
