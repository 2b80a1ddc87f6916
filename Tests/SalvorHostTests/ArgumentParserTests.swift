import SalvorModel
import SalvorModuleKit
import SalvorWire
import StandardModules
import Testing

@testable import SalvorHost

@Suite("The words of a command line")
struct ArgumentParserTests {
  private func parse(_ words: [String]) throws -> ParsedArguments {
    ArgumentParser(tool: "salvor", commands: Tool.commands).parse(
      words, registry: try ModuleRegistry([]), environment: [:])
  }

  private func mistake(_ words: [String]) throws -> String {
    guard case .usageError(let text) = try parse(words) else {
      Issue.record("\(words) is no mistake")
      return ""
    }
    return text
  }

  @Test(
    "a mistake is told with what is meant",
    arguments: [
      (["snyc"], "salvor: there is no command \"snyc\"; did you mean \"sync\"? salvor --help lists the commands."),
      (
        ["capture", "puase"],
        "salvor: there is no command \"capture puase\"; did you mean \"capture pause\"? salvor capture --help lists them."
      ),
      (
        ["server", "frobnicate"],
        "salvor: there is no command \"server frobnicate\". salvor server --help lists them."
      ),
      (
        ["errors", "delte"],
        "salvor errors: there is no command \"errors delte\"; did you mean \"errors delete\"? There are: errors show, errors delete, errors retry."
      ),
      (
        ["errors", "--json", "delete"],
        "salvor errors: options stand after the whole name of a command: salvor errors delete …"
      ),
      (
        ["capture-pause"],
        "salvor: there is no command \"capture-pause\"; did you mean \"capture pause\"? salvor --help lists the commands."
      ),
      (
        ["sync", "--jsn"],
        "salvor sync: there is no option --jsn; did you mean \"--json\"? salvor sync --help lists the options."
      ),
      (
        ["sync", "-json"],
        "salvor sync: there is no option -json; did you mean \"--json\"? salvor sync --help lists the options."
      ),
      (
        ["sync", "---json"],
        "salvor sync: there is no option ---json; did you mean \"--json\"? salvor sync --help lists the options."
      ),
      (["sync", "--group"], "salvor sync: --group needs a value, G."),
      (["sync", "--group", "--json"], "salvor sync: --group needs a value, G."),
      (["sync", "--json=1"], "salvor sync: --json takes no value."),
      (["sync", "extra"], "salvor sync: takes no arguments, found \"extra\". salvor sync --help explains."),
      (["queue", "show"], "salvor queue show: takes ID, found nothing. salvor queue show --help explains."),
      (
        ["--json", "sync"],
        "salvor: a command comes first, options after it: salvor COMMAND --json. salvor --help lists the commands."
      ),
    ] as [([String], String)])
  func mistakes(words: [String], expected: String) throws { #expect(try mistake(words) == expected) }

  @Test("a word that begins several commands lists them, as a mistake and as help")
  func family() throws {
    let list = """
      salvor capture is one of:

        salvor capture pause   before a migration of the application's own: takes the triggers away
        salvor capture resume  after the migration: captures what it changed, and goes on
      """
    #expect(try mistake(["capture"]) == list)
    for words in [["capture", "--help"], ["help", "capture"], ["capture", "-h"]] {
      guard case .help(let text) = try parse(words) else {
        Issue.record("\(words) is no help")
        continue
      }
      #expect(text == list + "\n")
    }
  }

  @Test("options take the next word or what follows =, flags nothing, and -- ends them")
  func options() throws {
    guard
      case .run(let command, let invocation) = try parse(
        ["subscribe", "--config", "a.json5", "site", "--json", "--", "--odd"])
    else {
      Issue.record("not understood")
      return
    }
    #expect(command.name == "subscribe")
    #expect(invocation.arguments == ["site", "--odd"])
    #expect(invocation.configurationPath == "a.json5" && invocation.isJSON)
    guard case .run(_, let other) = try parse(["sync", "--group=--odd", "--config="]) else {
      Issue.record("not understood")
      return
    }
    #expect(other.options == ["group": "--odd", "config": ""])
  }

  @Test("--version names Salvor, the protocol, the libraries of the modules and the compiler")
  func version() throws {
    for words in [["--version"], ["-V"], ["--version", "--json"]] {
      guard case .version = try parse(words) else {
        Issue.record("\(words) is not understood")
        continue
      }
    }
    let version = ToolVersion(try ModuleRegistry(StandardModules.all))
    let names = version.libraries.map(\.name)
    #expect(names == names.sorted() && names.contains("SQLite") && names.contains("zlib"))
    for library in version.libraries { #expect(library.version.first?.isNumber == true, "\(library)") }
    #expect(version.text.hasPrefix("salvor \(salvorVersion)\nprotocol "))
    #expect(version.json["protocol"] == .integer(protocolVersion))
    #expect(version.json["libraries"]?["SQLite"]?.string?.hasPrefix("3.") == true)
    #expect(version.json["swift"]?.string?.hasPrefix("6.") == true)
  }
}

@Suite("Tables for people")
struct TableLayoutTests {
  private let heading = ["id", "state", "what"]
  private let rows = [
    ["17-1", "queued", "name: Harbour Kitchen → The Old Harbour Kitchen"], ["17-12", "refused", ""],
  ]

  @Test("without a width, and where it is wide enough, a row is a line")
  func lines() {
    for width in [nil, 200] {
      let layout = TableLayout(heading, rows, width: width)
      #expect(layout.heading == "id     state    what")
      #expect(
        layout.lines == ["17-1   queued   name: Harbour Kitchen → The Old Harbour Kitchen", "17-12  refused"])
    }
  }

  @Test("on a narrower terminal the last column goes on below itself, broken at spaces, and nothing is wider")
  func wrapped() {
    let layout = TableLayout(heading, rows + [["1", "queued", String(repeating: "x", count: 70)]], width: 48)
    #expect(layout.heading == "id     state    what")
    #expect(
      layout.lines == [
        "17-1   queued   name: Harbour Kitchen → The Old", "                Harbour Kitchen", "17-12  refused",
        "1      queued   " + String(repeating: "x", count: 32), "                " + String(repeating: "x", count: 32),
        "                xxxxxx",
      ])
    #expect(layout.lines.allSatisfy { $0.count <= 48 })
  }

  @Test("where even that leaves too little room, a row is a block of names and values, whole")
  func blocks() {
    let layout = TableLayout(heading, rows, width: 40)
    #expect(layout.heading == nil)
    #expect(
      layout.lines == [
        "id     17-1", "state  queued", "what   name: Harbour Kitchen → The Old Harbour Kitchen", "", "id     17-12",
        "state  refused", "what",
      ])
  }

  @Test("what a value holds is shown, not acted upon: line ends and the terminal's own commands are escapes")
  func control() {
    let layout = TableLayout(["key"], [["a\nb\u{1B}[31mred\tc"]], width: nil)
    #expect(layout.lines == ["a\\u{A}b\\u{1B}[31mred\\u{9}c"])
  }
}
