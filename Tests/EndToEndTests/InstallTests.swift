import Foundation
import Testing

/// Tools/install: executable, manual pages and completions in a prefix, and away again.
@Suite struct InstallTests {
  let directory: URL

  init() throws {
    directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-install-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: directory, withIntermediateDirectories: true)
  }

  private func install(_ words: String...) async throws -> Output {
    try await ChildProcess(
      Built.root.appendingPathComponent("Tools/install").path, words, directory: directory
    ).output()
  }

  private func files() throws -> [String] {
    let all = FileManager.default.enumerator(atPath: directory.path)?.allObjects as? [String] ?? []
    return all.filter { !$0.hasPrefix("mine") }.sorted()
  }

  @Test("installs, installs again, shows its pages, and leaves nothing when it is taken away but what is not its own")
  func installAndUninstall() async throws {
    defer { try? FileManager.default.removeItem(at: directory) }
    let prefix = directory.appendingPathComponent("usr").path
    for _ in 0..<2 {
      let done = try await install("--prefix", prefix, "--executable", Built.salvor)
      #expect(done.code == 0, "\(done.err)")
    }
    let found = try files()
    for file in ["bin/salvor", "share/man/man1/salvor-remotes.1", "share/zsh/site-functions/_salvor"] {
      #expect(found.contains("usr/\(file)"))
    }
    let version = try await ChildProcess("\(prefix)/bin/salvor", ["--version"], directory: directory).output()
    #expect(version.code == 0)
    if Built.has("groff") {
      for page in found where page.hasSuffix(".1") {
        let shown = try await ChildProcess(
          "groff", ["-ww", "-man", "-Tutf8", "-K", "utf8", "-P-cbou", page], directory: directory
        )
        .output()
        #expect(shown.code == 0 && shown.err == "" && shown.out.contains("SYNOPSIS"), "\(page): \(shown.err)")
      }
    }
    try "mine".write(toFile: "\(prefix)/share/man/man1/other.1", atomically: false, encoding: .utf8)
    #expect(try await install("--prefix", prefix, "--uninstall").code == 0)
    #expect(!(try files()).contains { $0.contains("salvor") })
    #expect(FileManager.default.fileExists(atPath: "\(prefix)/share/man/man1/other.1"))
    let again = try await install("--prefix", prefix, "--uninstall")
    #expect(again.code == 2 && again.err.contains("nothing of Salvor is installed"))
  }

  @Test("bash completes commands, options and the names of strategies", .enabled(if: Built.has("bash")))
  func bashCompletes() async throws {
    defer { try? FileManager.default.removeItem(at: directory) }
    func completed(_ words: [String]) async throws -> Set<String> {
      let list = words.map { "'\($0)'" }.joined(separator: " ")
      let script = """
        . <('\(Built.salvor)' completions bash)
        COMP_WORDS=(salvor \(list)); COMP_CWORD=\(words.count)
        _salvor; printf '%s\\n' "${COMPREPLY[@]}"
        """
      let output = try await ChildProcess("bash", ["-c", script], directory: directory).output()
      #expect(output.code == 0 && output.err == "", "\(output.err)")
      return Set(output.out.split(separator: "\n").map(String.init))
    }
    #expect(try await completed(["rem"]) == ["remotes"])
    #expect(try await completed(["remotes", ""]).isSuperset(of: ["show", "delete", "reset", "--config"]))
    #expect(try await completed(["remotes", "delete", "--b"]) == ["--block"])
    #expect(
      try await completed(["recover", "--strategy", "rec"]).isSuperset(of: ["recreate", "recover-unsynced-changes"]))
    #expect(try await completed(["capture", "p"]) == ["pause"])
  }

  @Test("the completions of every shell are read by it", arguments: ["bash", "zsh", "fish"])
  func completionsAreRead(shell: String) async throws {
    defer { try? FileManager.default.removeItem(at: directory) }
    let script = try await salvor(["completions", shell], in: directory)
    #expect(script.code == 0 && script.out.contains("remotes"))
    guard Built.has(shell) else { return }
    try script.out.write(to: directory.appendingPathComponent("mine.sh"), atomically: false, encoding: .utf8)
    let read = try await ChildProcess(shell, ["-n", "mine.sh"], directory: directory).output()
    #expect(read.code == 0 && read.err == "", "\(read.err)")
    #expect(try await salvor(["completions", "tcsh"], in: directory).code == 2)
  }
}
