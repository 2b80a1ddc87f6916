import Foundation
import Testing

/// Every command of the documentation works as it is written there.
@Suite struct DocumentTests {
  /// The programs that the pages use beside salvor.
  static let programs = ["bash", "sqlite3", "curl", "jq"]

  @Test(
    "The commands of a page run as they stand, and print what the page says",
    .enabled(if: programs.allSatisfy(Built.has)),
    arguments: [
      "README.md", "docs/tutorial/README.md", "docs/guides/README.md", "docs/guides/recovery.md",
      "docs/guides/operate.md", "docs/guides/upgrade.md", "docs/guides/conflicts.md", "docs/guides/schema-evolution.md",
      "docs/guides/subscriptions.md", "docs/guides/erase.md", "docs/guides/heal.md", "docs/guides/snapshots.md",
      "docs/reference/protocol.md",
    ])
  func commandsOfAPageRun(page: String) async throws {
    let text = try String(contentsOf: Built.root.appendingPathComponent(page), encoding: .utf8)
    let blocks = Block.all(of: text)
    #expect(!blocks.isEmpty)
    let session = try DocumentSession()
    defer { session.end() }
    for block in blocks { try await session.run(block, of: page) }
  }

  @Test(
    "The commands of an example's page run as they stand in its folder, and print what the page says",
    .enabled(if: (programs + ["python3"]).allSatisfy(Built.has)), arguments: ["legislators"])
  func commandsOfAnExampleRun(example: String) async throws {
    let page = "Examples/\(example)/README.md"
    let text = try String(contentsOf: Built.root.appendingPathComponent(page), encoding: .utf8)
    let blocks = Block.all(of: text)
    #expect(!blocks.isEmpty)
    let session = try DocumentSession(in: example)
    defer { session.end() }
    for block in blocks { try await session.run(block, of: page) }
  }

  @Test(
    "The commands of the page about other languages run as they stand",
    .enabled(if: (programs + ["python3", "cc"]).allSatisfy(Built.has) && LibraryTests.canInstall))
  func commandsOfOtherLanguagesRun() async throws {
    let page = "docs/guides/other-languages.md"
    let blocks = Block.all(of: try String(contentsOf: Built.root.appendingPathComponent(page), encoding: .utf8))
    #expect(!blocks.isEmpty)
    let session = try DocumentSession()
    defer { session.end() }
    for block in blocks { try await session.run(block, of: page) }
  }

  #if PostgreSQL
    @Test(
      "The commands of the page about PostgreSQL run as they stand, against a PostgreSQL of the tests' own",
      .enabled(
        if: programs.allSatisfy(Built.has) && PrivateCluster.isThere,
        "PostgreSQL is not installed here: this test did not run"))
    func commandsOfPostgreSQLRun() async throws {
      let page = "docs/guides/postgresql.md"
      let blocks = Block.all(of: try String(contentsOf: Built.root.appendingPathComponent(page), encoding: .utf8))
      #expect(!blocks.isEmpty)
      let cluster = try PrivateCluster.another()
      let session = try DocumentSession(environment: ["PGHOST": cluster.folder, "PGUSER": "postgres"])
      defer { session.end() }
      for block in blocks { try await session.run(block, of: page) }
    }
  #endif

  @Test("Blocks and what they must print are read from a page")
  func blocksAreRead() {
    let page = """
      ```sh
      echo a
      # → a
      # a comment
      ```
      ```console
      $ not run
      ```
      ```sh server
      salvor serve
      ```
      """
    let blocks = Block.all(of: page)
    #expect(blocks.map(\.commands) == ["echo a\n# a comment\n", "salvor serve\n"])
    #expect(blocks.map(\.expected) == [["a"], []])
    #expect(blocks.map(\.isServer) == [false, true])
    #expect(blocks[0].missing(in: "x\na\n") == nil)
    #expect(blocks[0].missing(in: "x\nb\n") == "a")
  }

  @Test("docs/reference/cli.md is what --help says (write it anew with SALVOR_WRITE_DOCS=1)")
  func theCommandReferenceIsTheHelp() async throws {
    let folder = FileManager.default.temporaryDirectory
    let overview = try await salvor(["--help"], in: folder).out
    var page = """
      # Commands

      Made from `salvor --help` by Tests/EndToEndTests; change it in Modules/SalvorHost/CommandLine.

      ```text
      \(overview.trimmingCharacters(in: .newlines))
      ```

      """
    for name in DocumentTests.commandNames(overview) {
      let help = try await salvor(name.split(separator: " ").map(String.init) + ["--help"], in: folder).out
      page += "\n## salvor \(name)\n\n```text\n\(help.trimmingCharacters(in: .newlines))\n```\n"
    }
    let file = Built.root.appendingPathComponent("docs/reference/cli.md")
    if ProcessInfo.processInfo.environment["SALVOR_WRITE_DOCS"] == "1" {
      try page.write(to: file, atomically: true, encoding: .utf8)
    }
    #expect(try String(contentsOf: file, encoding: .utf8) == page)
  }

  /// The names in the overview's list: the lower-case words at the beginning of each line.
  static func commandNames(_ overview: String) -> [String] {
    let lines = overview.split(separator: "\n", omittingEmptySubsequences: false)
    let list = lines.drop { $0 != "Commands:" }.dropFirst().prefix { $0.hasPrefix("  ") }
    return list.map { line in
      let name = line.dropFirst(2).components(separatedBy: "  ")[0]
      return name.split(separator: " ").prefix { $0.allSatisfy { $0.isLowercase || $0 == "-" } }.joined(separator: " ")
    }
  }
}

/// A fenced block marked `sh` (run, and waited for) or `sh server` (runs until the page is done).
private struct Block: Sendable {
  var commands: String
  var expected: [String]
  var isServer: Bool

  static func all(of page: String) -> [Block] {
    var blocks: [Block] = []
    var current: Block?
    for line in page.components(separatedBy: "\n") {
      if var block = current {
        if line.hasPrefix("```") {
          blocks.append(block)
          current = nil
        } else {
          if line.hasPrefix("# → ") {
            block.expected.append(String(line.dropFirst(4)))
          } else {
            block.commands += line + "\n"
          }
          current = block
        }
      } else if line == "```sh" || line == "```sh server" {
        current = Block(commands: "", expected: [], isServer: line.hasSuffix("server"))
      }
    }
    return blocks
  }

  /// The first expected text that no line holds, after the line of the one before it.
  func missing(in output: String) -> String? {
    var lines = output.components(separatedBy: "\n")[...]
    for text in expected {
      guard let place = lines.firstIndex(where: { $0.contains(text) }) else { return text }
      lines = lines[(place + 1)...]
    }
    return nil
  }
}

/// One reader at one terminal: the directory and the variables carry over from block to block.
private final class DocumentSession {
  private let directory: URL
  private let port: UInt16
  private var servers: [ChildProcess] = []
  private let environment: [String: String]

  /// - Parameter example: the reader is in a copy of this folder of Examples; nil: in an empty one.
  init(in example: String? = nil, environment: [String: String] = [:]) throws {
    self.environment = environment
    directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-page-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
    // The pages say 8484; here several run at once.
    self.port = try Socket.vacantPort()
    var place = directory
    if let example {
      place = directory.appendingPathComponent(example)
      try FileManager.default.copyItem(at: Built.root.appendingPathComponent("Examples/\(example)"), to: place)
      let configuration = place.appendingPathComponent("salvor.json5")
      try String(contentsOf: configuration, encoding: .utf8).replacingOccurrences(of: "8484", with: String(port))
        .write(to: configuration, atomically: false, encoding: .utf8)
    }
    try place.path.write(to: directory.appendingPathComponent(".where"), atomically: false, encoding: .utf8)
    try "".write(to: directory.appendingPathComponent(".variables"), atomically: false, encoding: .utf8)
  }

  func end() {
    for server in servers { server.signal(SIGKILL) }
    // Those that a page starts by itself, where it did not come to their end.
    let files = FileManager.default.enumerator(at: directory, includingPropertiesForKeys: nil)
    for case let file as URL in files ?? .init() where file.lastPathComponent == "server.pid" {
      if let text = try? String(contentsOf: file, encoding: .utf8), let number = pid_t(text.filter(\.isNumber)) {
        kill(number, SIGKILL)
      }
    }
    try? FileManager.default.removeItem(at: directory)
  }

  func run(_ block: Block, of page: String) async throws {
    // `salvor init` writes the port of the pages: it is put right wherever a configuration was made.
    let script = """
      set -euo pipefail
      state='\(directory.path)'
      cd "$(cat "$state/.where")"
      . "$state/.variables"
      \(block.commands.replacingOccurrences(of: "8484", with: String(port)))
      find "$state" -name salvor.json5 -exec sed -i 's/8484/\(port)/g' {} +
      pwd > "$state/.where"
      declare -p | grep -vE '^declare -[a-z]*r|^declare -[-a-z]* (BASH|DIRSTACK|FUNCNAME|GROUPS|PIPESTATUS|_)' > "$state/.variables" || true
      """
    let bin = URL(fileURLWithPath: Built.salvor).deletingLastPathComponent().path
    var path = ProcessInfo.processInfo.environment["PATH"] ?? ""
    if let previous = Built.previous {
      // The last release, for the page about upgrades.
      let place = directory.appendingPathComponent(".previous")
      try? FileManager.default.createDirectory(at: place, withIntermediateDirectories: true)
      try? FileManager.default.createSymbolicLink(
        at: place.appendingPathComponent("salvor-old"), withDestinationURL: URL(fileURLWithPath: previous))
      path += ":\(place.path)"
    }
    let child = try ChildProcess(
      "bash", ["-c", block.isServer ? block.serverScript(directory) : script], directory: directory,
      environment: [
        "PATH": LibraryTests.python.hasPrefix("/usr/bin/") ? "\(bin):/usr/bin:\(path)" : "\(bin):\(path)",
        "repository": Built.root.path, "SALVOR_C_LIBRARY": "\(bin)/libsalvor-c.so",
      ].merging(environment) { $1 })
    if block.isServer {
      servers.append(child)
      _ = try await child.line(after: "listening ")
      return
    }
    let output = await child.output()
    #expect(output.code == 0, "\(page): \(block.commands)\n\(output.out)\n\(output.err)")
    if let missing = block.missing(in: output.out) {
      Issue.record(
        "\(page): \(block.commands)\ndid not print \"\(missing)\" in its place:\n\(output.out)\n\(output.err)")
    }
  }
}

extension Block {
  fileprivate func serverScript(_ directory: URL) -> String {
    "cd \"$(cat '\(directory.path)/.where')\" && . '\(directory.path)/.variables' && exec \(commands)"
  }
}
