import Foundation

#if canImport(Glibc)
  import Glibc
#endif

// Load and fuzz: real sockets, the real protocol, a server of its own on loopback, everything bounded.

let usage = """
  usage: Tools/load [--devices N] [--minutes N] [--rate N] [--mix KIND,…] [--files N] [--json]
         Tools/fuzz [--minutes N] [--runs N] [--seed S] [--json]

    --devices N    devices that one process simulates (100)
    --minutes N    how long, also a part of one (1)
    --rate N       syncs of all devices together in a second, as far as the server answers (50)
    --mix KIND,…   first, idle, small, away: what devices do; flood, bomb, slow, stage: what an attacker does at the
                   same time (first,idle,small,away)
    --files N      the server's limit of files and connections
    --runs N       mutated exchanges instead of a time
    --seed S       of what is mutated (1)
    --salvor FILE  the tool (default: the one beside this program)
    --json         one JSON object on standard output

  Ends with 0 where the server lived, its health was answered, honest devices were served, and its database is healthy;
  1 where something was not; 2 where it could not be tried.

  """

func complain(_ text: String) { FileHandle.standardError.write(Data((text + "\n").utf8)) }

struct Failure: Error, CustomStringConvertible {
  var description: String
  init(_ description: String) { self.description = description }
}

var options = LoadOptions()
var words = CommandLine.arguments.dropFirst()
let isFuzz = words.first == "fuzz"
if isFuzz || words.first == "load" { words = words.dropFirst() }
while let word = words.popFirst() {
  if word == "--help" {
    print(usage, terminator: "")
    exit(0)
  }
  if word == "--json" {
    options.isJSON = true
    continue
  }
  guard let value = words.popFirst(), options.set(word, value) else {
    complain("salvor-load: \(word) is no option, or its value is none.\n\(usage)")
    exit(2)
  }
}
signal(SIGPIPE, SIG_IGN)

let options_ = options
let done = Task {
  do {
    let isWell = isFuzz ? try await FuzzRun(options_).run() : try await LoadRun(options_).run()
    exit(isWell ? 0 : 1)
  } catch {
    complain("salvor-load: \(error)")
    exit(2)
  }
}
await done.value
