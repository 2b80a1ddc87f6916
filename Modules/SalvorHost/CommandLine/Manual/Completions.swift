import SalvorModel
import SalvorModuleKit

/// What a shell offers after `salvor …`, made from the table of commands.
struct Completions {
  enum Shell: String, CaseIterable {
    case bash, zsh, fish
  }

  /// A command, or the words that several begin with.
  private struct Node {
    /// `remotes`, `remotes show`; empty: the tool itself.
    var name: String
    var next: [(word: String, summary: String)]
    var options: [Command.Option]
  }

  let tool: String
  private let nodes: [Node]
  private let registry: ModuleRegistry

  init(tool: String, commands: [Command], registry: ModuleRegistry) {
    self.tool = tool
    self.registry = registry
    let commands = commands.filter { !$0.isInternal }
    var names = [""]
    for command in commands {
      for count in 1...command.words.count {
        let name = command.words.prefix(count).joined(separator: " ")
        if !names.contains(name) { names.append(name) }
      }
    }
    nodes = names.map { name in
      let words = name.split(separator: " ").map(String.init)
      var next: [(word: String, summary: String)] = []
      for command in commands where command.words.count > words.count && command.words.starts(with: words) {
        let word = command.words[words.count]
        guard !next.contains(where: { $0.word == word }) else { continue }
        let own = commands.first { $0.words == words + [word] }
        next.append((word, own?.summary ?? command.summary))
      }
      let own = commands.first { $0.words == words && !words.isEmpty }?.options ?? []
      return Node(name: name, next: next, options: own + Command.common)
    }
  }

  func script(_ shell: Shell) -> String {
    switch shell {
    case .bash: bash
    case .zsh: zsh
    case .fish: fish
    }
  }

  /// The options whose values are known, each once.
  private var known: [(option: String, values: [String]?)] {
    var found: [(option: String, values: [String]?)] = []
    for option in nodes.flatMap(\.options) where !found.contains(where: { $0.option == option.name }) {
      if let module = option.module { found.append((option.name, registry.names(of: module))) }
      if option.value == "FILE" { found.append((option.name, nil)) }
    }
    return found
  }

  private var names: [String] { nodes.map(\.name).filter { !$0.isEmpty } }

  // MARK: bash

  private var bash: String {
    var out = """
      # bash completion of \(tool), made from its table of commands.
      _\(tool)() {
        local cur="${COMP_WORDS[COMP_CWORD]}" prev="${COMP_WORDS[COMP_CWORD-1]}" name="" longer i offers=""
        COMPREPLY=()
        for ((i = 1; i < COMP_CWORD; i++)); do
          longer="${name:+$name }${COMP_WORDS[i]}"
          case "$longer" in
            \(names.map { "'\($0)'" }.joined(separator: " | "))) name="$longer" ;;
            *) break ;;
          esac
        done
        case "$prev" in

      """
    for (option, values) in known {
      let answer = values.map { "compgen -W '\($0.joined(separator: " "))' -- \"$cur\"" } ?? "compgen -f -- \"$cur\""
      out += "    --\(option)) mapfile -t COMPREPLY < <(\(answer)); return ;;\n"
    }
    out += "  esac\n  case \"$name\" in\n"
    for node in nodes {
      let offers = node.next.map(\.word) + node.options.map { "--\($0.name)" }
      out += "    '\(node.name)') offers='\(offers.joined(separator: " "))' ;;\n"
    }
    out += """
        esac
        mapfile -t COMPREPLY < <(compgen -W "$offers" -- "$cur")
      }
      complete -o default -F _\(tool) \(tool)

      """
    return out
  }

  // MARK: zsh

  private var zsh: String {
    func quoted(_ text: String) -> String { "'" + text.replacing("'", with: "'\\''") + "'" }
    func item(_ word: String, _ summary: String) -> String {
      quoted(word.replacing(":", with: "\\:") + ":" + summary)
    }
    var out = """
      #compdef \(tool)
      # zsh completion of \(tool), made from its table of commands.
      _\(tool)() {
        local name="" longer i
        local -a offers
        for ((i = 2; i < CURRENT; i++)); do
          longer="${name:+$name }${words[i]}"
          case "$longer" in
            (\(names.map(quoted).joined(separator: "|"))) name="$longer" ;;
            (*) break ;;
          esac
        done
        case "${words[CURRENT-1]}" in

      """
    for (option, values) in known {
      let answer = values.map { "compadd -- \($0.joined(separator: " "))" } ?? "_files"
      out += "    (--\(option)) \(answer); return ;;\n"
    }
    out += "  esac\n  case \"$name\" in\n"
    for node in nodes {
      let offers =
        node.next.map { item($0.word, $0.summary) }
        + node.options.map { item("--\($0.name)", $0.describe(registry)) }
      out += "    (\(quoted(node.name))) offers=(\n      \(offers.joined(separator: "\n      "))\n    ) ;;\n"
    }
    out += """
        esac
        _describe -o '\(tool)' offers || _files
      }
      _\(tool) "$@"

      """
    return out
  }

  // MARK: fish

  private var fish: String {
    func quoted(_ text: String) -> String { "'" + text.replacing("\\", with: "\\\\").replacing("'", with: "\\'") + "'" }
    var out = """
      # fish completion of \(tool), made from its table of commands.
      function __\(tool)_command
          set -l name ''
          for word in (commandline -opc)[2..-1]
              set -l longer (string trim -- "$name $word")
              contains -- $longer \(names.map(quoted).joined(separator: " "))
              or break
              set name $longer
          end
          echo $name
      end

      """
    for node in nodes {
      let here = "-n 'test (__\(tool)_command) = \"\(node.name)\"'"
      let isFile = node.next.isEmpty ? "" : " -f"
      for (word, summary) in node.next {
        out += "complete -c \(tool)\(isFile) \(here) -a \(quoted(word)) -d \(quoted(summary))\n"
      }
      for option in node.options {
        var values = ""
        if let module = option.module {
          values = " -x -a \(quoted(registry.names(of: module).joined(separator: " ")))"
        } else if option.value != nil {
          values = option.value == "FILE" ? " -r -F" : " -x"
        }
        out += "complete -c \(tool) \(here) -l \(option.name)\(values) -d \(quoted(option.summary))\n"
      }
    }
    return out
  }
}
