import SalvorModel
import SalvorModuleKit

/// Reads a table's `scope`: an object, all of which must hold, or a list of them, of which one must. What needs other
/// tables, or the columns, is `SchemaCheck`'s.
enum ScopeDecoder {
  static func decode(_ reader: inout OptionReader) -> (all: [ScopeColumn], any: [[ScopeColumn]]) {
    guard let value = reader.value("scope") else { return ([], []) }
    guard case .array(let items) = value.content else {
      guard case .object = value.content, var list = reader.object("scope") else {
        reader.report("scope", "must be an object { … } or a list of them, found \(value.kindName)")
        return ([], [])
      }
      let scope = columns(&list)
      reader.finish(child: list)
      return (scope, [])
    }
    if items.isEmpty { reader.report("scope", "has no alternative; without a scope the rows are everyone's") }
    var alternatives: [[ScopeColumn]] = []
    for (index, item) in items.enumerated() {
      let path = reader.join("scope") + "[\(index)]"
      var list = OptionReader(item, file: reader.file, path: path)
      if item.content == .object([]) {
        reader.report(path: path, line: item.line, "names no column: by it the rows are everyone's")
      }
      alternatives.append(columns(&list))
      reader.finish(child: list)
    }
    return ([], alternatives)
  }

  private static func columns(_ list: inout OptionReader) -> [ScopeColumn] {
    var scope: [ScopeColumn] = []
    for column in list.names() {
      if let source = source(column, &list) { scope.append(ScopeColumn(column: column, source: source)) }
    }
    return scope
  }

  private static func source(_ column: String, _ list: inout OptionReader) -> ScopeSource? {
    guard let value = list.value(column) else { return nil }
    if case .object = value.content { return fixed(column, &list) }
    guard let text = list.string(column) else { return nil }
    if text == "principal" { return .principal }
    if text.hasPrefix("parameter:") { return .parameter(String(text.dropFirst("parameter:".count))) }
    if text.hasPrefix("via:") {
      let names = text.dropFirst("via:".count)
      guard let dot = names.lastIndex(of: "."), dot != names.startIndex, names.index(after: dot) != names.endIndex
      else {
        list.report(column, "is \"\(text)\"; name a table and its column: via:TABLE.COLUMN")
        return nil
      }
      return .via(table: String(names[..<dot]), column: String(names[names.index(after: dot)...]))
    }
    let near = text == "inherit" ? "; a scope is inherited under references: { table: …, scope: \"inherit\" }" : ""
    list.report(
      column,
      "is \"\(text)\"; allowed: principal, parameter:NAME, via:TABLE.COLUMN, { value: … }\(near)"
        + suggestion(text, among: ["principal"]))
    return nil
  }

  /// `{ value: 1 }`
  private static func fixed(_ column: String, _ list: inout OptionReader) -> ScopeSource? {
    guard var entry = list.object(column) else { return nil }
    defer { list.finish(child: entry) }
    switch entry.value("value")?.content {
    case .integer(let integer): return .value(.integer(integer))
    case .number(let number): return .value(.real(number))
    case .bool(let bool): return .value(.integer(bool ? 1 : 0))
    case .string(let text): return .value(.text(Array(text.utf8)))
    case nil: entry.report("value", "is missing; give the value that the column must have")
    case .null, .array, .object: entry.report("value", "must be a number, a text, true or false")
    }
    return nil
  }
}
