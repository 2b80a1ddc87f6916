import Testing

/// Files of one target that name one another's types in a circle: none of them can be understood, or changed, without all.
struct FileCircles {
  private let names: [String]
  /// By file: the files whose types it names.
  private let uses: [[Int]]

  /// - Parameter files: of one target.
  init(_ files: [SourceTree.File]) {
    names = files.map(\.path)
    var declared: [String: Int] = [:]
    for (place, file) in files.enumerated() {
      for line in file.lines { if let name = Layers.declared(line) { declared[name] = place } }
    }
    uses = files.enumerated().map { place, file in
      var found: Set<Int> = []
      for line in Self.code(file.text) {
        for word in line.split(whereSeparator: { !$0.isLetter && !$0.isNumber && $0 != "_" }) {
          if let other = declared[String(word)], other != place { found.insert(other) }
        }
      }
      return found.sorted()
    }
  }

  /// The lines without comments and texts.
  private static func code(_ text: String) -> [Substring] {
    var isText = false
    return text.split(separator: "\n").compactMap { line in
      let marks = line.ranges(of: "\"\"\"").count
      defer { if marks % 2 == 1 { isText.toggle() } }
      return isText || marks > 0 ? nil : SourceTree.code(line)
    }
  }

  /// Each with its files in order; the largest first.
  var circles: [[String]] {
    let reached = uses.indices.map { reach(from: $0) }
    var found: Set<[String]> = []
    for file in uses.indices where reached[file].contains(file) {
      found.insert(reached[file].filter { reached[$0].contains(file) }.map { names[$0] }.sorted())
    }
    return found.sorted { ($1.count, $0[0]) < ($0.count, $1[0]) }
  }

  private func reach(from start: Int) -> Set<Int> {
    var found: Set<Int> = []
    var waiting = [start]
    while let next = waiting.popLast() {
      for other in uses[next] where found.insert(other).inserted { waiting.append(other) }
    }
    return found
  }
}

@Suite("Files name each other's types one way") struct CircleTests {
  @Test("No target has a circle of files")
  func circles() throws {
    let tree = SourceTree()
    for part in ["Modules", "Plugins"] {
      for target in try tree.folders(in: part) {
        let folder = "\(part)/\(target)"
        let circles = try FileCircles(tree.files(under: folder, extensions: ["swift"])).circles
        #expect(circles == [], "\(folder)")
      }
    }
  }

  @Test("A circle is found, and what only looks like one is none")
  func planted() {
    func file(_ path: String, _ text: String) -> SourceTree.File { SourceTree.File(path: path, text: text) }
    let files = [
      file("A.swift", "struct A {\n  var b: B\n}"), file("B.swift", "final class B {\n  let c: C?\n}"),
      file("C.swift", "extension A {}\nenum C {}"),
      file("D.swift", "struct D {\n  var e: E\n}"),
      file("E.swift", "struct E {}\n// D\nlet text = \"\"\"\n  D\n  \"\"\""),
    ]
    #expect(FileCircles(files).circles == [["A.swift", "B.swift", "C.swift"]])
  }
}
