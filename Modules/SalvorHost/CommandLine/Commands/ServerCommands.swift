@preconcurrency import Dispatch
import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorServerHost
import SalvorStorage
import SalvorTransport
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
      error and holds no values of rows: a line an event, by server.log of the configuration as logfmt, JSON or with
      journald's priorities. SIGHUP reads server.log and the files of TLS again, without a restart.
      """
  ) { invocation in
    Host.settleMemory()
    // Before the first word: whoever reads one may send a signal.
    let signals = TerminationSignals(endingWithinSeconds: 9)
    let terminal = invocation.terminal
    let writer = LogWriter(format: LogWriter.format(environment: invocation.environment))
    let (configuration, server) = try await invocation.makeServer(writer)
    let opening = server.opening
    if !opening.createdTables.isEmpty {
      terminal.say("made tables: \(opening.createdTables.joined(separator: ", "))")
    }
    if !opening.addedColumns.isEmpty { terminal.say("added columns: \(opening.addedColumns.joined(separator: ", "))") }
    if opening.adoptedRows > 0 { terminal.say("adopted \(grouped(opening.adoptedRows)) rows") }
    if opening.isRestored {
      terminal.say("this database was restored from a copy: devices that have seen more recover at their next sync")
    }
    let manager = ServiceManager(environment: invocation.environment)
    let reloading = reloads(invocation, server, writer, manager)
    let url = try await server.start()
    manager.tell("READY=1", "STATUS=listening on \(url)")
    let engine = server.engine
    let living = manager.keepAlive {
      await engine.handle(TransportRequest(method: "GET", path: "/healthz", contentLength: 0)).status == 200
    }
    logStart(configuration, server, url, writer.log)
    terminal.json([
      "url": .string(url), "server": .string(opening.serverID.text), "restored": .bool(opening.isRestored),
    ])
    terminal.print("listening on \(url)")
    await signals.wait()
    manager.tell("STOPPING=1")
    reloading.cancel()
    living?.cancel()
    writer.log.notice("The server stops: it finishes what is in flight.")
    terminal.say("finishing what is in flight")
    await server.stop()
    writer.log.notice("The server has stopped.")
    return 0
  }

  static let remotes = Command(
    "remotes", "server: the remote databases that have registered",
    discussion: """
      Reads the server's database of the configuration; the server may be running. With --url it asks a server elsewhere
      instead, with the token in SALVOR_ADMIN_TOKEN (salvor token NAME --role viewer), and so do the other commands of
      `remotes`.
      """, options: [.url]
  ) { invocation in try await listRemotes(invocation) }

  static let remotesList = Command("remotes list", "server: the same as `remotes`", options: [.url]) { invocation in
    try await listRemotes(invocation)
  }

  static let remotesShow = Command(
    "remotes show", "server: one remote database", arguments: ["ID"], options: [.url]
  ) { invocation in
    let id = try invocation.remoteID()
    if let elsewhere = try invocation.administration() {
      let found = try await elsewhere.call("GET", "/admin/v1/remotes/\(id)")
      await elsewhere.close()
      invocation.terminal.json(found)
      describe(found, on: invocation.terminal)
      return 0
    }
    let store = try await invocation.openServerStore()
    let found = try await store.remote(id)
    await store.close()
    guard let remote = found else { throw noRemote(id) }
    invocation.terminal.json(remote.json)
    describe(remote, on: invocation.terminal)
    return 0
  }

  static let remotesDelete = Command(
    "remotes delete", "server: forgets a remote ID; --block keeps the device out",
    discussion: """
      The device's next sync is then a first contact: it registers again with the same remote ID, and nothing that it
      had uploaded before is applied twice. With --block it is refused until the remote ID is deleted without --block.

      A block is of one remote ID. Who begins with a new database, or puts an older copy of the device's file back, comes
      under another ID: to keep a person out, take the token away.
      """,
    arguments: ["ID"], options: [Option("block", "keep the device out"), .url]
  ) { invocation in
    let id = try invocation.remoteID()
    let block = invocation.flags.contains("block")
    if let elsewhere = try invocation.administration() {
      _ = try await elsewhere.call("DELETE", "/admin/v1/remotes/\(id)\(block ? "?block=true" : "")")
      await elsewhere.close()
    } else {
      let store = try await invocation.openServerStore()
      try await invocation.audited(block ? "remotes.block" : "remotes.delete", id.text, on: store) {
        guard try await store.deleteRemote(id, block: block) else { throw noRemote(id) }
      }
      await store.close()
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
  let terminal = invocation.terminal
  if let elsewhere = try invocation.administration() {
    let remotes = try await elsewhere.remotes()
    await elsewhere.close()
    terminal.json(["remotes": .array(remotes)])
    guard !remotes.isEmpty else {
      terminal.say("no remote database has registered yet")
      return 0
    }
    terminal.table(
      ["remote ID", "principal", "state", "registered", "last upload"],
      remotes.map { remote in
        [
          remote["id"]?.string ?? "", remote["principal"]?.string ?? "", remote["state"]?.string ?? "",
          remote["registered"]?.integer.map(moment) ?? "-", remote["lastUpload"]?.integer.map(moment) ?? "-",
        ]
      })
    return 0
  }
  let store = try await invocation.openServerStore()
  let remotes = try await store.remotes()
  await store.close()
  terminal.json(["remotes": .array(remotes.map(\.json))])
  if remotes.isEmpty {
    terminal.say("no remote database has registered yet")
  } else {
    terminal.table(
      ["remote ID", "principal", "state", "registered", "last upload"],
      remotes.map { remote in
        [
          remote.id.text, remote.principal, state(of: remote),
          moment(remote.registered), remote.lastUpload.map(moment) ?? "-",
        ]
      })
  }
  return 0
}

func noRemote(_ id: RemoteID) -> SalvorError {
  SalvorError(.notFound, "There is no remote ID \(id). salvor remotes lists them.")
}

extension Invocation {
  /// The first argument.
  func remoteID() throws -> RemoteID {
    guard let id = RemoteID(arguments[0]) else {
      throw SalvorError(.usage, "A remote ID is 32 hexadecimal digits. salvor remotes lists them.")
    }
    return id
  }
}

/// One remote as `/admin/v1/remotes/ID` has it: also what the running server has seen of it.
private func describe(_ remote: JSONValue, on terminal: Terminal) {
  func time(_ json: JSONValue?) -> String { json?.integer.map { moment($0) } ?? "none" }
  let seen = remote["seen"]
  let error = seen?["lastError"]
  let code = error?["code"]?.string.map { "\(time(error?["time"])): \($0) \(error?["reason"]?.string ?? "")" }
  let rows: [(String, String)] = [
    ("remote ID", remote["id"]?.string ?? ""), ("principal", visible(remote["principal"]?.string ?? "")),
    ("state", remote["state"]?.string ?? ""), ("registered", time(remote["registered"])),
    ("last upload", time(remote["lastUpload"])), ("last begin", time(seen?["lastBegin"])),
    ("last error", code ?? "none"),
    ("behind", seen?["behind"]?.integer.map { "\(grouped($0)) commits" } ?? "not known since the server's start"),
  ]
  for (name, value) in rows { terminal.print(name.padding(13) + value) }
}

extension String {
  fileprivate func padding(_ width: Int) -> String { self + String(repeating: " ", count: max(1, width - count)) }
}

private func describe(_ remote: RemoteRecord, on terminal: Terminal) {
  terminal.print("remote ID    \(remote.id)")
  terminal.print("principal    \(visible(remote.principal))")
  terminal.print("state        \(state(of: remote))")
  terminal.print("registered   \(moment(remote.registered))")
  terminal.print("last upload  \(remote.lastUpload.map { moment($0) } ?? "none")")
  terminal.print("sequence     \(remote.sequence?.text ?? "none")")
}

private func state(of remote: RemoteRecord) -> String {
  if remote.isBlocked { return "blocked" }
  if remote.isDeleted { return "deleted" }
  return remote.isResetDemanded ? "reset demanded" : "known"
}

/// The first lines of the log: which server this is and how it is set up, without a secret.
private func logStart(_ configuration: HostConfiguration, _ server: RunningServer, _ url: String, _ log: Log) {
  guard let section = configuration.server else { return }
  log.notice(
    "The server has started.",
    [
      "version": salvorVersion, "url": url, "server": server.opening.serverID.text,
      "incarnation": server.opening.incarnation.text, "restored": server.opening.isRestored ? "true" : nil,
      "configuration": configuration.file, "schema": "\(configuration.schema.version)",
      "storage": section.storage.descriptor.name, "authentication": section.authentication.descriptor.name,
      "logged": section.log.level.rawValue,
    ])
}

/// Each SIGHUP reads the configuration and the files of TLS again and takes over what may change while the server runs.
private func reloads(
  _ invocation: Invocation, _ server: RunningServer, _ writer: LogWriter, _ manager: ServiceManager
) -> Task<Void, Never> {
  let signals = ReloadSignals()
  return Task {
    await signals.forEach {
      manager.tell("RELOADING=1")
      defer { manager.tell("READY=1") }
      await server.reload()
      let found = invocation.readConfiguration([.server])
      guard let settings = found.configuration?.server?.log else {
        writer.log.error(
          "The configuration cannot be used; the server goes on with the one of before. salvor check says what is wrong.",
          ["mistakes": "\(found.diagnostics.errors.count)"])
        return
      }
      let before = writer.level
      writer.level = settings.level
      writer.log.notice(
        "The configuration was read again.", ["now": settings.level.rawValue, "before": before.rawValue])
    }
  }
}
