import SalvorModel
import SalvorModuleKit

/// One command of the tool: what it is called, what it takes, what it does.
public struct Command: Sendable {
  /// An option, `--name VALUE`, or a flag, `--name`.
  public struct Option: Sendable {
    public var name: String
    /// The value's name in the help; nil: a flag.
    public var value: String?
    public var summary: String
    public init(_ name: String, value: String? = nil, _ summary: String) {
      self.name = name
      self.value = value
      self.summary = summary
    }
  }

  /// The words that name it: `remotes delete`.
  public var words: [String]
  public var summary: String
  /// What the help says beyond the summary: when to use it, what it touches, an example.
  public var discussion: String
  /// Positional arguments, e.g. `ID`; in brackets where they may be left out.
  public var arguments: [String]
  public var options: [Option]
  /// Returns the exit code.
  public var run: @Sendable (Invocation) async throws -> Int32

  public init(
    _ words: String, _ summary: String, discussion: String = "", arguments: [String] = [], options: [Option] = [],
    run: @escaping @Sendable (Invocation) async throws -> Int32
  ) {
    self.words = words.split(separator: " ").map(String.init)
    self.summary = summary
    self.discussion = discussion
    self.arguments = arguments
    self.options = options
    self.run = run
  }

  public var name: String { words.joined(separator: " ") }

  static let common: [Option] = [
    Option("config", value: "FILE", "the configuration file (default: ./salvor.json5)"),
    Option("json", "one JSON object on standard output, nothing else there"),
    Option("quiet", "no progress and no story, errors only"),
    Option("help", "this text"),
  ]

  func help(tool: String) -> String {
    var text = "\(summary)\n\nUsage: \(tool) \(name)"
    for argument in arguments { text += " \(argument)" }
    text += " [options]\n"
    if !discussion.isEmpty { text += "\n\(discussion)\n" }
    text += "\nOptions:\n"
    let rows = (options + Command.common).map { option in
      ["  --\(option.name)\(option.value.map { " \($0)" } ?? "")", option.summary]
    }
    return text + alignedColumns(rows)
  }
}

/// A command with what was given to it.
public struct Invocation: Sendable {
  public var arguments: [String]
  public var options: [String: String]
  public var flags: Set<String>
  public var terminal: Terminal
  public var registry: ModuleRegistry
  public var environment: [String: String]

  public var isJSON: Bool { flags.contains("json") }
  public var configurationPath: String { options["config"] ?? "./salvor.json5" }
}

/// What the words of a command line mean.
enum ParsedArguments {
  case run(Command, Invocation)
  case help(String)
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
    let named = words.prefix { !$0.hasPrefix("-") }
    guard
      let command = commands.filter({ named.starts(with: $0.words) }).max(by: { $0.words.count < $1.words.count })
    else {
      let names = commands.map(\.words[0])
      return .usageError(
        "\(tool): there is no command \"\(first)\"\(hint(first, names)) \(tool) --help lists the commands.")
    }
    return parse(command, Array(words.dropFirst(command.words.count)), registry, environment)
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
      let parts = word.drop { $0 == "-" }.split(separator: "=", maxSplits: 1).map(String.init)
      guard word.hasPrefix("--"), let name = parts.first, let option = known.first(where: { $0.name == name }) else {
        return .usageError(
          "\(tool) \(command.name): there is no option \(word)\(hint(parts.first ?? word, known.map(\.name))) \(tool) \(command.name) --help lists the options."
        )
      }
      if option.value == nil {
        guard parts.count == 1 else { return .usageError("\(tool) \(command.name): --\(name) takes no value.") }
        flags.insert(name)
      } else if let value = parts.count == 2 ? parts[1] : words.popFirst() {
        options[name] = value
      } else {
        return .usageError("\(tool) \(command.name): --\(name) needs a value, \(option.value ?? "").")
      }
    }
    if flags.contains("help") { return .help(command.help(tool: tool)) }
    let needed = command.arguments.filter { !$0.hasPrefix("[") }.count
    let isOpen = command.arguments.contains { $0.contains("…") }
    guard arguments.count >= needed, isOpen || arguments.count <= command.arguments.count else {
      let wanted = command.arguments.isEmpty ? "no arguments" : command.arguments.joined(separator: " ")
      return .usageError(
        "\(tool) \(command.name): takes \(wanted), found \(arguments.count). \(tool) \(command.name) --help explains.")
    }
    let terminal = Terminal(isJSON: flags.contains("json"), isQuiet: flags.contains("quiet"), environment: environment)
    return .run(
      command,
      Invocation(
        arguments: arguments, options: options, flags: flags, terminal: terminal, registry: registry,
        environment: environment))
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
    \(alignedColumns(commands.map { ["  " + ([$0.name] + $0.arguments).joined(separator: " "), $0.summary] }))
    \(tool) COMMAND --help says more. Exit codes: 0 done, 1 failed inside, 2 usage or configuration, 3 server not
    reachable, 4 not authorised, 5 recovery required, 6 synced but some requests were refused.

    """
  }
}

/// Rows of two columns, the second one aligned.
func alignedColumns(_ rows: [[String]]) -> String {
  let width = min(44, rows.map { $0[0].count }.max() ?? 0)
  return rows.map { row in
    let pad = String(repeating: " ", count: max(1, width - row[0].count + 2))
    return row[0] + pad + row[1] + "\n"
  }.joined()
}
