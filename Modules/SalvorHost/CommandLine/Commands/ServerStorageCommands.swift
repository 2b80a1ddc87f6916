import SalvorModel
import SalvorStorage
import SalvorWire

extension Command {
  static let remotesReset = Command(
    "remotes reset", "server: demands that a remote database recovers",
    discussion: """
      The device's next sync is refused with the reason operator-requested, and the device recovers by the strategy that its
      own configuration names for that reason. The demand ends when it has recovered, or when the remote ID is deleted.
      The server may be running.
      """,
    arguments: ["ID"]
  ) { invocation in
    guard let id = RemoteID(invocation.arguments[0]) else {
      throw SalvorError(.usage, "A remote ID is 32 hexadecimal digits. salvor remotes lists them.")
    }
    let store = try await invocation.openServerStore()
    let isDemanded = try await (store as? any RecoveringServerStore)?.demandReset(id)
    await store.close()
    switch isDemanded {
    case nil: throw unable("resets")
    case false?: throw SalvorError(.notFound, "There is no remote ID \(id). salvor remotes lists them.")
    case true?: break
    }
    invocation.terminal.json(["resetDemanded": .string(id.text)])
    invocation.terminal.say("\(id) will be told to recover at its next sync")
    return 0
  }

  static let serverBackup = Command(
    "server backup", "server: a checked copy of the whole database, also while the server runs",
    discussion: """
      Writes one SQLite file that is the database of one moment, checks it and makes it durable. An existing FILE is never
      replaced. Restore it with salvor server restore; copying the database's file by other means while a server runs gives
      a damaged copy.
      """,
    arguments: ["FILE"]
  ) { invocation in
    let file = invocation.arguments[0]
    guard let store = try invocation.makeServerStore() as? any RecoveringServerStore else { throw unable("backups") }
    try await store.backup(to: file)
    let size = try fileSize(file)
    invocation.terminal.json(["file": .string(file), "bytes": .integer(size)])
    invocation.terminal.say("wrote \(file) (\(bytes(size)))")
    return 0
  }

  static let serverRestore = Command(
    "server restore", "server: puts a copy in the place of the database; the server must not be running",
    discussion: """
      Checks FILE first, and refuses it where it is not a whole copy of a server's database. The present database is kept
      beside, as DATABASE.before-restore-TIME. The next salvor serve says that the database was restored, and every device
      that has seen more is told so at its next sync and recovers by its strategy: what they still hold comes back.
      """,
    arguments: ["FILE"]
  ) { invocation in
    guard let store = try invocation.makeServerStore() as? any RestorableServerStore else { throw unable("restoring") }
    let done = try await store.restore(from: invocation.arguments[0])
    let terminal = invocation.terminal
    terminal.json([
      "restored": .string(invocation.arguments[0]), "database": .string(done.database),
      "before": done.before.map(JSONValue.string) ?? .null, "server": .string(done.server.text),
      "head": .integer(done.head.number), "remembered": done.remembered.map(JSONValue.integer) ?? .null,
    ])
    terminal.say("restored \(done.database) to commit \(done.head.number)")
    if let before = done.before { terminal.say("the database before is \(before)") }
    if let remembered = done.remembered, remembered > done.head.number {
      terminal.say(
        "\(grouped(remembered - done.head.number)) commits are not in it: devices that have seen them recover at their next sync"
      )
    }
    return 0
  }
}

private func unable(_ what: String) -> SalvorError {
  SalvorError(.usage, "This server's storage module does not support \(what). Use the storage \"sqlite\".")
}
