import Foundation

/// The files of this repository, found from this file's own place.
struct SourceTree: Sendable {
  struct File: Sendable {
    /// Relative to the root.
    var path: String
    var text: String
    var lines: [Substring] { text.split(separator: "\n", omittingEmptySubsequences: false) }
  }

  let root: URL

  init() {
    root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
  }

  func folders(in folder: String) throws -> [String] {
    let url = root.appendingPathComponent(folder)
    return try FileManager.default.contentsOfDirectory(at: url, includingPropertiesForKeys: [.isDirectoryKey])
      .filter { try $0.resourceValues(forKeys: [.isDirectoryKey]).isDirectory == true }
      .map(\.lastPathComponent).sorted()
  }

  func exists(_ path: String) -> Bool {
    FileManager.default.fileExists(atPath: root.appendingPathComponent(path).path)
  }

  func read(_ path: String) throws -> String {
    try String(contentsOf: root.appendingPathComponent(path), encoding: .utf8)
  }

  /// Every text file under `folder` whose name ends in one of `extensions`; nil: every file that is text.
  func files(under folder: String, extensions: Set<String>? = nil) throws -> [File] {
    let base = root.appendingPathComponent(folder)
    guard let names = FileManager.default.enumerator(atPath: base.path) else { return [] }
    var files: [File] = []
    for case let name as String in names {
      let url = base.appendingPathComponent(name)
      if let extensions, !extensions.contains(url.pathExtension) { continue }
      guard try url.resourceValues(forKeys: [.isRegularFileKey]).isRegularFile == true,
        let text = try? String(contentsOf: url, encoding: .utf8)
      else { continue }
      files.append(File(path: folder + "/" + name, text: text))
    }
    return files.sorted { $0.path < $1.path }
  }

  /// The code of a line: without its comment. Good enough for the words looked for here, which stand in no string.
  static func code(_ line: Substring) -> Substring {
    line.firstRange(of: "//").map { line[..<$0.lowerBound] } ?? line
  }

  /// The modules that a Swift text imports, with the numbers of the lines.
  static func imports(_ text: String) -> [(module: String, line: Int)] {
    text.split(separator: "\n", omittingEmptySubsequences: false).enumerated().compactMap { number, line in
      var words = code(line).split(separator: " ").map(String.init)
      while let first = words.first, first.hasPrefix("@") || accessLevels.contains(first) { words.removeFirst() }
      guard words.first == "import", words.count > 1 else { return nil }
      words.removeFirst()
      if words.count > 1, importKinds.contains(words[0]) { words.removeFirst() }
      return (String(words[0].split(separator: ".")[0]), number + 1)
    }
  }

  private static let accessLevels: Set<String> = ["public", "package", "internal", "fileprivate", "private"]
  private static let importKinds: Set<String> = [
    "struct", "class", "enum", "protocol", "typealias", "func", "let", "var",
  ]
}
