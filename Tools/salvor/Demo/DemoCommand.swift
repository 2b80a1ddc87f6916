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
    """,
  options: [
    Command.Option("data", value: "DIR", "the folder Examples/dinesafe (default: that of the checkout)"),
    Command.Option("small", "a cut of 150 establishments instead of all 207,885 rows"),
    Command.Option("keep", "leave the directory with all databases for a look"),
  ]
) { invocation in
  let data = DemoData(
    directory: try DemoData.find(invocation.options["data"]), isSmall: invocation.flags.contains("small"))
  let folder = try ScratchFolder("demo")
  // It is there until the story is told.
  defer { withExtendedLifetime(folder) {} }
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

/// The demo's own plain SQLite program, for machines with neither Python nor the sqlite3 shell.
let demoPlainSQLiteCommand = Command(
  "demo plain-sqlite", "runs statements on a SQLite file and knows nothing of Salvor (used by the demo)",
  arguments: ["FILE", "STATEMENT…"], isInternal: true
) { invocation in
  try PlainSQLite.runHere(Array(invocation.arguments.dropFirst()), on: invocation.arguments[0])
  return 0
}
