import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorWire

extension Command {
  static let conflicts = Command(
    "conflicts", "server: conflict versions that wait for a person, or what policies settled",
    discussion: """
      Where a table's conflict policy keeps both versions (keep-versions), the server's row stands and what the device sent
      is kept beside it, until somebody resolves it. --settled lists the conflicts that a policy (client-wins, a module's)
      settled at once, each with the value that lost, for as long as server.retention.conflicts says. Reads the server's
      database of the configuration; the server may be running.
      """,
    options: listOptions
  ) { invocation in try await listConflicts(invocation) }

  static let conflictsList = Command(
    "conflicts list", "server: the same as `conflicts`", options: listOptions
  ) { invocation in try await listConflicts(invocation) }

  static let conflictsShow = Command(
    "conflicts show", "server: both versions side by side, and the row as it is now",
    discussion: """
      A request that changed several rows is kept as a whole: all of its rows are shown, also those without a conflict of
      their own. An empty cell under "client's" is a column that the client did not change.
      """,
    arguments: ["ID"]
  ) { invocation in
    let id = try invocation.conflictID()
    let store = try await invocation.openServerStore()
    let rows = try await store.conflict(id)
    await store.close()
    guard !rows.isEmpty else { throw SalvorError.noConflict(id) }
    invocation.terminal.json(try ConflictRow.json(rows))
    for (place, row) in rows.enumerated() {
      if place > 0 { invocation.terminal.print("") }
      show(row, on: invocation.terminal)
    }
    return 0
  }

  static let conflictsResolve = Command(
    "conflicts resolve", "server: keeps the client's version or the server's, for good",
    discussion: """
      client writes what the client wanted (the columns that it changed; a delete deletes) as an ordinary change of the
      server: every device gets it with its next sync, the one that sent it too. server writes nothing. The versions of one
      request are resolved together. Where the client's version cannot stand any more, nothing is changed and the error
      says why. The server may be running.
      """,
    arguments: ["ID"], options: [Option("keep", value: "SIDE", "client or server")]
  ) { invocation in
    let id = try invocation.conflictID()
    guard let keep = invocation.options["keep"].flatMap(ConflictSide.init) else {
      throw SalvorError(.usage, "Say whose version stands: --keep client, or --keep server.")
    }
    let store = try await invocation.openServerStore()
    let resolved: [ConflictVersion]
    do {
      resolved = try await invocation.audited("conflicts.resolve", "\(id)", on: store) {
        try await store.resolveConflict(id, keep: keep, by: invocation.userName)
      }
    } catch {
      await store.close()
      throw error
    }
    await store.close()
    invocation.terminal.json(["resolved": .array(resolved.map(\.json))])
    let rows = resolved.count == 1 ? "1 row" : "\(resolved.count) rows"
    invocation.terminal.say(
      keep == .client
        ? "resolved \(id): the client's version of \(rows) is written, and reaches every device"
        : "resolved \(id): the server's version of \(rows) stands")
    return 0
  }

  private static let listOptions = [
    Option("state", value: "STATE", "open (default), resolved, settled or all"),
    Option("settled", "what policies settled, with the values that lost; the same as --state settled"),
    Option("after", value: "ID", "only those after this one"),
    Option("limit", value: "N", "at most N versions (default 1000)"),
  ]
}

extension Invocation {
  fileprivate func conflictID() throws -> Int64 {
    guard let id = Int64(arguments[0]) else {
      throw SalvorError(.usage, "The ID of a conflict version is a whole number. salvor conflicts lists them.")
    }
    return id
  }

  /// Who uses the command line, for the record of what was resolved.
  var userName: String {
    ["USER", "LOGNAME"].lazy.compactMap { environment[$0] }.first { !$0.isEmpty } ?? "operator"
  }
}

@Sendable
private func listConflicts(_ invocation: Invocation) async throws -> Int32 {
  let limit = try invocation.wholeNumber("limit", default: 1000)
  let after = try invocation.wholeNumber("after", default: 0)
  let isSettled = invocation.flags.contains("settled")
  if isSettled, invocation.options["state"] != nil {
    throw SalvorError(.usage, "--settled is the same as --state settled. Give one of them.")
  }
  let named = isSettled ? ConflictState.settled.rawValue : invocation.options["state"] ?? ConflictState.open.rawValue
  let state = ConflictState(rawValue: named)
  guard state != nil || named == "all" else {
    throw SalvorError(.usage, "--state takes open, resolved, settled or all.")
  }
  let store = try await invocation.openServerStore()
  let found = try await store.conflicts(after: Int64(after), limit: limit + 1, state: state)
  await store.close()
  let versions = found.prefix(limit)
  let next = found.count > limit ? versions.last?.id : nil
  let terminal = invocation.terminal
  terminal.json([
    "conflicts": .array(versions.map(\.json)), "next": next.map(JSONValue.integer) ?? .null,
  ])
  guard !versions.isEmpty else {
    switch state {
    case .open: terminal.say("no conflict waits for a person")
    case .settled: terminal.say("no policy has settled a conflict lately")
    case .resolved, nil: terminal.say("there are no conflict versions")
    }
    return 0
  }
  if state == .settled {
    showSettled(versions, on: terminal)
    if let next { terminal.say("there are more: --after \(next)") }
    return 0
  }
  terminal.table(
    ["id", "state", "table", "key", "operation", "client", "when", "made on", "server", "when", "commit"],
    versions.map { version in
      [
        "\(version.id)", stateText(version), version.table,
        keyText(version), version.client.operation.rawValue, version.client.principal,
        moment(version.client.time), "\(version.client.made)", author(of: version.server),
        version.server.time.map(moment) ?? "-", version.server.commit.map { "\($0)" } ?? "-",
      ]
    })
  if let next { terminal.say("there are more: --after \(next)") }
  return 0
}

/// One line for each row: what was overwritten, whose it was, and who overwrote it.
private func showSettled(_ versions: ArraySlice<ConflictVersion>, on terminal: Terminal) {
  terminal.table(
    [
      "id", "table", "key", "operation", "lost", "of", "when", "commit", "policy", "client", "when",
      "lost of the client",
    ],
    versions.map { version in
      [
        "\(version.id)", version.table, keyText(version), version.client.operation.rawValue,
        text(version.lostOfServer), author(of: version.server),
        version.server.time.map(moment) ?? "-", version.server.commit.map { "\($0)" } ?? "-",
        version.settlement?.policy ?? "-", version.client.principal, moment(version.client.time),
        text(version.lostOfClient),
      ]
    })
}

private func text(_ values: [NamedValue]) -> String {
  values.isEmpty ? "-" : values.map { "\($0.name)=\($0.value)" }.joined(separator: ", ")
}

private func stateText(_ version: ConflictVersion) -> String {
  if let policy = version.settlement?.policy { return "settled by \(policy)" }
  return version.resolution.map { "\($0.keep.rawValue)'s kept" } ?? "open"
}

private func keyText(_ version: ConflictVersion) -> String {
  version.key.map(\.word).joined(separator: ", ")
}

private func author(of server: ConflictVersion.ServerSide) -> String {
  if let principal = server.principal { return principal }
  return server.commit == nil ? "-" : "another program"
}

private func show(_ row: ConflictRow, on terminal: Terminal) {
  let version = row.version, client = version.client, server = version.server
  terminal.print(
    terminal.bold(
      "conflict version \(version.id): \(client.operation.rawValue) of \(version.table) \(visible(keyText(version)))")
  )
  let state =
    version.settlement.map { "settled by the policy \($0.policy)" }
    ?? version.resolution.map { "the \($0.keep.rawValue)'s was kept, \(moment($0.time)), by \($0.by)" } ?? "open"
  terminal.print("state    \(state)")
  terminal.print("request  \(version.request)\(version.first == version.id ? "" : ", with version \(version.first)")")
  terminal.print(
    "client   \(client.principal), \(moment(client.time)), made on commit \(client.made), remote ID \(client.remote)"
  )
  var made = author(of: server)
  if let commit = server.commit { made += ", \(server.time.map(moment) ?? "-"), commit \(commit)" }
  if let remote = server.remote { made += ", remote ID \(remote)" }
  terminal.print("server   \(made)")
  func text(_ values: [NamedValue]?, _ column: String) -> String {
    guard let values else { return "(no row)" }
    return values.first { $0.name == column }?.value.description ?? ""
  }
  var columns = (server.row ?? row.present ?? []).map(\.name)
  for column in client.columns where !columns.contains(column.name) { columns.append(column.name) }
  terminal.table(
    ["column", "client saw", "client's", "server's", "now"],
    columns.map { name in
      let changed = client.columns.first { $0.name == name }
      return [
        name, changed?.old?.description ?? "",
        client.operation == .delete ? "(deleted)" : changed?.new.description ?? "", text(server.row, name),
        text(row.present, name),
      ]
    })
}
