import Foundation
import SalvorWire

// Kills salvor's processes at random moments of syncs and recoveries, thousands of times, and looks for what was lost.

let usage = """
  usage: Tools/crash [--heal] [--snapshot] [--storage NAME] [--servers N] [--runs N] [--seed S] [--salvor FILE] [--json] [--keep]

    --heal         every device gives back what a restore took: all of it must be on the server in the end
    --snapshot     devices whose changes are all sent lose their database, and begin anew from a file
    --storage NAME sqlite, or postgresql: its connections and the whole cluster are killed, too, and copies are put
                   back under servers that run (default: sqlite)
    --servers N    processes that serve the database, with postgresql (1)
    --runs N       processes killed (1000)
    --seed S       of what is written, restored and killed, and when (1); the moments depend on the machine, too
    --salvor FILE  the tool (default: the one beside this program)
    --json         one JSON object on standard output
    --keep         leaves the databases there

  Ends with 0 where nothing was lost, 1 where something was, 2 where it could not be tried.

  """

var runs = 1000
var seed: UInt64 = 1
var isJSON = false
var heals = false
var takesSnapshots = false
var keeps = false
var storage = "sqlite"
var servers = 1
let here = (try? FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")) ?? CommandLine.arguments[0]
var salvor = URL(fileURLWithPath: here).deletingLastPathComponent().appendingPathComponent("salvor").path

func complain(_ text: String) { FileHandle.standardError.write(Data((text + "\n").utf8)) }

var words = CommandLine.arguments.dropFirst()
while let word = words.popFirst() {
  switch word {
  case "--json": isJSON = true
  case "--keep": keeps = true
  case "--heal": heals = true
  case "--snapshot": takesSnapshots = true
  case "--help":
    print(usage, terminator: "")
    exit(0)
  case "--runs", "--seed", "--salvor", "--storage", "--servers":
    guard let value = words.popFirst() else { fallthrough }
    if word == "--salvor" { salvor = URL(fileURLWithPath: value).path }
    if word == "--storage" { storage = value }
    if word == "--servers" { servers = Int(value) ?? 0 }
    if word == "--runs", let number = Int(value), number > 0 { runs = number }
    if word == "--seed", let number = UInt64(value) { seed = number }
  default:
    complain(usage)
    exit(2)
  }
}

guard ["sqlite", "postgresql"].contains(storage), servers > 0, servers == 1 || storage == "postgresql" else {
  complain(usage)
  exit(2)
}

do {
  let place = try Place(
    salvor: salvor, heals: heals, takesSnapshots: takesSnapshots, storage: storage, servers: servers)
  var run = CrashRun(place, seed: seed)
  do {
    let report = try run.run(runs) { line in
      if !isJSON, isatty(2) == 1 { FileHandle.standardError.write(Data("\r\u{1B}[K\(line)".utf8)) }
    }
    if isJSON {
      print(report.text)
    } else {
      complain("")
      for member in report["tried"]?.members ?? [] { print("\(member.key): \(member.value.integer ?? 0)") }
      print("lost: \(report["lost"]?.integer ?? 0)")
      for line in report["what"]?.array ?? [] { print("  \(line.string ?? "")") }
    }
    place.end()
    if keeps || run.hasLost { complain("The databases are in \(place.directory)") } else { place.remove() }
    exit(run.hasLost ? 1 : 0)
  } catch {
    complain("salvor-crash: \(error)\nThe databases are in \(place.directory)")
    place.end()
    exit(2)
  }
} catch {
  complain("salvor-crash: \(error)")
  exit(2)
}
