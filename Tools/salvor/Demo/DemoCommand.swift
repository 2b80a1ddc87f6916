import SalvorHost
import SalvorModel
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

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
  let directory = try temporaryDirectory()
  var story = try DemoStory(terminal: invocation.terminal, data: data, directory: directory)
  do {
    let isEqual = try await story.tell()
    if invocation.flags.contains("keep") {
      invocation.terminal.print("Everything is in \(directory)")
    } else {
      removeDirectory(directory)
    }
    return isEqual ? 0 : 1
  } catch {
    _ = await story.fleet.stopServer()
    invocation.terminal.error("The demo's databases and its log are in \(directory)")
    throw error
  }
}

/// The demo's own plain SQLite program, for machines with neither Python nor the sqlite3 shell.
let demoPlainSQLiteCommand = Command(
  "demo plain-sqlite", "runs statements on a SQLite file and knows nothing of Salvor (used by the demo)",
  arguments: ["FILE", "STATEMENT…"]
) { invocation in
  try PlainSQLite.runHere(Array(invocation.arguments.dropFirst()), on: invocation.arguments[0])
  return 0
}

private func temporaryDirectory() throws -> String {
  let base = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
  var template = Array("\(base)/salvor-demo-XXXXXX".utf8CString)
  guard mkdtemp(&template) != nil else {
    throw SalvorError(.failed, "No temporary directory can be made in \(base): \(String(cString: strerror(errno))).")
  }
  return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// Removes a directory of the demo's own making, two levels deep.
private func removeDirectory(_ path: String) {
  guard let folder = opendir(path) else { return }
  var names: [String] = []
  while let entry = readdir(folder) {
    let name = withUnsafePointer(to: &entry.pointee.d_name) {
      $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    if name != "." && name != ".." { names.append(name) }
  }
  closedir(folder)
  for name in names where unlink("\(path)/\(name)") != 0 { removeDirectory("\(path)/\(name)") }
  rmdir(path)
}
