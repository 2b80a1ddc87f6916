import Foundation
import SQLiteSupport
import Testing

/// libsalvor, the C ABI (Products/LibSalvor), as C and Python see it.
@Suite struct LibraryTests {
  private static let folder = URL(fileURLWithPath: Built.salvor).deletingLastPathComponent()
  static let library = folder.appendingPathComponent("libsalvor-c.so").path
  private static let header = Built.root.appendingPathComponent("Products/LibSalvor/include").path

  /// The Python that Debian's packages are for, where there is one.
  static let python =
    FileManager.default.isExecutableFile(atPath: "/usr/bin/python3") ? "/usr/bin/python3" : "python3"

  /// Whether it can install a package without a network.
  static let canInstall: Bool = {
    let process = Process()
    process.executableURL = URL(fileURLWithPath: "/usr/bin/env")
    process.arguments = [python, "-c", "import setuptools, pip, wheel"]
    process.standardError = FileHandle.nullDevice
    guard (try? process.run()) != nil else { return false }
    process.waitUntilExit()
    return process.terminationStatus == 0
  }()

  /// A program of C against the header, linked with the library.
  private func compiled(_ source: String, in directory: URL, compiler: String = "clang") async throws -> String {
    let program = directory.appendingPathComponent("program").path
    // The library names itself libsalvor.so.1, as it is installed.
    let link = directory.appendingPathComponent("libsalvor.so.1")
    try FileManager.default.createSymbolicLink(at: link, withDestinationURL: URL(fileURLWithPath: Self.library))
    let built = try await ChildProcess(
      compiler,
      [
        "-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-I", Self.header, "-o", program,
        Built.root.appendingPathComponent(source).path, Self.library, "-lpthread", "-Wl,-rpath,\(directory.path)",
      ], directory: directory
    ).output()
    try #require(built.code == 0, "\(built.err)")
    return program
  }

  @Test(
    "A C program is compiled against the header with every warning, synchronizes, and is told what came",
    .enabled(if: Built.has("clang")))
  func synchronizes() async throws {
    let workspace = try Workspace()
    let url = try await workspace.server.start()
    try workspace.server.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'Harbour')")
    let device = try workspace.device("anna é", url: url)
    let program = try await compiled("Examples/c/sync.c", in: workspace.directory)
    let first = try await ChildProcess(program, ["salvor.json5"], directory: device.directory).output()
    #expect(first.code == 0, "\(first.out) \(first.err)")
    #expect(first.out.contains("\"event\":\"rows-changed\""))
    #expect(first.out.contains("report {\"outcome\":\"synchronized\""))
    #expect(try contents(device.database, ["site"])["site"] == contents(workspace.server.database, ["site"])["site"])
    _ = try await workspace.server.stop()
    let away = try await ChildProcess(program, ["salvor.json5"], directory: device.directory).output()
    #expect(away.code == 1)
    // What is told on another thread may come after it.
    let line = try #require(away.out.split(separator: "\n").last { $0.hasPrefix("error ") }, "\(away.out)")
    let error = try JSON(parsing: String(line.dropFirst("error ".count)))
    #expect(error["name"] == "unreachable" && error["retryable"] == .bool(true))
    #expect(error["report"]["error"]["name"] == "unreachable")
    #expect(error["wayOn"].string?.isEmpty == false)
  }

  @Test(
    "Wrong options, double frees, use after the end, ten threads, two clients of one file, an end in mid-sync, callbacks that call and end the client, fork",
    .enabled(if: Built.has("clang")))
  func abuse() async throws {
    let workspace = try Workspace()
    let device = try workspace.device("anna", url: try await workspace.server.start())
    let program = try await compiled("Tests/Programs/abuse.c", in: workspace.directory)
    let output = try await ChildProcess(program, ["salvor.json5"], directory: device.directory).output()
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(output.out.hasSuffix("all right\n"))
    #expect(try damage(device.database) == [])
  }

  @Test(
    "A library of modules in the configuration is refused by name, never passed over: by libsalvor, and by a program that lends nothing",
    .enabled(if: Built.has("clang")))
  func plugins() async throws {
    let workspace = try Workspace()
    let device = try workspace.device("anna", url: "http://localhost:1")
    let file = device.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: file, encoding: .utf8)
    try (text.prefix { $0 != "{" } + "{ plugins: [\"./lib own.so\"], " + text.drop { $0 != "{" }.dropFirst())
      .write(to: file, atomically: true, encoding: .utf8)
    // What is in the file does not matter: it is not opened.
    try "no library".write(
      to: device.directory.appendingPathComponent("lib own.so"), atomically: true, encoding: .utf8)
    let library = try await compiled("Examples/c/sync.c", in: workspace.directory)
    for program in [library, Self.folder.appendingPathComponent("example-quickstart").path] {
      let output = try await ChildProcess(program, ["salvor.json5"], directory: device.directory).output()
      #expect(output.code != 0)
      let said = output.out + output.err
      #expect(said.contains("plugins[0]: names the library ./lib own.so"), "\(program): \(said)")
      #expect(said.contains("this program does not lend that: libsalvor never does"), "\(program): \(said)")
      #expect(said.contains("salvor sync --watch"), "\(program): \(said)")
    }
    #expect(try FileManager.default.contentsOfDirectory(atPath: device.directory.path).count == 2)
  }

  @Test(
    "Nothing but the functions of the header is seen from outside, and each of them is", .enabled(if: Built.has("nm")))
  func symbols() async throws {
    let output = try await ChildProcess(
      "nm", ["-D", "--defined-only", "--extern-only", Self.library], directory: FileManager.default.temporaryDirectory
    ).output()
    try #require(output.code == 0, "\(output.err)")
    let seen = Set(output.out.split(separator: "\n").compactMap { $0.split(separator: " ").last.map(String.init) })
    let header = try String(contentsOfFile: Self.header + "/salvor.h", encoding: .utf8)
    let declared = header.matches(of: /^(?:int32_t|void) (salvor_\w+)\(/.anchorsMatchLineEndings()).map { String($0.1) }
    #expect(declared.count > 20)
    #expect(seen == Set(declared))
    let needed = try await ChildProcess(
      "readelf", ["-d", Self.library], directory: FileManager.default.temporaryDirectory
    ).output().out
    #expect(!needed.contains("libswift"), "Swift's runtime is not inside")
    #expect(!needed.contains("microhttpd"))
  }

  @Test("Tools/bench-embedded measures the embedded client beside salvor sync", .enabled(if: Built.has("python3")))
  func benchmark() async throws {
    let output = try await ChildProcess(
      Self.python,
      [
        "-B", Built.root.appendingPathComponent("Tools/bench-embedded").path, "--salvor", Built.salvor, "--library",
        Self.library, "--rows", "50", "--runs", "1", "--json",
      ], directory: FileManager.default.temporaryDirectory
    ).output()
    // 1: a reach is missed, which fifty rows on a busy machine say nothing about.
    #expect([0, 1].contains(output.code), "\(output.err)")
    let idle = try output.json["nothing to do"]
    #expect(idle["embedded"] != .null && idle["salvor"] != .null && idle["ratio"] != .null, "\(output.out)")
  }

  @Test("The Python package: its own tests, with SQLAlchemy where it is", .enabled(if: Built.has("python3")))
  func python() async throws {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-python-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    let output = try await ChildProcess(
      Self.python, ["-B", "-m", "unittest", "-v"], directory: Built.root.appendingPathComponent("Examples/python"),
      environment: ["SALVOR": Built.salvor, "SALVOR_LIBRARY": Self.library, "TMPDIR": folder.path]
    ).output()
    #expect(output.code == 0, "\(output.out) \(output.err)")
    #expect(output.err.contains("test_an_application_on_sqlalchemy"))
    #expect(try FileManager.default.contentsOfDirectory(atPath: folder.path) == [])
  }
}
