import SalvorModel
import SalvorModuleKit

/// One command of the tool: what it is called, what it takes, what it does.
public struct Command: Sendable {
  /// An option, `--name VALUE`, or a flag, `--name`.
  public struct Option: Sendable {
    /// Without the dashes.
    public var name: String
    /// The value's name in the help; nil: a flag.
    public var value: String?
    /// What it is for, on one line of the help.
    public var summary: String
    /// The value is the name of a module of this kind: the help and the completions list those of the host.
    public var module: ModuleKind?
    /// By default a flag.
    public init(_ name: String, value: String? = nil, _ summary: String, module: ModuleKind? = nil) {
      self.name = name
      self.value = value
      self.summary = summary
      self.module = module
    }
  }

  /// The words that name it: `remotes delete`.
  public var words: [String]
  /// What the command does, on one line of the help.
  public var summary: String
  /// What the help says beyond the summary: when to use it, what it touches, an example.
  public var discussion: String
  /// Positional arguments, e.g. `ID`; in brackets where they may be left out.
  public var arguments: [String]
  /// Those of this command alone; `config`, `json`, `quiet` and `help` are every command's.
  public var options: [Option]
  /// For other programs, Salvor's own among them: not in the list of commands.
  public var isInternal: Bool
  /// Returns the exit code.
  public var run: @Sendable (Invocation) async throws -> Int32

  /// By default without arguments and options.
  ///
  /// - Parameter words: the command's name, with spaces: `"remotes delete"`.
  public init(
    _ words: String, _ summary: String, discussion: String = "", arguments: [String] = [], options: [Option] = [],
    isInternal: Bool = false, run: @escaping @Sendable (Invocation) async throws -> Int32
  ) {
    self.words = words.split(separator: " ").map(String.init)
    self.summary = summary
    self.discussion = discussion
    self.arguments = arguments
    self.options = options
    self.isInternal = isInternal
    self.run = run
  }

  /// The words with spaces between them.
  public var name: String { words.joined(separator: " ") }

  static let common: [Option] = [
    Option("config", value: "FILE", "the configuration file (default: ./salvor.json5)"),
    Option("json", "one JSON object on standard output, nothing else there"),
    Option("quiet", "no progress and no story, errors only"),
    Option("help", "this text"),
  ]

  func help(tool: String, registry: ModuleRegistry) -> String {
    var text = "\(summary)\n\nUsage: \(tool) \(name)"
    for argument in arguments { text += " \(argument)" }
    text += " [options]\n"
    if !discussion.isEmpty { text += "\n\(discussion)\n" }
    text += "\nOptions:\n"
    let rows = (options + Command.common).map { option in
      ["  --\(option.name)\(option.value.map { " \($0)" } ?? "")", option.describe(registry)]
    }
    return text + alignedColumns(rows)
  }
}

extension Command.Option {
  /// The summary, with the names that the value may have.
  func describe(_ registry: ModuleRegistry) -> String {
    guard let module else { return summary }
    return summary + "; one of " + registry.names(of: module).joined(separator: ", ")
  }
}

/// A command with what was given to it.
public struct Invocation: Sendable {
  /// The positional arguments, in order; as many as the command wants.
  public var arguments: [String]
  /// The values of the options that were given, by name without dashes; of one given twice the last.
  public var options: [String: String]
  /// The flags that were given, without dashes.
  public var flags: Set<String>
  /// Where the command writes.
  public var terminal: Terminal
  /// The modules of the tool, without those of libraries that the configuration names (`withPlugins`).
  public var registry: ModuleRegistry
  /// The process's environment variables.
  public var environment: [String: String]
  /// All commands of the tool.
  public var commands: [Command]

  /// One JSON object is wanted on standard output, and nothing else there.
  public var isJSON: Bool { flags.contains("json") }
  /// What `--config` names; without it `salvor.json5` in the working directory.
  public var configurationPath: String { options["config"] ?? "./salvor.json5" }
}

/// Rows of two columns, the second one aligned.
func alignedColumns(_ rows: [[String]]) -> String {
  let width = min(44, rows.map { $0[0].count }.max() ?? 0)
  return rows.map { row in
    let pad = String(repeating: " ", count: max(1, width - row[0].count + 2))
    return row[0] + pad + row[1] + "\n"
  }.joined()
}
