import SalvorModel
import SalvorModuleKit

/// The manual pages, made from the table of commands: `salvor(1)`, and a page for each first word of a command, which has
/// the commands that begin with it.
struct ManualPages {
  struct Page {
    /// `salvor-remotes.1`.
    var file: String
    /// roff, with the macros of man(7).
    var text: String
  }

  let tool: String
  let commands: [Command]
  let registry: ModuleRegistry

  init(tool: String, commands: [Command], registry: ModuleRegistry) {
    self.tool = tool
    self.commands = commands.filter { !$0.isInternal }
    self.registry = registry
  }

  var pages: [Page] {
    var families: [(word: String, commands: [Command])] = []
    for command in commands {
      if let place = families.firstIndex(where: { $0.word == command.words[0] }) {
        families[place].commands.append(command)
      } else {
        families.append((command.words[0], [command]))
      }
    }
    return [Page(file: "\(tool).1", text: overview(families.map(\.word)))]
      + families.map { Page(file: "\(tool)-\($0.word).1", text: page($0.word, $0.commands)) }
  }

  private func overview(_ words: [String]) -> String {
    var out = head(tool, "sync that survives its server")
    out += section("SYNOPSIS") + ".B \(roff(tool))\n.I COMMAND\n[options]\n"
    out += section("DESCRIPTION")
    out += paragraph(
      "Keeps SQLite files on devices in step with a server that you run. One configuration file, salvor.json5, serves both ends: its section \"server\" is the server's, \"client\" a device's."
    )
    out += section("COMMANDS")
    for command in commands {
      out += ".TP\n.B \(roff(([command.name] + command.arguments).joined(separator: " ")))\n\(roff(command.summary))\n"
    }
    out += section("OPTIONS") + options(Command.common)
    out += ".TP\n.B \\-\\-version\nwhich version this is, and those of the libraries it runs on\n"
    out += section("EXIT STATUS")
    for (code, meaning) in Self.exitCodes { out += ".TP\n.B \(code)\n\(roff(meaning))\n" }
    out += section("FILES")
    out += ".TP\n.I ./salvor.json5\nthe configuration, unless \\-\\-config names another\n"
    out +=
      ".TP\n.I /etc/salvor/salvor.json5\nthe configuration of the system's service, where the package is installed\n"
    out += section("ENVIRONMENT")
    out += ".TP\n.B SALVOR_TOKEN\na device's token, where the configuration says ${SALVOR_TOKEN}\n"
    out += ".TP\n.B NO_COLOR\nno colours\n"
    return out + seeAlso(words.map { "\(tool)-\($0)" })
  }

  private func page(_ word: String, _ family: [Command]) -> String {
    let summary = family.first { $0.words == [word] }?.summary ?? family.map(\.name).joined(separator: ", ")
    var out = head("\(tool)-\(word)", summary)
    out += section("SYNOPSIS")
    for (place, command) in family.enumerated() {
      if place > 0 { out += ".br\n" }
      let words = [tool, command.name] + command.arguments
      out += ".B \(roff(words.joined(separator: " ")))\n[options]\n"
    }
    out += section("DESCRIPTION")
    for command in family {
      if family.count > 1 { out += ".SS \(roff("\(tool) \(command.name)"))\n" }
      out += paragraph(sentence(command.summary))
      out += text(command.discussion)
      if !command.options.isEmpty { out += options(command.options) }
    }
    out += section("OPTIONS OF EVERY COMMAND") + options(Command.common)
    return out + seeAlso([tool])
  }

  // MARK: Pieces

  private func head(_ name: String, _ summary: String) -> String {
    """
    .\\" Made from the table of commands.
    .TH \(roff(name.uppercased())) 1 \(salvorReleaseDate) "Salvor \(salvorVersion)" "Salvor"
    .SH NAME
    \(roff(name)) \\- \(roff(summary))

    """
  }

  private func section(_ title: String) -> String { ".SH \(roff(title))\n" }

  private func paragraph(_ text: String) -> String { ".PP\n\(roff(text))\n" }

  private func seeAlso(_ names: [String]) -> String {
    section("SEE ALSO") + names.map { ".BR \(roff($0)) (1)" }.joined(separator: ",\n") + "\n"
  }

  private func options(_ options: [Command.Option]) -> String {
    options.map { option in
      let value = option.value.map { " \\fI\(roff($0))\\fR" } ?? ""
      return ".TP\n\\fB\\-\\-\(roff(option.name))\\fR\(value)\n\(roff(option.describe(registry)))\n"
    }.joined()
  }

  /// A discussion: paragraphs, and lines that stand in as they are.
  private func text(_ discussion: String) -> String {
    var out = ""
    var isExample = false
    var begins = true
    for line in discussion.split(separator: "\n", omittingEmptySubsequences: false) {
      if line.allSatisfy(\.isWhitespace) {
        begins = true
        continue
      }
      if line.hasPrefix("  ") != isExample {
        isExample.toggle()
        out += isExample ? ".PP\n.nf\n" : ".fi\n"
        begins = !isExample
      }
      if begins { out += ".PP\n" }
      begins = false
      out += roff(String(line)) + "\n"
    }
    return out + (isExample ? ".fi\n" : "")
  }

  private func sentence(_ summary: String) -> String { summary.prefix(1).uppercased() + summary.dropFirst() + "." }

  static let exitCodes: [(Int, String)] = [
    (0, "done"), (1, "failed inside"), (2, "usage or configuration"), (3, "server not reachable"),
    (4, "not authorised"), (5, "recovery required, or one that waits for the administrator"),
    (6, "synced, some requests were refused"),
  ]
}

/// Text as it stands, for roff.
private func roff(_ text: String) -> String {
  let escaped = text.replacing("\\", with: "\\e").replacing("-", with: "\\-")
  return escaped.hasPrefix(".") || escaped.hasPrefix("'") ? "\\&" + escaped : escaped
}
