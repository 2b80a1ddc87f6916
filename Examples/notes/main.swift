import SalvorClient

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

// Notes on several devices. `example-notes DIRECTORY COMMAND …`; DIRECTORY has the salvor.json5 of this folder.

let usage = """
  example-notes DIRECTORY COMMAND
    list | add ID TEXT | edit ID TEXT | delete ID      the notes
    sync | watch SECONDS                               with the server
    status | errors | retry ID | discard ID            how things stand, and what the server refused
    plan | recover [STRATEGY]                          where both sides' histories have parted
  """

/// A bar, where there is something to tell.
func show(_ progress: SyncProgress) {
  guard let share = progress.share else { return }
  let filled = Int(share * 20)
  print(
    "[\(String(repeating: "#", count: filled))\(String(repeating: " ", count: 20 - filled))] \(progress.rows ?? 0) rows"
  )
}

func show(_ changes: [TableChange]) {
  for change in changes {
    // Nil: more keys than a report lists. The application reads the whole table again.
    let keys = change.keys.map { keys in keys.map { "\($0[0])" }.sorted().joined(separator: ", ") }
    print("changed \(change.table): \(keys ?? "the whole table")")
  }
}

func name(_ state: SyncState) -> String {
  switch state {
  case .idle: "not synchronized yet"
  case .connected: "in step"
  case .synchronizing: "synchronizing"
  case .offline: "offline; what is written waits"
  case .waitingForUser(let error): "waits for you: \(error.wayOn)"
  case .recoveryRequired(let reason): "must be recovered: \(reason ?? "")"
  }
}

struct Notes {
  let client: SalvorClient
  let database: Database

  init(_ directory: String) async throws {
    client = try SalvorClient(configurationFile: directory + "/salvor.json5")
    // Salvor makes the table; the application could as well.
    try await client.open()
    database = try Database(directory + "/notes.db")
  }

  func run(_ command: String, _ arguments: [String]) async throws {
    switch (command, arguments.count) {
    case ("list", 0):
      for row in try database.run("SELECT id, body FROM note ORDER BY id") { print("\(row[0]): \(row[1])") }
    case ("add", 2): try database.run("INSERT INTO note (id, body) VALUES (?, ?)", arguments[0], arguments[1])
    case ("edit", 2): try database.run("UPDATE note SET body = ? WHERE id = ?", arguments[1], arguments[0])
    case ("delete", 1): try database.run("DELETE FROM note WHERE id = ?", arguments[0])
    case ("sync", 0): try await synchronize()
    case ("watch", 1): try await watch(seconds: Double(arguments[0]) ?? 10)
    case ("status", 0): try await showStatus()
    case ("errors", 0): try await showErrors()
    case ("retry", 1):
      for entry in try await client.retry([id(arguments[0])]).requests { print("\(entry.id) \(entry.outcome)") }
    case ("discard", 1): print("\(try await client.delete(id(arguments[0])).requests.count) taken back")
    case ("plan", 0): try await showPlan()
    case ("recover", 0...1): try await recover(arguments.first)
    default: throw SalvorError(.usage, usage)
    }
  }

  // MARK: With the server

  private func synchronize() async throws {
    let result = try await client.synchronize(progress: { show($0) })
    print("\(result): \(result.uploaded) sent, \(result.upserts) came, \(result.deletes) went")
    show(result.changes)
    for notice in result.notices { print("note: \(notice)") }
    if let recovery = result.recovery { describe(recovery) }
    if case .refused = result.outcome { try await showErrors() }
  }

  private func watch(seconds: Double) async throws {
    let client = client
    let events = client.events
    let states = client.states
    let showing = Task {
      for await event in events { if case .rowsChanged(let changes) = event { show(changes) } }
    }
    let telling = Task { for await state in states { print("state: \(name(state))") } }
    let watching = Task { await client.watch() }
    try await Task.sleep(for: .seconds(seconds))
    watching.cancel()
    if let report = await watching.value, let error = report.error { throw error }
    for task in [showing, telling] { task.cancel() }
  }

  // MARK: How things stand

  private func showStatus() async throws {
    let status = try await client.status()
    print("state: \(name(client.state))")
    print("waiting: \(status.queued), refused: \(status.inError), kept by recoveries: \(status.kept)")
    if let reason = status.recovery.reason { print("recovery required: \(reason.rawValue)") }
  }

  private func showErrors() async throws {
    for entry in try await client.errorArchive() {
      print("\(entry.id) \(entry.state.rawValue): \(entry.operation.rawValue) of note \(entry.key[0])")
      print("  \(entry.message ?? entry.reason ?? "")")
    }
  }

  private func id(_ text: String) throws -> RequestID {
    guard let id = RequestID(text) else { throw SalvorError(.usage, "\(text) is no entry of the archive.") }
    return id
  }

  // MARK: Recovery

  private func showPlan() async throws {
    let plan = try await client.recoveryPlan()
    guard let reason = plan.reason else { return print("nothing to recover from") }
    print(
      "\(reason.rawValue): \(plan.strategy); \(plan.counts.kept + plan.counts.merged) kept, \(plan.counts.discarded) archived"
    )
  }

  private func recover(_ strategy: String?) async throws {
    let token = try await client.status().recovery.token
    let report = await client.recover(strategy: strategy, token: token, progress: { show($0) })
    if let error = report.error { throw error }
    if let recovery = report.recovery { describe(recovery) }
  }

  private func describe(_ recovery: RecoverySummary) {
    let counts = recovery.report?.counts
    print("recovered from \(recovery.reason.rawValue) by \(recovery.strategy):")
    print("  \((counts?.kept ?? 0) + (counts?.merged ?? 0)) requests kept, \(counts?.discarded ?? 0) archived")
  }
}

let words = CommandLine.arguments.dropFirst()
guard words.count >= 2 else {
  print(usage)
  exit(2)
}
do {
  let notes = try await Notes(words[words.startIndex])
  do {
    try await notes.run(words[words.startIndex + 1], Array(words.dropFirst(2)))
  } catch {
    await notes.client.close()
    throw error
  }
  await notes.client.close()
} catch let error as SalvorError {
  print("\(error.message)\n\(error.wayOn)")
  exit(1)
} catch {
  print("\(error)")
  exit(1)
}
