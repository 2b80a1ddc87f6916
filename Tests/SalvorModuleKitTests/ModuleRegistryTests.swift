import SalvorModel
import SalvorModuleKit
import Testing

private func factory(_ kind: ModuleKind, _ name: String) -> ModuleFactory {
  ModuleFactory(
    ModuleDescriptor(
      kind: kind, name: name, summary: "A test's",
      options: [
        ModuleOption("path", type: "string", default: nil, "where"),
        ModuleOption("size", type: "integer", default: "3", "how large"),
      ]), product: String.self
  ) { reader, _ in
    guard let path = reader.string("path") else { return nil }
    let size = reader.integer("size", in: 1...9, default: 3)
    return { "\(name) \(path) \(size)" }
  }
}

@Suite("Module registry (architecture, rule 5)")
struct ModuleRegistryTests {
  private let registry: ModuleRegistry

  init() throws {
    registry = try ModuleRegistry([
      factory(.compression, "zstd"), factory(.clientStorage, "sqlite"), factory(.clientStorage, "memory"),
      factory(.serverStorage, "sqlite"), factory(.compression, "gzip"),
    ])
  }

  @Test("the same kind and name twice is an error that names both, and so is a bad name")
  func duplicates() throws {
    let error = try #require(throws: SalvorError.self) {
      _ = try ModuleRegistry([
        factory(.compression, "gzip"), factory(.clientStorage, "gzip"), factory(.compression, "gzip"),
        factory(.authentication, "My Module"),
      ])
    }
    #expect(error.code == .configuration)
    #expect(
      error.message == "The list of modules is not usable. compression module \"gzip\": it is in the list twice; leave "
        + "one out or rename it. authentication module \"My Module\": a name is of lower-case words with hyphens.")
  }

  @Test("a module is found by kind and name; an unknown name lists the known ones and the nearest")
  func lookup() throws {
    #expect(try registry.factory(.serverStorage, "sqlite").descriptor.kind == .serverStorage)
    let error = try #require(throws: SalvorError.self) { _ = try registry.factory(.clientStorage, "sqlit") }
    #expect(error.code == .unknownModule)
    #expect(
      error.message
        == "There is no client-storage module \"sqlit\". Known: memory, sqlite; did you mean \"sqlite\"?")
  }

  @Test("descriptors are listed by kind, then by name")
  func descriptors() {
    #expect(
      registry.descriptors.map { "\($0.kind.rawValue) \($0.name)" } == [
        "client-storage memory", "client-storage sqlite", "server-storage sqlite", "compression gzip",
        "compression zstd",
      ])
  }

  private func prepare(_ text: String) throws -> (module: PreparedModule<String>?, report: String) {
    var reader = OptionReader(try JSON5Reader.read(Array(text.utf8), file: "f"), file: "f", path: "")
    let module = registry.prepare(
      .clientStorage, under: "storage", of: &reader, ModuleContext(), as: String.self)
    return (module, render(reader.diagnostics))
  }

  @Test("a prepared module is made from its options over defaults, as often as asked")
  func prepares() throws {
    let (module, report) = try prepare("{storage: {module: 'sqlite', path: 'x.db'}}")
    #expect(report == "")
    #expect(try module?.make() == "sqlite x.db 3")
    #expect(try module?.make() == "sqlite x.db 3")
  }

  @Test(
    "what cannot be prepared is reported with its key path",
    arguments: [
      ("{}", "f:1: storage: is missing; give an object with a module: { module: \"…\" }; known: memory, sqlite"),
      ("{storage: 'sqlite'}", "f:1: storage: must be an object { … }, found a string"),
      ("{storage: {path: 'x'}}", "f:1: storage.module: is missing; known: memory, sqlite"),
      ("{storage: {module: 3}}", "f:1: storage.module: must be a string, found a whole number; known: memory, sqlite"),
      (
        "{storage: {\nmodule: 'memroy', whatever: 1}}",
        "f:2: storage.module: \"memroy\" is no client-storage module here; known: memory, sqlite; did you mean \"memory\"?"
      ),
      (
        "{storage: {module: 'sqlite', pth: 'x', size: 10}}",
        """
        f:1: storage.path: is missing; give a string
        f:1: storage.pth: is not a key here; allowed: module, path, size; did you mean "path"?
        """
      ),
      (
        "{storage: {module: 'sqlite', path: 'x', size: 10}}",
        "f:1: storage.size: must be a whole number from 1 to 9, found a larger one"
      ),
    ])
  func reports(text: String, expected: String) throws {
    #expect(try prepare(text).report == expected)
  }

  @Test("a module of another seam is refused by name when it is made")
  func wrongProduct() throws {
    var reader = OptionReader(
      try JSON5Reader.read(Array("{storage: {module: 'sqlite', path: 'x'}}".utf8), file: "f"), file: "f", path: "")
    let module = registry.prepare(.clientStorage, under: "storage", of: &reader, ModuleContext(), as: Int.self)
    #expect(throws: SalvorError.self) { _ = try module?.make() }
  }
}

@Suite("Diagnostics")
struct DiagnosticTests {
  @Test("diagnostics print file, line, column, key path and message; what is not known is left out")
  func prints() {
    let text = render([
      Diagnostic(file: "a", line: 3, column: 7, path: "x.y", message: "m"),
      Diagnostic(severity: .warning, file: "a", line: 0, path: "", message: "n"),
    ])
    #expect(text == "a:3:7: x.y: m\na: warning: n")
  }

  @Test("names cannot steer a terminal")
  func harmless() {
    let text = render([Diagnostic(file: "a", line: 1, path: "\u{1B}[31m", message: "b\u{202E}\nc")])
    #expect(text == "a:1: \\u{1B}[31m: b\\u{202E}\\u{A}c")
  }

  @Test("key paths put keys that are no plain words in brackets")
  func paths() {
    #expect(keyPath("tables", "größe-1") == "tables.größe-1")
    #expect(keyPath("tables", #"a "b" c"#) == #"tables["a \"b\" c"]"#)
    #expect(keyPath("", "") == "[\"\"]")
  }

  @Test("the nearest name is offered only where it is near")
  func nearest() {
    #expect(suggestion("srtategy", among: ["strategy", "reasons"]) == "; did you mean \"strategy\"?")
    #expect(suggestion("Establishment", among: ["establishment"]) == "; did you mean \"establishment\"?")
    #expect(suggestion("zebra", among: ["strategy", "reasons"]) == "")
    #expect(suggestion(String(repeating: "x", count: 1_000_000), among: ["x"]) == "")
  }

  @Test("an option's value from the environment is in no message")
  func secrets() {
    let secret = ConfigurationValue(.string("hunter2"), line: 1, isFromEnvironment: true)
    let object = ConfigurationValue(.object([.init(key: "mode", keyLine: 1, value: secret)]), line: 1)
    var reader = OptionReader(object, file: "f", path: "")
    #expect(reader.choice("mode", among: ["hunter3"], default: nil) == nil)
    #expect(render(reader.diagnostics) == "f:1: mode: is what the environment gives; allowed: hunter3")
  }
}
