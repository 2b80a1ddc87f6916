import SalvorHost
import SalvorHostCommands
import SalvorModel
import SalvorWire

/// `salvor demo`: the whole story on real data, in a temporary directory.
let demoCommand = Command(
  "demo", "the whole story on real data in a temporary directory",
  discussion: """
    A server with Toronto's restaurant inspections, three devices that write offline with a plain SQLite client, sync,
    conflicting edits, a refused write; then the bad day: a backup, more work, the server restored, and what each recovery
    strategy makes of the same device. Ends with 0 where the rows of all sides are equal.

    With --storage postgresql: a PostgreSQL with a standby, several servers behind HAProxy, and another program that writes all the
    time; one server is killed during an upload, then the primary, and the standby that takes over lacks its last commits. Needs
    PostgreSQL's programs and HAProxy on this machine, and a build with the trait PostgreSQL.
    """,
  options: [
    Command.Option("data", value: "DIR", "the folder Examples/dinesafe (default: that of the checkout)"),
    Command.Option("storage", value: "NAME", "sqlite, or postgresql (default: sqlite)"),
    Command.Option("servers", value: "N", "with postgresql: how many servers, 2 to 9 (default: 3)"),
    Command.Option("small", "a cut of 150 establishments instead of all 207,885 rows"),
    Command.Option("keep", "leave the directory with all databases for a look"),
  ]
) { invocation in
  let data = DemoData(
    directory: try DemoData.find(invocation.options["data"]), isSmall: invocation.flags.contains("small"))
  let isPostgreSQL = try wantsPostgreSQL(invocation.options)
  let folder = try ScratchFolder("demo")
  // It is there until the story is told.
  defer { withExtendedLifetime(folder) {} }
  if isPostgreSQL {
    return try await tellFailover(
      invocation, data, folder,
      servers: Int(invocation.options["servers"] ?? "3").flatMap { (2...9).contains($0) ? $0 : nil })
  }
  var story = try DemoStory(terminal: invocation.terminal, data: data, directory: folder.path)
  do {
    let isEqual = try await story.tell()
    if invocation.flags.contains("keep") {
      folder.keep()
      invocation.terminal.print("Everything is in \(folder.path)")
    }
    return isEqual ? 0 : 1
  } catch {
    _ = await story.fleet.stopServer()
    folder.keep()
    invocation.terminal.error("The demo's databases and its log are in \(folder.path)")
    throw error
  }
}

private func wantsPostgreSQL(_ options: [String: String]) throws -> Bool {
  switch options["storage"] ?? "sqlite" {
  case "sqlite":
    guard options["servers"] == nil else {
      throw SalvorError(.usage, "--servers goes with --storage postgresql: a SQLite database has one server.")
    }
    return false
  case "postgresql":
    #if PostgreSQL
      return true
    #else
      throw SalvorError(
        .usage, "This salvor was built without PostgreSQL. Build it with: swift build --traits default,PostgreSQL.")
    #endif
  case let other: throw SalvorError(.usage, "--storage \(other): the demo knows sqlite and postgresql.")
  }
}

private func tellFailover(
  _ invocation: Invocation, _ data: DemoData, _ folder: ScratchFolder, servers: Int?
) async throws -> Int32 {
  guard let servers else { throw SalvorError(.usage, "--servers is a number from 2 to 9.") }
  var story = try DemoFailover(
    terminal: invocation.terminal, data: data, directory: folder.path, servers: servers)
  do {
    let isEqual = try await story.tell()
    await story.end()
    if invocation.flags.contains("keep") {
      folder.keep()
      invocation.terminal.print("The devices are in \(folder.path)")
    }
    return isEqual ? 0 : 1
  } catch {
    await story.end()
    folder.keep()
    invocation.terminal.error("The demo's databases and its log are in \(folder.path)")
    throw error
  }
}

/// The demo's own plain SQLite program, for machines with neither Python nor the sqlite3 shell.
let demoPlainSQLiteCommand = Command(
  "demo plain-sqlite", "runs statements on a SQLite file and knows nothing of Salvor (used by the demo)",
  arguments: ["FILE", "STATEMENT…"], isInternal: true
) { invocation in
  try PlainSQLite.runHere(Array(invocation.arguments.dropFirst()), on: invocation.arguments[0])
  return 0
}
