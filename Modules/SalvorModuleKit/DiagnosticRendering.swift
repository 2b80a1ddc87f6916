/// Diagnostics as text for people, one a line: `FILE:LINE:COLUMN: warning: KEY.PATH: message`. Parts that are not known
/// are left out. Control characters of names in the file are shown as escapes: a terminal must not act on them.
public func render(_ diagnostics: [Diagnostic]) -> String {
  diagnostics.map(render).joined(separator: "\n")
}

private func render(_ diagnostic: Diagnostic) -> String {
  var text = diagnostic.file
  if diagnostic.line > 0 {
    text += ":\(diagnostic.line)"
    if diagnostic.column > 0 { text += ":\(diagnostic.column)" }
  }
  text += ": "
  if diagnostic.severity == .warning { text += "warning: " }
  if !diagnostic.path.isEmpty { text += diagnostic.path + ": " }
  return visible(text + diagnostic.message)
}

/// `text` with control and format characters as escapes, `\u{1B}`: for names and values that a terminal must show and not
/// act on. Line ends are among them.
public func visible(_ text: String) -> String {
  var out = String.UnicodeScalarView()
  for scalar in text.unicodeScalars {
    switch scalar.properties.generalCategory {
    case .control, .format, .lineSeparator, .paragraphSeparator:
      out.append(contentsOf: "\\u{\(String(scalar.value, radix: 16, uppercase: true))}".unicodeScalars)
    default: out.append(scalar)
    }
  }
  return String(out)
}

extension Sequence<Diagnostic> {
  /// Those that make the configuration unusable, in their order.
  public var errors: [Diagnostic] { filter { $0.severity == .error } }
  /// Those that it can be used with, in their order.
  public var warnings: [Diagnostic] { filter { $0.severity == .warning } }

  /// By place: the files in the order in which they appear first, then line and column; stable otherwise.
  public func inOrderOfPlace() -> [Diagnostic] {
    var files: [String] = []
    for diagnostic in self where !files.contains(diagnostic.file) { files.append(diagnostic.file) }
    return enumerated().sorted { a, b in
      let placeA = (files.firstIndex(of: a.element.file) ?? 0, a.element.line, a.element.column, a.offset)
      let placeB = (files.firstIndex(of: b.element.file) ?? 0, b.element.line, b.element.column, b.offset)
      return placeA < placeB
    }.map(\.element)
  }
}
