import Testing

/// The folders of one target, in order: each names only types of its own and of those before it.
struct Layers {
  let order: [String]

  /// - Parameter files: their paths from the target's folder on.
  func violations(_ files: [SourceTree.File]) -> [String] {
    var layers: [String: Int] = [:]
    for file in files {
      for line in file.lines {
        if let name = Self.declared(line), let layer = layer(of: file) { layers[name] = layer }
      }
    }
    var found: [String] = []
    for file in files {
      // What stands beside the folders puts the target together.
      guard let own = layer(of: file) else {
        if file.path.contains("/") { found.append("\(file.path): its folder is no layer") }
        continue
      }
      for (number, line) in file.lines.enumerated() {
        for word in SourceTree.code(line).split(whereSeparator: { !$0.isLetter && !$0.isNumber && $0 != "_" }) {
          guard let layer = layers[String(word)], layer > own else { continue }
          found.append("\(file.path):\(number + 1): \(order[own]) names \(word) of \(order[layer])")
        }
      }
    }
    return found
  }

  private func layer(of file: SourceTree.File) -> Int? {
    order.firstIndex(of: String(file.path.prefix { $0 != "/" }))
  }

  /// The type that a line declares for the whole target.
  static func declared(_ line: Substring) -> String? {
    var words = SourceTree.code(line).split(separator: " ")[...]
    guard line.first?.isWhitespace == false else { return nil }
    while let first = words.first, ["public", "package", "final", "indirect"].contains(first) { words.removeFirst() }
    guard let first = words.first, ["struct", "class", "enum", "actor", "protocol"].contains(first) else { return nil }
    return words.dropFirst().first.map { String($0.prefix { $0.isLetter || $0.isNumber || $0 == "_" }) }
  }
}

@Suite("Folders are layers") struct LayerTests {
  /// docs/architecture/settlement.md says what each is for.
  private static let clientStore = Layers(order: [
    "State", "Capture", "Log", "Context", "Queue", "Settle", "Blobs", "Apply", "Comparison", "Upload", "Evolution",
    "Recovery",
    "Store",
  ])

  @Test("A folder of SQLiteClientStore names types of itself and of those before it alone")
  func clientStore() throws {
    let folder = "Plugins/SQLiteClientStore"
    let files = try SourceTree().files(under: folder, extensions: ["swift"]).map { file in
      SourceTree.File(path: String(file.path.dropFirst(folder.count + 1)), text: file.text)
    }
    #expect(files.count > 80)
    #expect(Self.clientStore.violations(files) == [])
  }

  @Test("An arrow upwards and a folder without a layer are found")
  func violations() {
    let layers = Layers(order: ["Low", "High"])
    let files = [
      SourceTree.File(path: "Low/A.swift", text: "struct Base {}\n// Upper is no use\nlet upper: [Upper] = []"),
      SourceTree.File(
        path: "High/B.swift", text: "public final class Upper: Base {\n  struct Base2 {}\n}\nprivate enum Base3 {}"),
      SourceTree.File(path: "Else/C.swift", text: ""), SourceTree.File(path: "Module.swift", text: "let all = Upper()"),
    ]
    #expect(
      layers.violations(files) == ["Low/A.swift:3: Low names Upper of High", "Else/C.swift: its folder is no layer"])
  }
}
