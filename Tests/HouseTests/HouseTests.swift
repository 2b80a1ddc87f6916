import Testing

/// The house: which part imports which, and what every part has (docs/architecture/house.md).
@Suite struct HouseTests {
  let tree = SourceTree()

  // MARK: - Imports

  @Test("A module imports only what stands above it, a plug-in only protocols; of targets and of import lines")
  func importsFollowTheRules() throws {
    let package = try PackageDescription.read(tree)
    let rules = HouseRules(kinds: package.kinds)
    #expect(package.targets.count > 20)
    #expect(package.edges.count > 40)
    var edges = package.edges
    for target in package.targets where rules.kinds[target.name] != .library {
      for file in try tree.files(under: target.path, extensions: ["swift"]) {
        edges += SourceTree.imports(file.text).map {
          .init(from: target.name, to: $0.module, place: "\(file.path):\($0.line)")
        }
      }
    }
    #expect(edges.compactMap(rules.violation) == [])
  }

  @Test(
    "A target imports only what Package.swift builds before it: an import that is not declared fails in a fresh clone")
  func importsAreDeclared() throws {
    let package = try PackageDescription.read(tree)
    let rules = HouseRules(kinds: package.kinds)
    var undeclared: [String] = []
    for target in package.targets where rules.kinds[target.name] != .library {
      let declared = package.dependencies(of: target.name)
      for file in try tree.files(under: target.path, extensions: ["swift"]) {
        undeclared += SourceTree.imports(file.text).filter {
          rules.kinds[$0.module] != nil && !declared.contains($0.module)
        }.map { "\(file.path):\($0.line): \($0.module)" }
      }
    }
    #expect(undeclared == [])
    #expect(!package.dependencies(of: "ScenarioTests").contains("SalvorClient"), "the fault that this was written for")
  }

  @Test("Every folder of Modules/ and Plugins/ is a target, and the order of the import rule names every module")
  func everyFolderIsATarget() throws {
    let package = try PackageDescription.read(tree)
    let paths = Set(package.targets.map(\.path))
    for part in ["Modules", "Plugins", "Products"] {
      for folder in try tree.folders(in: part) { #expect(paths.contains("\(part)/\(folder)")) }
    }
    #expect(try Set(tree.folders(in: "Modules")) == Set(HouseRules.modules))
  }

  @Test(
    "The check of imports finds planted edges",
    arguments: [
      ("SalvorModel", "SalvorWire", "a module imports only what stands above it"),
      ("SalvorClientEngine", "SalvorServerEngine", "client and server never import each other"),
      ("SalvorServerHost", "SalvorClientEngine", "client and server never import each other"),
      ("SalvorServerEngine", "GzipCompression", "a module never imports a plug-in"),
      ("SalvorHost", "CSQLite", "a module imports no C library"),
      ("MemoryStore", "SalvorServerEngine", "a plug-in imports protocols, never an engine"),
      ("GzipCompression", "IdentityCompression", "a plug-in never imports another one"),
      ("SQLiteSupport", "SQLiteServerStore", "a plug-in never imports another one"),
      ("SalvorHost", "salvor", "nothing imports a tool or a test"),
      ("SalvorHost", "SalvorClient", "only applications import a product"),
      ("GzipCompression", "SalvorClient", "only applications import a product"),
      ("SalvorClient", "CSQLite", "a product imports no C library"),
    ])
  func plantedEdgesAreFound(from: String, to: String, reason: String) {
    let violation = HouseTests.sampleRules.violation(.init(from: from, to: to, place: "here"))
    #expect(violation == "here: \(from) imports \(to): \(reason)")
  }

  @Test(
    "The check of imports leaves allowed edges alone",
    arguments: [
      ("SalvorHost", "SalvorServerEngine"), ("SalvorClient", "ClientModules"), ("salvor", "SalvorClient"),
      ("SQLiteServerStore", "SQLiteSupport"), ("StandardModules", "GzipCompression"),
      ("GzipCompression", "CZlib"), ("salvor", "StandardModules"), ("HouseTests", "salvor"),
      ("SalvorModel", "Synchronization"),
    ])
  func allowedEdgesPass(from: String, to: String) {
    #expect(HouseTests.sampleRules.violation(.init(from: from, to: to, place: "here")) == nil)
  }

  @Test("Import lines are read in every spelling")
  func importLinesAreRead() {
    let lines = [
      "import SalvorModel", "@testable import SalvorWire", "@preconcurrency public import struct Foundation.URL",
      "  internal import CSQLite // why", "// import SalvorServer", "let text = \"no import SalvorClient\"",
    ]
    let found = SourceTree.imports(lines.joined(separator: "\n"))
    #expect(found.map(\.module) == ["SalvorModel", "SalvorWire", "Foundation", "CSQLite"])
    #expect(found.map(\.line) == [1, 2, 3, 4])
  }

  @Test("FoundationNetworking is imported nowhere")
  func noFoundationNetworking() throws {
    var found: [String] = []
    for part in ["Modules", "Plugins", "Products", "Examples", "Tools", "Tests"] {
      for file in try tree.files(under: part, extensions: ["swift"]) {
        for line in SourceTree.imports(file.text) where line.module == "FoundationNetworking" {
          // Compiled for Apple's systems, and into its own tests.
          if file.path.hasSuffix("/URLSessionTransport.swift") { continue }
          found.append("\(file.path):\(line.line)")
        }
      }
    }
    #expect(found == [])
  }

  @Test("What a device is made of imports nothing that needs more than macOS 13 and iOS 16")
  func clientsRunOnOlderSystems() throws {
    let package = try PackageDescription.read(tree)
    let targets = Dictionary(uniqueKeysWithValues: package.targets.map { ($0.name, $0) })
    var parts: Set<String> = []
    var rest = ["SalvorClient"]
    while let name = rest.popLast() {
      guard parts.insert(name).inserted, let target = targets[name] else { continue }
      rest += target.target_dependencies ?? []
    }
    // macOS 15 or iOS 18 and later, but for what stands behind `#available` or off Darwin.
    let newer = [
      "import Synchronization", "Atomic<", "DiscardingTaskGroup", "DispatchSerialQueue", "Int128", "InlineArray",
    ]
    let elsewhere = ["Modules/SalvorModel/Mutex.swift"]
    var found: [String] = []
    for name in parts.sorted() {
      guard let target = targets[name] else { continue }
      for file in try tree.files(under: target.path, extensions: ["swift"]) where !elsewhere.contains(file.path) {
        found += HouseTests.lines(of: file, with: newer, inCode: true)
      }
    }
    #expect(parts.count > 15)
    #expect(found == [])
  }

  @Test("What a page shows as compiled is the file that it names, or a part of it", arguments: ["compiled", "from"])
  func snippetsAreCompiled(mark: String) throws {
    var count = 0
    for page in try tree.files(under: "docs", extensions: ["md"]) {
      for part in page.text.components(separatedBy: "<!-- \(mark): ").dropFirst() {
        let path = part.components(separatedBy: " -->")[0]
        let block = part.components(separatedBy: "```swift\n").dropFirst().first?.components(separatedBy: "```")[0]
        let file = try tree.read(path)
        // A part of a function stands further to the right there.
        func flat(_ text: String) -> String {
          text.split(separator: "\n", omittingEmptySubsequences: false).map { $0.drop { $0 == " " } }
            .joined(separator: "\n")
        }
        #expect(
          mark == "from" ? flat(file).contains(flat(block ?? "nothing")) : block == file, "\(page.path): \(path)")
        count += 1
      }
    }
    #expect(count > 0)
  }

  @Test("Every piece of Swift on a page of docs is compiled, or says why it is not")
  func allSnippetsAreCompiled() throws {
    for page in try tree.files(under: "docs", extensions: ["md"]) {
      let parts = page.text.components(separatedBy: "```swift\n")
      for (before, block) in zip(parts, parts.dropFirst()) {
        let mark = before.split(separator: "\n").last.map(String.init) ?? ""
        let isMarked = ["compiled", "from", "not compiled"].contains { mark.hasPrefix("<!-- \($0): ") }
        #expect(isMarked, "\(page.path): \(block.prefix(60))")
      }
    }
  }

  @Test("From nothing to the first synchronized row: twelve lines of Swift at most, by the page")
  func fewLines() throws {
    let page = try tree.read("docs/guides/application.md")
    let blocks = page.components(separatedBy: "```swift\n").dropFirst().prefix(2).map {
      $0.components(separatedBy: "```")[0]
    }
    #expect(blocks.first?.contains(".package(") == true && blocks.last?.contains("synchronize()") == true)
    let lines = blocks.joined().split(separator: "\n").filter { !$0.allSatisfy(\.isWhitespace) }
    #expect(lines.count <= 12)
  }

  @Test("import SalvorClient brings no name that GRDB, Foundation, Combine or Swift itself has")
  func noCommonNames() throws {
    let taken: Set<String> = [
      "Table", "Column", "Row", "Database", "Configuration", "Clock", "Operation", "Subscription", "Schema", "Host",
      "Mutex", "Reference", "Snapshot", "Record", "Request", "State",
    ]
    let exports = try tree.read("Products/SalvorClient/Exports.swift").split(separator: "\n").filter {
      $0.contains("@_exported import")
    }
    #expect(exports.count > 20)
    for line in exports {
      let name = String(line.split(whereSeparator: { " .".contains($0) }).last ?? "")
      #expect(!taken.contains(name))
    }
    let whole = exports.filter { !$0.contains(".") }.map { $0.split(separator: " ").last.map(String.init) ?? "" }
    for module in whole where module.hasPrefix("SalvorClient") {
      for file in try tree.files(under: "Modules/\(module)", extensions: ["swift"]) {
        for line in file.text.split(separator: "\n") where line.hasPrefix("public ") {
          let words = line.split(whereSeparator: { " :<(=".contains($0) }).map(String.init)
          let names = zip(words, words.dropFirst()).filter {
            ["struct", "class", "enum", "protocol", "actor", "typealias"].contains($0.0)
          }
          for (_, name) in names { #expect(!taken.contains(name), "\(file.path): \(name)") }
        }
      }
    }
  }

  @Test("docs/architecture/house.md shows the import rules that are checked here")
  func theHousePageShowsTheRules() throws {
    #expect(try tree.read("docs/architecture/house.md").contains(HouseRules.table()))
  }

  static let sampleRules = HouseRules(
    kinds: [
      "SalvorModel": .module, "SalvorWire": .module, "SalvorClientEngine": .module, "SalvorServerEngine": .module,
      "SalvorServerHost": .module, "SalvorHost": .module, "SalvorClient": .product, "ClientModules": .plugin,
      "GzipCompression": .plugin, "IdentityCompression": .plugin, "SQLiteSupport": .plugin,
      "SQLiteServerStore": .plugin, "MemoryStore": .plugin, "StandardModules": .plugin, "CSQLite": .library,
      "CZlib": .library, "salvor": .tool, "salvor-bench": .tool, "HouseTests": .tests,
    ])

  // MARK: - Every part

  @Test("Every folder of Modules/ and Plugins/ has a README.md that says something")
  func everyPartHasAReadMe() throws {
    var missing: [String] = []
    for part in ["Modules", "Plugins", "Products"] {
      for folder in try tree.folders(in: part) where !tree.exists("\(part)/\(folder)/module.modulemap") {
        let text = (try? tree.read("\(part)/\(folder)/README.md")) ?? ""
        let lines = text.split(separator: "\n")
        if lines.count < 3 || text.utf8.count < 200 || lines.first?.hasPrefix("# ") != true {
          missing.append("\(part)/\(folder)/README.md")
        }
      }
    }
    #expect(missing == [])
  }

  @Test("No source file has more than 600 lines")
  func filesStayReadable() throws {
    var long: [String] = []
    for part in ["Modules", "Plugins", "Products", "Examples", "Tools", "Tests"] {
      for file in try tree.files(under: part, extensions: ["swift"]) where file.lines.count > 601 {
        long.append("\(file.path): \(file.lines.count - 1) lines")
      }
    }
    #expect(long == [])
  }

  /// The modules that applications, hosts and authors of modules import, the wire format and the simulator: every
  /// module under `Modules/`.
  private static let documented = [
    "SalvorModel", "SalvorStorage", "SalvorModuleKit", "SalvorRecovery", "SalvorTransport", "SalvorConfiguration",
    "SalvorClientEngine", "SalvorClientHost", "SalvorServerEngine", "SalvorServerHost", "SalvorHost",
    "SalvorContracts", "SalvorSimulation", "SalvorWire",
  ]

  @Test("Every public declaration of a module that others import says what it gives", arguments: documented)
  func publicDeclarationsAreDocumented(module: String) throws {
    let declaration =
      /^\s*public ((static|final|mutating|convenience|nonisolated|indirect|(private|internal|package)\(set\)) )*(func|var|let|init|struct|enum|class|actor|protocol|typealias|subscript)\b/
    var missing: [String] = []
    for file in try tree.files(under: "Modules/\(module)", extensions: ["swift"]) {
      var above = ""
      for (number, line) in file.lines.enumerated() {
        let text = line.drop { $0 == " " }
        if !above.hasPrefix("///"), line.firstMatch(of: declaration) != nil {
          missing.append("\(file.path):\(number + 1): \(text)")
        }
        // An attribute stands between a comment and what it is about.
        if !text.hasPrefix("@"), !text.hasPrefix("#") { above = String(text) }
      }
    }
    #expect(missing == [])
  }

  @Test("Modules/ and Plugins/ never crash on purpose")
  func noCrashOnPurpose() throws {
    var found: [String] = []
    for part in ["Modules", "Plugins", "Products"] {
      for file in try tree.files(under: part, extensions: ["swift"]) {
        found += HouseTests.lines(of: file, with: ["try!", "fatalError(", " as! "], inCode: true)
      }
    }
    #expect(found == [])
  }

  @Test("Nothing is left to do in the sources, and no path of one machine stands in them")
  func nothingIsLeftOver() throws {
    var words = ["TO" + "DO", "FIX" + "ME"]
    words += ["work", "home", "root", "Users"].map { "/" + $0 + "/" }
    var found: [String] = []
    for part in ["Modules", "Plugins", "Products", "Tools", "Tests", "docs", ".ci"] {
      for file in try tree.files(under: part) { found += HouseTests.lines(of: file, with: words, inCode: false) }
    }
    for name in ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "Package.swift"] {
      let file = SourceTree.File(path: name, text: try tree.read(name))
      found += HouseTests.lines(of: file, with: words, inCode: false)
    }
    #expect(found == [])
  }

  @Test("The search for words finds them")
  func wordsAreFound() {
    let file = SourceTree.File(path: "F.swift", text: "let a = try! b()\n// try! in a comment\nlet c = d as! E\n")
    #expect(
      HouseTests.lines(of: file, with: ["try!", " as! "], inCode: true) == ["F.swift:1: try!", "F.swift:3:  as! "])
    #expect(HouseTests.lines(of: file, with: ["try!"], inCode: false) == ["F.swift:1: try!", "F.swift:2: try!"])
  }

  @Test("Tools/setup installs the package of every system library of Package.swift")
  func setupKnowsEveryLibrary() throws {
    let manifest = try tree.read("Package.swift")
    let named = manifest.components(separatedBy: "apt: \"").dropFirst().map { $0.components(separatedBy: "\"")[0] }
    let setup = try tree.read("Tools/setup")
    let list = try #require(
      setup.components(separatedBy: "packages=(").dropFirst().first?.components(separatedBy: ")")[0])
    let ofTraits = try #require(
      setup.components(separatedBy: "trait_packages=(").dropFirst().first?.components(separatedBy: ")")[0])
    #expect(named.count > 3)
    #expect(Set(named).subtracting((list + " " + ofTraits).components(separatedBy: " ")) == [])
  }

  /// Each line that holds one of `words`, as `path:line: word`.
  static func lines(of file: SourceTree.File, with words: [String], inCode: Bool) -> [String] {
    file.lines.enumerated().flatMap { number, line in
      let text = inCode ? SourceTree.code(line) : line
      return words.filter { text.contains($0) }.map { "\(file.path):\(number + 1): \($0)" }
    }
  }
}
