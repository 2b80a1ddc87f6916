import SalvorModel
import SalvorWire

/// For Tools/install and Tools/package.
extension Command {
  static let completions = Command(
    "completions", "prints what a shell completes: bash, zsh or fish",
    discussion: """
      Tools/install puts them where the shells look. By hand, for bash:

        salvor completions bash > ~/.local/share/bash-completion/completions/salvor
      """,
    arguments: ["SHELL"], isInternal: true
  ) { invocation in
    guard let shell = Completions.Shell(rawValue: invocation.arguments[0]) else {
      let known = Completions.Shell.allCases.map(\.rawValue).joined(separator: ", ")
      throw SalvorError(.usage, "There are completions for \(known).")
    }
    let script = Completions(tool: "salvor", commands: invocation.commands, registry: invocation.registry)
      .script(shell)
    invocation.terminal.json(["script": .string(script)])
    invocation.terminal.print(String(script.dropLast()))
    return 0
  }

  static let manual = Command(
    "manual", "writes the manual pages into a directory", arguments: ["DIR"], isInternal: true
  ) { invocation in
    let directory = invocation.arguments[0]
    try makeDirectory(directory)
    let pages = ManualPages(tool: "salvor", commands: invocation.commands, registry: invocation.registry).pages
    for page in pages { try writeFile("\(directory)/\(page.file)", page.text) }
    invocation.terminal.json(["files": .array(pages.map { .string($0.file) })])
    invocation.terminal.say("wrote \(pages.count) pages into \(directory)")
    return 0
  }
}
