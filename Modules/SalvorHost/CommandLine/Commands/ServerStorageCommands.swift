import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

extension Command {
  static let remotesReset = Command(
    "remotes reset", "server: demands that a remote database recovers, or all of them, or those of one principal",
    discussion: """
      The device's next sync is refused with the reason operator-requested, and the device recovers by the strategy that its
      own configuration names for that reason. The demand ends when it has recovered, or when the remote ID is deleted.
      A remote ID that was deleted is told when it comes back. The server may be running.

      A person at the server has decided, so the device's guard against mass deletion does not stop this recovery. A device
      that the guard has stopped already goes on at its next sync: after a restore that takes back most of the rows, this
      releases the whole fleet at once:

        salvor remotes reset --all

      A device whose configuration says "manual" for the reason still waits for a person at the device.
      """,
    arguments: ["[ID]"],
    options: [
      Option("all", "every remote database"),
      Option("principal", value: "P", "every remote database of this principal"),
      .url,
    ]
  ) { invocation in
    let choice = try ResetChoice(invocation)
    let count: Int64
    if let elsewhere = try invocation.administration() {
      count = try await choice.demand(elsewhere)
      await elsewhere.close()
    } else {
      let store = try await invocation.openServerStore()
      count = try await invocation.audited("remotes.reset", choice.target, on: store) {
        guard let recovering = store as? any RecoveringServerStore else { throw unable("resets") }
        return try await choice.demand(recovering)
      }
      await store.close()
    }
    let terminal = invocation.terminal
    switch choice {
    case .one(let id):
      guard count > 0 else { throw noRemote(id) }
      terminal.json(["resetDemanded": .string(id.text), "resetsDemanded": .integer(count)])
      terminal.say("\(id) will be told to recover at its next sync")
    case .principal(let name):
      guard count > 0 else {
        throw SalvorError(.notFound, "There is no remote ID of the principal \(name). salvor remotes lists them.")
      }
      terminal.json(["resetsDemanded": .integer(count)])
      terminal.say("\(remoteCount(count)) of \(name) will be told to recover at the next sync")
    case .all:
      terminal.json(["resetsDemanded": .integer(count)])
      terminal.say(
        count == 0
          ? "no remote database has registered yet" : "\(remoteCount(count)) will be told to recover at the next sync")
    }
    return 0
  }

  static let serverBackup = Command(
    "server backup", "server: a checked copy of the whole database, also while the server runs",
    discussion: """
      Writes one SQLite file that is the database of one moment, checks it and makes it durable. An existing FILE is never
      replaced. Restore it with salvor server restore; copying the database's file by other means while a server runs gives
      a damaged copy.

      With --keep N, FILE is a folder: the copy is a file of its own there, named after the time, and when it is whole,
      older ones beyond the newest N are removed. Nothing else in the folder is touched. Without FILE the folder and N are
      those of server.backups in the configuration.
      """,
    arguments: ["[FILE]"],
    options: [Option("keep", value: "N", "FILE is a folder; keep the newest N copies in it")]
  ) { invocation in
    var file = invocation.arguments.first ?? ""
    var keep = invocation.options["keep"] == nil ? nil : try invocation.wholeNumber("keep", default: 1)
    if file.isEmpty {
      // A database that makes its own copies says how, whatever folder is named.
      if let store = try invocation.makeServerStore() as? any RecoveringServerStore,
        !(store is any BackupListingServerStore)
      {
        try await store.backup(to: "")
      }
      let settings = try invocation.backupSettings()
      file = settings.directory
      keep = keep ?? settings.keep
    }
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

  static let serverBackups = Command(
    "server backups", "server: the copies that were made, and those in the configuration's folder, newest first",
    discussion: """
      Lists every copy that salvor server backup and POST /admin/v1/backups have made, wherever it stands, with its ID and the
      commit that it ends with, and what is in server.backups.directory. A restored server knows the copies that were made
      since, too. --url asks a server elsewhere.

      --forget ID: that copy will not be put back any more. The floor is the commit of the oldest copy that is not forgotten:
      a restore goes back no further. The file itself is not touched.
      """, options: [Option("forget", value: "ID", "the copy will not be put back any more"), .url]
  ) { invocation in
    if let id = invocation.options["forget"] {
      guard invocation.options["url"] == nil else {
        throw SalvorError(
          .usage,
          "--forget is for the machine of the server, beside its configuration: leave --url out. Nothing was forgotten."
        )
      }
      guard let store = try invocation.makeServerStore() as? any BackupListingServerStore else {
        throw unable("backups")
      }
      try await invocation.audited("server.backup.forget", id, on: store) {
        guard try await store.forgetBackup(id) else {
          throw SalvorError(
            .notFound, "There is no copy \(id) that is not forgotten yet. salvor server backups lists them.",
            context: ["id": id])
        }
      }
      invocation.terminal.json(["forgotten": .string(id)])
      invocation.terminal.say("copy \(id) is forgotten: its file may be removed")
      return 0
    }
    var list: JSONValue
    if let elsewhere = try invocation.administration() {
      list = try await elsewhere.call("GET", "/admin/v1/backups")
      await elsewhere.close()
    } else {
      var members: [JSONValue.Member] = []
      let store = try invocation.makeServerStore() as? any BackupListingServerStore
      let recorded = try await store?.recordedBackups() ?? []
      do {
        let settings = try invocation.backupSettings()
        let found = try BackupRotation(directory: settings.directory, keep: settings.keep).list()
        members = [
          .init("keep", .integer(Int64(settings.keep))), .init("backups", .array(found.map(\.json))),
        ]
      } catch let error as SalvorError where error.code == .usage {
        // No folder is named: the copies went elsewhere, if there are any.
        members = [.init("backups", .array([]))]
      }
      list = .object(members + RecordedBackup.members(recorded))
    }
    invocation.terminal.json(list)
    let backups = list["backups"]?.array ?? []
    let recorded = list["recorded"]?.array ?? []
    if backups.isEmpty && recorded.isEmpty {
      invocation.terminal.say("there are no copies yet: salvor server backup makes one")
    }
    if !recorded.isEmpty {
      invocation.terminal.table(
        ["ID", "commit", "made", "file"],
        recorded.map { copy in
          [
            visible(copy["id"]?.string ?? ""), "\(copy["commit"]?.array?.first?.integer ?? 0)",
            copy["time"]?.integer.map(moment) ?? "-",
            visible(copy["path"]?.string ?? "") + (copy["forgotten"] == .bool(true) ? " (forgotten)" : ""),
          ]
        })
      if let floor = list["floor"]?.integer {
        invocation.terminal.say("a restore goes back to commit \(floor) at most")
      }
    }
    if !backups.isEmpty {
      invocation.terminal.table(
        ["copy", "made", "size"],
        backups.map { copy in
          [
            visible(copy["name"]?.string ?? ""), copy["time"]?.integer.map(moment) ?? "-",
            bytes(copy["bytes"]?.integer ?? 0),
          ]
        })
    }
    return 0
  }

  static let serverRestore = Command(
    "server restore", "server: puts a copy in the place of the database; the server must not be running",
    discussion: """
      Checks FILE first, and refuses it where it is not a whole copy of a server's database. The present database is kept
      beside, as DATABASE.before-restore-TIME. The next salvor serve says that the database was restored, and every device
      that has seen more is told so at its next sync and recovers by its strategy: what they still hold comes back.

      A copy of another server's database is refused, unless nothing stands there: each device would be told server-replaced.
      --another-server says that you mean it.
      """,
    arguments: ["FILE"],
    options: [Option("another-server", "take the copy though it is of another server than the database")]
  ) { invocation in
    guard let store = try invocation.makeServerStore() as? any RestorableServerStore else { throw unable("restoring") }
    let done = try await invocation.audited("server.restore", invocation.arguments[0], on: store) {
      try await store.restore(
        from: invocation.arguments[0], overAnotherServer: invocation.flags.contains("another-server"))
    }
    let terminal = invocation.terminal
    terminal.json([
      "restored": .string(invocation.arguments[0]), "database": .string(done.database),
      "before": done.before.map(JSONValue.string) ?? .null, "server": .string(done.server.text),
      "head": .integer(done.head.number), "remembered": done.remembered.map(JSONValue.integer) ?? .null,
      "forgotten": .bool(done.isForgotten),
    ])
    terminal.say("restored \(done.database) to commit \(done.head.number)")
    if let before = done.before { terminal.say("the database before is \(before)") }
    if let remembered = done.remembered, remembered > done.head.number {
      let count = remembered - done.head.number
      let missing = count == 1 ? "1 commit is" : "\(grouped(count)) commits are"
      terminal.say("\(missing) not in it: devices that have seen more recover at their next sync")
    }
    if done.isForgotten {
      terminal.say(
        "this copy had been forgotten (salvor server backups --forget): devices may have let go of what they kept for it, and then it does not come back. The database before has it."
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

      --rows is for a start on PostgreSQL that refuses tables, since some of them were put back from a dump and the others
      were not: the next start takes all rows as they are, and every device gets them whole once.

      --over is for servers that refuse a PostgreSQL that another one was promoted over: it says that this one counts. Stop the
      promoted one first; devices give back what was made there.
      """,
    options: [
      Option("new-id", "draw a new server ID"),
      Option("rows", "take the tables as they are, though they are of another moment than the change log"),
      Option("over", value: "TIMELINE", "let this database count, though TIMELINE was promoted over it"),
    ]
  ) { invocation in
    if invocation.flags.contains("rows"), !invocation.flags.contains("new-id") {
      guard let store = try invocation.makeServerStore() as? any RestorableServerStore else {
        throw unable("taking rows as they are")
      }
      let database = try await invocation.audited("server.adopt", "rows", on: store) { try await store.takeRows() }
      invocation.terminal.json(["database": .string(database), "rows": .bool(true)])
      invocation.terminal.say("the next start takes the tables of \(database) as they are")
      return 0
    }
    if let text = invocation.options["over"], !invocation.flags.contains("new-id") {
      guard let timeline = Int64(text), timeline > 0 else {
        throw SalvorError(.usage, "--over needs the number of a timeline, which the server's message names.")
      }
      guard let store = try invocation.makeServerStore() as? any RestorableServerStore else {
        throw unable("taking a history")
      }
      let database = try await invocation.audited("server.adopt", "over \(timeline)", on: store) {
        try await store.takeHistory(over: timeline)
      }
      invocation.terminal.json(["database": .string(database), "over": .integer(timeline)])
      invocation.terminal.say("\(database) counts; servers that refused it take it up")
      return 0
    }
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

extension Invocation {
  /// `server.backups` of the configuration.
  fileprivate func backupSettings() throws -> BackupSettings {
    guard let settings = try readConfiguration([.server]).get().server?.backups else {
      throw SalvorError(
        .usage,
        "The configuration names no folder for copies (server.backups.directory). Name one there, or a FILE for this copy."
      )
    }
    return settings
  }
}

private func unable(_ what: String) -> SalvorError {
  SalvorError(.usage, "This server's storage module does not support \(what). Use the storage \"sqlite\".")
}

/// Whose remotes are to recover.
private enum ResetChoice {
  case one(RemoteID)
  case principal(String)
  case all

  init(_ invocation: Invocation) throws {
    let principal = invocation.options["principal"]
    let isAll = invocation.flags.contains("all")
    switch (invocation.arguments.first, principal, isAll) {
    case (let text?, nil, false):
      guard let id = RemoteID(text) else {
        throw SalvorError(.usage, "A remote ID is 32 hexadecimal digits. salvor remotes lists them.")
      }
      self = .one(id)
    case (nil, let name?, false): self = .principal(name)
    case (nil, nil, true): self = .all
    default: throw SalvorError(.usage, "Give one of these: a remote ID, --principal P, or --all.")
    }
  }

  /// For the audit.
  var target: String {
    switch self {
    case .one(let id): id.text
    case .principal(let name): "principal \(name)"
    case .all: "all"
    }
  }

  /// Demands it of a server elsewhere. Answers with how many remotes it was demanded of.
  func demand(_ server: AdministrationClient) async throws -> Int64 {
    switch self {
    case .one(let id):
      _ = try await server.call("POST", "/admin/v1/remotes/\(id)/reset")
      return 1
    case .principal(let name):
      return try await server.call("POST", "/admin/v1/remotes/reset?principal=\(percentEncoded(name))")[
        "resetsDemanded"]?
        .integer ?? 0
    case .all:
      return try await server.call("POST", "/admin/v1/remotes/reset?all=true")["resetsDemanded"]?.integer ?? 0
    }
  }

  /// Answers with how many remotes it was demanded of.
  func demand(_ store: any RecoveringServerStore) async throws -> Int64 {
    switch self {
    case .one(let id): try await store.demandReset(id) ? 1 : 0
    case .principal(let name): try await store.demandResets(of: name)
    case .all: try await store.demandResets(of: nil)
    }
  }
}

private func remoteCount(_ count: Int64) -> String {
  count == 1 ? "1 remote database" : "\(grouped(count)) remote databases"
}
