@preconcurrency import Dispatch
import SalvorModel
import SalvorServer
import SalvorStorage
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

extension Command {
  static let serve = Command(
    "serve", "runs the server until SIGTERM or SIGINT, then finishes what is in flight",
    discussion: """
      Makes or adopts the consolidated database, listens, and says where on one line. Other programs may read and write
      the real tables at any time: what they write reaches the devices with their next sync. The log goes to standard
      error and holds no values of rows. SIGHUP has the files of TLS read again, without a restart.
      """
  ) { invocation in
    // Before the first word: whoever reads one may send a signal.
    let signals = TerminationSignals(endingWithinSeconds: 9)
    let terminal = invocation.terminal
    let server = try await invocation.makeServer(log: { line in
      logLine(line)
    })
    let opening = server.opening
    if !opening.createdTables.isEmpty {
      terminal.say("made tables: \(opening.createdTables.joined(separator: ", "))")
    }
    if !opening.addedColumns.isEmpty { terminal.say("added columns: \(opening.addedColumns.joined(separator: ", "))") }
    if opening.adoptedRows > 0 { terminal.say("adopted \(grouped(opening.adoptedRows)) rows") }
    if opening.isRestored {
      terminal.say("this database was restored from a copy: devices that have seen more recover at their next sync")
    }
    let url = try await server.start()
    terminal.json([
      "url": .string(url), "server": .string(opening.serverID.text), "restored": .bool(opening.isRestored),
    ])
    terminal.print("listening on \(url)")
    let renewals = RenewalSignal { await server.reload() }
    await signals.wait()
    renewals.end()
    terminal.say("finishing what is in flight")
    await server.stop()
    return 0
  }

  static let remotes = Command(
    "remotes", "server: the remote databases that have registered",
    discussion: "Reads the server's database of the configuration; the server may be running."
  ) { invocation in try await listRemotes(invocation) }

  static let remotesList = Command("remotes list", "server: the same as `remotes`") { invocation in
    try await listRemotes(invocation)
  }

  static let remotesShow = Command(
    "remotes show", "server: one remote database", arguments: ["ID"]
  ) { invocation in
    let store = try await invocation.openServerStore()
    let remotes = try await store.remotes()
    await store.close()
    guard let remote = remotes.first(where: { $0.id.text == invocation.arguments[0] }) else {
      throw SalvorError(.notFound, "There is no remote ID \(invocation.arguments[0]). salvor remotes lists them.")
    }
    invocation.terminal.json(remote.json)
    for member in remote.json.members ?? [] {
      invocation.terminal.print("\(member.key): \(member.value.string ?? member.value.text)")
    }
    return 0
  }

  static let remotesDelete = Command(
    "remotes delete", "server: forgets a remote ID; --block keeps the device out",
    discussion: """
      The device's next sync is then a first contact: it registers again with the same remote ID, and nothing that it
      had uploaded before is applied twice. With --block it is refused until the remote ID is deleted without --block.
      """,
    arguments: ["ID"], options: [Option("block", "keep the device out")]
  ) { invocation in
    guard let id = RemoteID(invocation.arguments[0]) else {
      throw SalvorError(.usage, "A remote ID is 32 hexadecimal digits. salvor remotes lists them.")
    }
    let store = try await invocation.openServerStore()
    let isDeleted = try await store.deleteRemote(id, block: invocation.flags.contains("block"))
    await store.close()
    guard isDeleted else {
      throw SalvorError(.notFound, "There is no remote ID \(id). salvor remotes lists them.")
    }
    invocation.terminal.json(["deleted": .string(id.text), "blocked": .bool(invocation.flags.contains("block"))])
    invocation.terminal.say("deleted \(id)\(invocation.flags.contains("block") ? " and blocked it" : "")")
    return 0
  }

  static let serverStats = Command(
    "server stats", "server: the state of its storage",
    discussion: "Reads the server's database of the configuration; the server may be running."
  ) { invocation in
    let store = try await invocation.openServerStore()
    let stats = try await store.stats()
    await store.close()
    invocation.terminal.json(stats.json)
    invocation.terminal.print("server ID    \(stats.serverID)")
    invocation.terminal.print("head commit  \(stats.head.number)")
    invocation.terminal.print("remotes      \(stats.remotes)")
    invocation.terminal.print("log entries  \(grouped(stats.logEntries))")
    invocation.terminal.print("staged       \(bytes(stats.stagedBytes))")
    invocation.terminal.print("conflicts    \(grouped(stats.openConflicts)) open")
    return 0
  }
}

@Sendable
private func listRemotes(_ invocation: Invocation) async throws -> Int32 {
  let store = try await invocation.openServerStore()
  let remotes = try await store.remotes()
  await store.close()
  let terminal = invocation.terminal
  terminal.json(["remotes": .array(remotes.map(\.json))])
  if remotes.isEmpty {
    terminal.say("no remote database has registered yet")
  } else {
    terminal.table(
      ["remote ID", "principal", "state", "registered", "last upload"],
      remotes.map { remote in
        [
          remote.id.text, remote.principal, state(of: remote),
          timestamp(remote.registered), remote.lastUpload.map(timestamp) ?? "-",
        ]
      })
  }
  return 0
}

private func state(of remote: RemoteRecord) -> String {
  if remote.isBlocked { return "blocked" }
  if remote.isDeleted { return "deleted" }
  return remote.isResetDemanded ? "reset demanded" : "known"
}

/// A line of the server's log on standard error, with the time.
func logLine(_ text: String) {
  let line = Array("\(timestamp(SystemClock().now())) \(text)\n".utf8)
  _ = line.withUnsafeBytes { write(2, $0.baseAddress, $0.count) }
}
