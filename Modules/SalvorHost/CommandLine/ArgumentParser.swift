import SalvorModel
import SalvorModuleKit

/// What the words of a command line mean.
enum ParsedArguments {
  case run(Command, Invocation)
  case help(String)
  case version
  case usageError(String)
}

struct ArgumentParser {
  let tool: String
  let commands: [Command]

  func parse(_ words: [String], registry: ModuleRegistry, environment: [String: String]) -> ParsedArguments {
    guard let first = words.first, first != "--help", first != "help", first != "-h" else {
      if words.count > 1, words[0] == "help" {
        return parse(Array(words.dropFirst()) + ["--help"], registry: registry, environment: environment)
      }
      return .help(overview)
    }
    if first == "--version" || first == "-V" { return .version }
    let named = Array(words.prefix { !$0.hasPrefix("-") })
    guard
      let command = commands.filter({ named.starts(with: $0.words) }).max(by: { $0.words.count < $1.words.count })
    else { return withoutCommand(first, named, asksForHelp: words.contains("--help") || words.contains("-h")) }
    return parse(command, Array(words.dropFirst(command.words.count)), registry, environment)
  }

  /// The words name no command: the first one may stand for several, `capture` for `capture pause` and `capture resume`.
  private func withoutCommand(_ first: String, _ named: [String], asksForHelp: Bool) -> ParsedArguments {
    guard !first.hasPrefix("-") else {
      return .usageError(
        "\(tool): a command comes first, options after it: \(tool) COMMAND \(first). \(tool) --help lists the commands."
      )
    }
    let family = commands.filter { $0.words[0] == first }
    guard !family.isEmpty else {
      let names = commands.map(\.name) + commands.map(\.words[0])
      return .usageError(
        "\(tool): there is no command \"\(first)\"\(hint(first, names)) \(tool) --help lists the commands.")
    }
    if asksForHelp || named.count == 1 {
      let list = alignedColumns(
        family.map { ["  " + ([tool, $0.name] + $0.arguments).joined(separator: " "), $0.summary] })
      let text = "\(tool) \(first) is one of:\n\n\(list)"
      return asksForHelp ? .help(text) : .usageError(String(text.dropLast()))
    }
    let wanted = named.prefix(2).joined(separator: " ")
    return .usageError(
      "\(tool): there is no command \"\(wanted)\"\(hint(wanted, family.map(\.name)))"
        + " \(tool) \(first) --help lists them.")
  }

  private func parse(
    _ command: Command, _ rest: [String], _ registry: ModuleRegistry, _ environment: [String: String]
  ) -> ParsedArguments {
    let known = command.options + Command.common
    var arguments: [String] = []
    var options: [String: String] = [:]
    var flags: Set<String> = []
    var words = rest[...]
    var onlyArguments = false
    while let word = words.popFirst() {
      if onlyArguments || !word.hasPrefix("-") || word == "-" {
        arguments.append(word)
        continue
      }
      if word == "--" {
        onlyArguments = true
        continue
      }
      if word == "-h" {
        flags.insert("help")
        continue
      }
      let parts = word.dropFirst(2).split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false).map(
        String.init)
      guard word.hasPrefix("--"), let option = known.first(where: { $0.name == parts[0] }) else {
        let name = String(word.drop { $0 == "-" }.prefix { $0 != "=" })
        return .usageError(
          "\(tool) \(command.name): there is no option \(word)\(hint("--" + name, known.map { "--" + $0.name })) \(tool) \(command.name) --help lists the options.\(command.arguments.contains("KEY…") ? " A key that begins with - comes after --." : "")"
        )
      }
      if option.value == nil {
        guard parts.count == 1 else { return .usageError("\(tool) \(command.name): --\(option.name) takes no value.") }
        flags.insert(option.name)
      } else if let value = parts.count == 2 ? parts[1] : value(&words), !value.isEmpty {
        options[option.name] = value
      } else {
        return .usageError("\(tool) \(command.name): --\(option.name) needs a value, \(option.value ?? "").")
      }
    }
    if flags.contains("help") { return .help(command.help(tool: tool, registry: registry)) }
    if let error = refusal(of: arguments, for: command) { return .usageError("\(tool) \(command.name): \(error)") }
    let terminal = Terminal(isJSON: flags.contains("json"), isQuiet: flags.contains("quiet"), environment: environment)
    return .run(
      command,
      Invocation(
        arguments: arguments, options: options, flags: flags, terminal: terminal, registry: registry,
        environment: environment, commands: commands))
  }

  /// The word after an option; another option is none. An empty one is refused, too: it is mostly a variable that is not
  /// set. A value that begins with two hyphens is given as `--name=VALUE`.
  private func value(_ words: inout ArraySlice<String>) -> String? {
    guard let next = words.first, !next.hasPrefix("--") else { return nil }
    return words.popFirst()
  }

  private func refusal(of arguments: [String], for command: Command) -> String? {
    let needed = command.arguments.filter { !$0.hasPrefix("[") }.count
    let isOpen = command.arguments.contains { $0.contains("…") }
    guard arguments.count < needed || (!isOpen && arguments.count > command.arguments.count) else { return nil }
    let family = commands.filter { $0.words.count > command.words.count && $0.words.starts(with: command.words) }
    if command.arguments.isEmpty, !family.isEmpty, let first = arguments.first {
      let wanted = "\(command.name) \(first)"
      if family.contains(where: { $0.name == wanted }) {
        return "options stand after the whole name of a command: \(tool) \(wanted) …"
      }
      return "there is no command \"\(wanted)\"\(hint(wanted, family.map(\.name)))"
        + " There are: \(family.map(\.name).joined(separator: ", "))."
    }
    let wanted = command.arguments.isEmpty ? "no arguments" : command.arguments.joined(separator: " ")
    let found = arguments.isEmpty ? "nothing" : arguments.map { "\"\(visible($0))\"" }.joined(separator: " ")
    return "takes \(wanted), found \(found). \(tool) \(command.name) --help explains."
  }

  /// `; did you mean "x"?`, or a full stop.
  private func hint(_ word: String, _ names: [String]) -> String {
    let text = suggestion(word, among: names)
    return text.isEmpty ? "." : text
  }

  private var overview: String {
    """
    Salvor: sync that survives its server. Keeps SQLite files on devices in step with a server that you run.

    Usage: \(tool) COMMAND [options]

    Start here:  \(tool) init my-app && cd my-app && \(tool) serve
    Then, in a second terminal:  \(tool) sync

    Commands:
    \(alignedColumns(commands.filter { !$0.isInternal }.map { ["  " + ([$0.name] + $0.arguments).joined(separator: " "), $0.summary] }))
    \(tool) COMMAND --help says more, \(tool) --version which version this is. Exit codes: 0 done, 1 failed inside, 2 usage
    or configuration, 3 server not reachable, 4 not authorised, 5 recovery required, 6 synced but some requests were refused.

    """
  }
}
