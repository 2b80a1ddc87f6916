import Foundation
import Testing

/// `salvor check` takes every configuration that the documentation shows.
@Suite struct DocumentedConfigurationTests {
  /// A block that shows a module which this executable does not have, with its name.
  #if PostgreSQL
    private static let ofOthers = ["larger-number", "patient"]
  #else
    private static let ofOthers = ["larger-number", "patient", "postgresql"]
  #endif

  /// The fenced JSON5 blocks of all pages.
  static let blocks: [String] = {
    let files = FileManager.default.enumerator(at: Built.root, includingPropertiesForKeys: nil)
    var found: [String] = []
    for case let file as URL in files ?? .init() {
      if file.lastPathComponent.hasPrefix(".") {
        files?.skipDescendants()
      } else if file.pathExtension == "md", let text = try? String(contentsOf: file, encoding: .utf8) {
        let page = file.path.dropFirst(Built.root.path.count + 1)
        for block in text.components(separatedBy: "```json5\n").dropFirst() {
          found.append("\(page)\n" + (block.components(separatedBy: "\n```").first ?? ""))
        }
      }
    }
    return found.sorted()
  }()

  private static let base = """
    {
      schema: "schema.json5",
      server: {
        storage: { module: "sqlite", path: "consolidated.db" }, listen: { module: "http", port: 8484 },
        authentication: { module: "tokens", file: "tokens.json5" },
      },
      client: {
        storage: { module: "sqlite", path: "field.db" }, transport: { module: "http", url: "http://127.0.0.1:8484" },
        credentials: { token: "${SALVOR_TOKEN}" },
      },
    }
    """

  private static let schema = """
    { version: 1, tables: {
      visit: { maintained: "dual", primaryKey: "id", columns: { id: "text", note: "text?" } } } }
    """

  private static func read(_ text: String) throws -> Shown {
    let decoder = JSONDecoder()
    decoder.allowsJSON5 = true
    return try decoder.decode(Shown.self, from: Data(text.utf8))
  }

  /// The section that a key stands in.
  private static let sections = [
    "listen": "server", "storage": "server", "validators": "server", "transport": "client", "recovery": "client",
  ]

  @Test("There are blocks on the pages of the reference, of the guides, of the concepts and of the modules")
  func thereAreSome() {
    for page in ["docs/reference/configuration.md", "docs/guides/", "docs/concepts/", "Plugins/"] {
      #expect(Self.blocks.contains { $0.hasPrefix(page) }, "\(page)")
    }
  }

  @Test("A block of a page is taken by salvor check, in the place where it belongs", arguments: blocks)
  func blockIsTaken(block: String) async throws {
    let folder = FileManager.default.temporaryDirectory.appendingPathComponent(
      "salvor-e2e-documented-\(UUID().uuidString)")
    try FileManager.default.createDirectory(at: folder, withIntermediateDirectories: true)
    defer { try? FileManager.default.removeItem(at: folder) }
    func write(_ value: Shown, _ name: String) throws {
      try JSONEncoder().encode(value).write(to: folder.appendingPathComponent(name))
    }
    var text = block.split(separator: "\n", maxSplits: 1).last.map(String.init) ?? ""
    // A hash is shown shortened.
    while let range = text.range(of: #""…[^"]*""#, options: .regularExpression) {
      text.replaceSubrange(
        range, with: "\"\(UUID().uuidString.lowercased().filter { $0 != "-" })\(String(repeating: "0", count: 32))\"")
    }
    let isWhole = text.hasPrefix("{")
    let shown = try Self.read(isWhole ? text : "{ \(text)\n}")
    var configuration = try Self.read(Self.base)
    var schema = try Self.read(Self.schema)
    var tokens = Shown.object(["tokens": .array([])])
    for (key, value) in shown.members {
      if key == "tokens" {
        tokens = shown
      } else if let section = Self.sections[key] {
        configuration.merge(.object([section: .object([key: value])]))
      } else if value.members["primaryKey"] != nil {
        schema.merge(.object(["tables": .object([key: value])]))
      } else {
        configuration.merge(.object([key: value]))
      }
    }
    // A token's lists are of parameters that the schema has.
    if text.contains("region") { schema.merge(.object(["parameters": .object(["region": .string("text")])])) }
    try write(configuration, "salvor.json5")
    try write(schema, "schema.json5")
    try write(tokens, "tokens.json5")
    let output = try await salvor(
      ["check"], in: folder,
      environment: ["SALVOR_TOKEN": "token", "FIELD_KEY": "key", "RULES_SECRET": String(repeating: "secret", count: 6)])
    if let name = Self.ofOthers.first(where: { text.contains($0) }) {
      #expect(output.code == 2 && output.err.contains("\"\(name)\""), "\(block)\n\(output.out)\(output.err)")
    } else {
      #expect(output.code == 0 && output.out.contains("is valid"), "\(block)\n\(output.out)\(output.err)")
      #expect(output.err.isEmpty, "no warning: \(block)\n\(output.err)")
    }
  }

  @Test(
    "Whole configurations of this repository are taken: the examples', and the packages' with the schema of salvor init",
    arguments: ["Examples/dinesafe", "Examples/field-inspection", "Examples/legislators", "Packaging"])
  func fileIsTaken(folder: String) async throws {
    let place = FileManager.default.temporaryDirectory.appendingPathComponent(
      "salvor-e2e-documented-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: place) }
    let made = try await salvor(["init", place.path], in: FileManager.default.temporaryDirectory)
    #expect(made.code == 0)
    for name in ["salvor.json5", "schema.json5", "tokens.json5"] {
      let file = Built.root.appendingPathComponent("\(folder)/\(name)")
      guard let text = try? String(contentsOf: file, encoding: .utf8) else { continue }
      // The package's folder is not here.
      try text.replacing("/var/lib/salvor/", with: "").write(
        to: place.appendingPathComponent(name), atomically: false, encoding: .utf8)
    }
    let output = try await salvor(["check"], in: place, environment: ["SALVOR_TOKEN": "token"])
    #expect(output.code == 0 && output.err.isEmpty, "\(output.out)\(output.err)")
  }
}

/// A value of JSON5.
private enum Shown: Codable {
  case object([String: Shown])
  case array([Shown])
  case string(String)
  case bool(Bool)
  case number(Double)

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if let value = try? container.decode([String: Shown].self) {
      self = .object(value)
    } else if let value = try? container.decode([Shown].self) {
      self = .array(value)
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Double.self) {
      self = .number(value)
    } else {
      self = .string(try container.decode(String.self))
    }
  }

  func encode(to encoder: any Encoder) throws {
    var container = encoder.singleValueContainer()
    switch self {
    case .object(let value): try container.encode(value)
    case .array(let value): try container.encode(value)
    case .string(let value): try container.encode(value)
    case .bool(let value): try container.encode(value)
    case .number(let value): try container.encode(value)
    }
  }

  var members: [String: Shown] { if case .object(let members) = self { members } else { [:] } }

  /// Takes the members of `more`, in the place of those of the same name. A module is chosen with its options.
  mutating func merge(_ more: Shown) {
    guard case .object(var members) = self, case .object(let others) = more else {
      self = more
      return
    }
    for (key, value) in others {
      let module = value.members["module"]?.text
      if var old = members[key], module == nil || module == old.members["module"]?.text {
        old.merge(value)
        members[key] = old
      } else {
        members[key] = value
      }
    }
    self = .object(members)
  }

  private var text: String? { if case .string(let text) = self { text } else { nil } }
}
