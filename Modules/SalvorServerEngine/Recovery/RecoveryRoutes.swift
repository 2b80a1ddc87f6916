import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `/v1/recovery…` (docs/reference/protocol.md, *Recovery*).
  ///
  /// - Parameter parts: of the path after `recovery`.
  func recovery(_ request: TransportRequest, _ parts: [String]) async throws -> TransportResponse {
    guard let store = configuration.store as? any RecoveringServerStore else {
      throw SalvorError(
        .notFound, "This server's storage module cannot help a device to recover. Use the storage \"sqlite\".")
    }
    let principal = try await authenticate(request)
    if request.method == "POST" && parts.isEmpty { return try await beginRecovery(request, principal, store) }
    guard (1...2).contains(parts.count) else { throw noRecoveryRoute }
    let recovery = try await recoveries.find(parts[0], principal: principal)
    LogContext.current?.set("remote", recovery.remote.text)
    if request.method == "DELETE" && parts.count == 1 {
      await recoveries.close(recovery.token)
      return TransportResponse(status: 204, contentLength: 0)
    }
    guard parts.count == 2 else { throw noRecoveryRoute }
    switch (request.method, parts[1]) {
    case ("POST", "rows"):
      return try await answerRows(request, store) {
        recovery.scopes.scope(ofTable: $0, for: principal)
      } touch: { [recoveries] in
        await recoveries.touch(recovery.token)
      }
    case ("POST", "ranges"):
      return try await answerRanges(request, store) { recovery.scopes.scope(ofTable: $0, for: principal) }
    case ("POST", "download"): return try await answerDownload(request, recovery, principal)
    case ("DELETE", "remote"): return try await forget(recovery, principal)
    case ("POST", "end"): return try await end(request, recovery, principal, store)
    default: throw noRecoveryRoute
    }
  }

  private var noRecoveryRoute: SalvorError {
    SalvorError(
      .notFound,
      "Under /v1/recovery there are POST /v1/recovery, POST TOKEN/rows, TOKEN/ranges, TOKEN/download, TOKEN/end, DELETE TOKEN and DELETE TOKEN/remote."
    )
  }

  // MARK: Begin

  /// `POST /v1/recovery`: facts instead of a sync, whatever the checks of a begin say.
  private func beginRecovery(
    _ request: TransportRequest, _ principal: Principal, _ store: any RecoveringServerStore
  ) async throws -> TransportResponse {
    let body = try await decodedBody(request, limit: beginLimit)
    let message = try await parsedBegin(body).following(configuration.schema)
    guard message.history != nil, message.upload == .none else {
      throw SalvorError(.malformed, "A recovery's begin has a \"history\", and its \"upload\" is none.")
    }
    LogContext.current?.set("remote", message.remote.text)
    try await sessions.giveWay(to: message)
    let recovery = try await open(message, principal)
    do {
      let admission = try await admission(of: message, principal: principal)
      let finding = try await finding(message, admission)
      var facts = try await facts(finding, admission, recovery, principal, store)
      if message.snapshot != nil { facts.files = try await files(for: message, principal) }
      let label = finding.label
      metrics.countRecovery(label)
      operatorEvents.send("recovery", ["remote": message.remote.text, "reason": label])
      deviceLog.say(
        "Remote ID '\(message.remote)' recovers (\(label)); shared commit: \(facts.shared.map { "\($0.number)" } ?? "none"), newest: \(facts.head.number).",
        about: principal.name)
      var answer = facts.json.bytes + [0x0A]
      if message.schemaDigest != config.digest {
        answer += (["config": config.json] as JSONValue).bytes + [0x0A]
      }
      return try await respond(answer, request)
    } catch {
      await recoveries.close(recovery.token)
      throw error
    }
  }

  private func open(_ message: BeginMessage, _ principal: Principal) async throws -> RecoveryTable.Recovery {
    let remote = message.remote
    let scopes = GroupScopes(message, in: configuration.schema, recovers: true)
    switch try await recoveries.open(remote, principal: principal.name, scopes: scopes) {
    case .open(let recovery, _): return recovery
    case .comeBack(let delay, let isFirst):
      if isFirst {
        configuration.log(
          "\(configuration.limits.recoveriesMax) devices recover at once (recoveriesMax); others are told to come back."
        )
      }
      throw SalvorError(
        .overloaded, "Many devices recover at this moment. Try again after the time named; nothing is lost.",
        context: ["remote": remote.text], retryAfterMilliseconds: delay)
    }
  }

  /// What a begin would be refused with now.
  private struct Finding {
    var reason: RecoveryReason?
    var shared: Commit?
    var differences: [String]
    /// As metrics and log name it.
    var label: String
  }

  private func finding(_ message: BeginMessage, _ admission: Admission) async throws -> Finding {
    let differences = try schemaDifferences(message)
    var finding = Finding(
      shared: admission.lastShared,
      differences: differences.destructive + differences.ahead.map { "\($0) on the device" }, label: "")
    var isParted = false
    if case .reset(let replaced) = checkServer(known: message.server, own: identity.server) {
      finding.reason = replaced
      finding.shared = nil
    } else {
      switch try await verdict(on: message, admission) {
      case .accepted, .historyNeeded: break
      case .reset(let found): finding.reason = found
      case .parted(_, let found):
        finding.reason = found
        isParted = true
      }
    }
    if finding.reason == nil && !finding.differences.isEmpty { finding.reason = .schemaIncompatible }
    finding.label = isParted ? ErrorCode.historyParted.rawValue : finding.reason?.rawValue ?? "none"
    return finding
  }

  private func facts(
    _ finding: Finding, _ admission: Admission, _ recovery: RecoveryTable.Recovery, _ principal: Principal,
    _ store: any RecoveringServerStore
  ) async throws -> RecoveryFacts {
    let groups = configuration.schema.groups.map(\.name)
    let trimmed = try await store.trimmed()
    var scopes: [String: String] = [:]
    var rows: Int64 = 0
    for group in groups {
      let scope = recovery.scopes.scope(ofGroup: group, for: principal)
      scopes.merge(try await store.scopes(of: [group], for: scope)) { first, _ in first }
      rows += try await store.rowCount(of: [group], for: scope)
    }
    return RecoveryFacts(
      token: recovery.token, server: identity.server, incarnation: identity.incarnation, principal: principal.name,
      reason: finding.reason, shared: finding.shared, trimmed: trimmed, head: admission.head, stored: admission.stored,
      scopes: scopes, rows: rows, clientRecoveryEnabled: configuration.clientRecoveryEnabled,
      selfServiceRemoteDeletion: configuration.selfServiceRemoteDeletion, differences: finding.differences,
      demand: admission.remote?.resetDemand, heals: store is any HealingServerStore,
      incarnations: admission.incarnations.filter { $0.firstCommit > finding.shared?.number ?? 0 })
  }

  /// What stands ready of all groups for a device that begins anew. For a plan: nothing is made for it.
  private func files(for message: BeginMessage, _ principal: Principal) async throws -> [RecoveryFacts.File] {
    let question = SnapshotQuestion(
      taking: message.snapshot,
      groups: configuration.schema.groups.map { BeginMessage.Group(name: $0.name, cursor: nil, scope: nil) },
      subscriptions: message.subscriptions, principal: principal)
    return try await snapshots(for: question, orders: false).map {
      RecoveryFacts.File(group: $0.group, rows: $0.rows, bytes: $0.bytes)
    }
  }

  // MARK: Download

  /// `POST /v1/recovery/TOKEN/download`: the feed, with what this device itself sent; or files in its place.
  private func answerDownload(
    _ request: TransportRequest, _ recovery: RecoveryTable.Recovery, _ principal: Principal
  ) async throws -> TransportResponse {
    let line = try await line(request)
    let list = try line.array("groups")
    guard list.count <= 1000 else { throw SalvorError(.tooLarge, "A download names at most 1000 groups.") }
    let schema = configuration.schema
    let groups = try list.map { entry in
      var group = try BeginMessage.Group(entry)
      group.subscriptions = group.subscriptions.following(schema)
      return group
    }
    let subscriptions = try line["subscriptions"].map { try ResolvedSubscriptions($0).following(schema) }
    let position = try line.optionalString("position")
    let question = SnapshotQuestion(
      taking: try line["snapshot"].map { try SnapshotTaking($0) }, groups: groups, subscriptions: subscriptions,
      principal: principal)
    var head = sessionLine(principal, []).bytes + [0x0A]
    let offers = position == nil ? try await snapshotOffers(question) : []
    if !offers.isEmpty {
      head += (["snapshots": .array(offers.map(\.json))] as JSONValue).bytes + [0x0A]
      return try await respond(head, request)
    }
    let pages = PageSource(
      engine: self, remote: RemoteID(from: configuration.random), principal: principal,
      subscriptions: subscriptions, groups: try await held(question).groups, position: position,
      touch: { [recoveries] in await recoveries.touch(recovery.token) },
      finished: {})
    return try await answer(head, pages, request)
  }

  // MARK: Ends

  /// `DELETE /v1/recovery/TOKEN/remote`
  private func forget(
    _ recovery: RecoveryTable.Recovery, _ principal: Principal
  ) async throws -> TransportResponse {
    guard configuration.selfServiceRemoteDeletion else {
      throw SalvorError(
        .forbidden,
        "Devices may not delete their remote ID here (server.recovery.selfServiceRemoteDeletion). Ask the server's operator: salvor remotes delete ID.",
        context: ["remote": recovery.remote.text])
    }
    let remotes = AdmissionQuery(remote: recovery.remote, previous: nil, current: nil, cursors: [])
    if let known = try await configuration.store.admit(remotes).remote, !known.isDeleted {
      guard !known.isBlocked, known.principal.isSameName(as: principal.name) else {
        throw SalvorError(.remoteBlocked, "An administrator has blocked this remote ID. Ask the server's operator.")
      }
      _ = try await write(for: principal) { try await $0.deleteRemote(recovery.remote, block: false) }
      deviceLog.say("Remote ID '\(recovery.remote)' was deleted by its device, which recovers.", about: principal.name)
    }
    return TransportResponse(status: 204, contentLength: 0)
  }

  /// `POST /v1/recovery/TOKEN/end`
  private func end(
    _ request: TransportRequest, _ recovery: RecoveryTable.Recovery, _ principal: Principal,
    _ store: any RecoveringServerStore
  ) async throws -> TransportResponse {
    // One that the operator has made since stands: the device has not met it.
    let line = try await lines(request, max: 1).first
    if let demand = try line?.optionalInteger("demand") {
      _ = try await write(for: principal) { _ in try await store.settleReset(recovery.remote, demand: demand) }
    }
    await recoveries.close(recovery.token)
    metrics.recoveriesEnded.add(1)
    let (reason, strategy) = (name(line?["reason"]?.string), name(line?["strategy"]?.string))
    if line?["strategy"]?.string != nil {
      countEnd(reason, strategy)
      // It has come since a restore, also where it goes on under another remote ID.
      _ = try? await store.admit(AdmissionQuery(remote: recovery.remote, previous: nil, current: nil, cursors: []))
    }
    activity.noteRecovery(of: recovery.remote, reason: reason, strategy: strategy)
    activity.noteSuccess(of: recovery.remote)
    operatorEvents.send("recovered", ["remote": recovery.remote.text])
    deviceLog.say("Remote ID '\(recovery.remote)' has recovered.", about: principal.name)
    return TransportResponse(status: 204, contentLength: 0)
  }

  /// What a device says, as far as it may be the name of a reason or of a strategy.
  private func name(_ text: String?) -> String? {
    guard let text, (1...64).contains(text.utf8.count),
      text.utf8.allSatisfy({ (97...122).contains($0) || (48...57).contains($0) || $0 == 45 })
    else { return nil }
    return text
  }

  private func countEnd(_ reason: String?, _ strategy: String?) {
    func labels(_ reason: String?, _ strategy: String?) -> String {
      "\(MetricsText.label("reason", reason ?? "other")),\(MetricsText.label("strategy", strategy ?? "other"))"
    }
    metrics.recoveriesByStrategy.add(labels(reason, strategy), other: labels(nil, nil))
  }
}
