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
    arguments: ["ID"], options: [.url]
  ) { invocation in
    let id = try invocation.remoteID()
    if let elsewhere = try invocation.administration() {
      _ = try await elsewhere.call("POST", "/admin/v1/remotes/\(id)/reset")
      await elsewhere.close()
    } else {
      let store = try await invocation.openServerStore()
      try await invocation.audited("remotes.reset", id.text, on: store) {
        guard let recovering = store as? any RecoveringServerStore else { throw unable("resets") }
        guard try await recovering.demandReset(id) else { throw noRemote(id) }
      }
      await store.close()
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

      With --keep N, FILE is a folder: the copy is a file of its own there, named after the time, and when it is whole,
      older ones beyond the newest N are removed. Nothing else in the folder is touched.
      """,
    arguments: ["FILE"],
    options: [Option("keep", value: "N", "FILE is a folder; keep the newest N copies in it")]
  ) { invocation in
    var file = invocation.arguments[0]
    let keep = invocation.options["keep"] == nil ? nil : try invocation.wholeNumber("keep", default: 1)
    let rotation = keep.map { BackupRotation(directory: file, keep: $0) }
    if let rotation { file = try rotation.next(now: SystemClock().now()) }
    guard let store = try invocation.makeServerStore() as? any RecoveringServerStore else { throw unable("backups") }
    let path = file
    try await invocation.audited("server.backup", path, on: store) { try await store.backup(to: path) }
    let size = try fileSize(file)
    let removed = try rotation?.removeOld() ?? []
    invocation.terminal.json([
      "file": .string(file), "bytes": .integer(size), "removed": .array(removed.map(JSONValue.string)),
    ])
    invocation.terminal.say("wrote \(file) (\(bytes(size)))")
    for old in removed { invocation.terminal.say("removed \(old)") }
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
    let done = try await invocation.audited("server.restore", invocation.arguments[0], on: store) {
      try await store.restore(from: invocation.arguments[0])
    }
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

extension Command {
  static let serverAdopt = Command(
    "server adopt", "server: gives a copy of a database a server ID of its own; the server must not be running",
    discussion: """
      For a staging server that begins with a copy of the real one's database: with its own server ID, a device that is
      pointed at it by mistake is told server-replaced, and sends and applies nothing. Rows, remotes and history stay as they
      are. --new-id says that you mean it.
      """,
    options: [Option("new-id", "draw a new server ID")]
  ) { invocation in
    guard invocation.flags.contains("new-id") else {
      throw SalvorError(
        .usage, "Say --new-id: every device that knows this database under its present server ID is refused afterwards."
      )
    }
    guard let store = try invocation.makeServerStore() as? any RestorableServerStore else {
      throw unable("a new server ID")
    }
    let done = try await invocation.audited("server.adopt", "new-id", on: store) { try await store.adoptNewID() }
    let terminal = invocation.terminal
    terminal.json([
      "database": .string(done.database), "before": .string(done.before.text), "server": .string(done.now.text),
    ])
    terminal.say("\(done.database) has the server ID \(done.now) now; it was \(done.before)")
    return 0
  }
}

private func unable(_ what: String) -> SalvorError {
  SalvorError(.usage, "This server's storage module does not support \(what). Use the storage \"sqlite\".")
}
