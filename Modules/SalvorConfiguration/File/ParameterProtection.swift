import SalvorModel
import SalvorModuleKit
import SalvorTransport

extension HostConfiguration {
  /// Warnings of the sync parameters that scope a table and that someone may give any value, because no values of it
  /// are listed for them: a filter, not a protection (semantics 7). One for each parameter; none without a server.
  ///
  /// Asks the authentication module, which is made for it and may read its files; where it cannot be made there is
  /// nothing to warn of, and `servingProblems` says why. Principals are named, credentials never.
  public func protectionWarnings() -> [Diagnostic] {
    guard let server else { return [] }
    let scopes = schema.parameters.compactMap { parameter -> (parameter: String, tables: [String])? in
      let tables = schema.tables.filter { table in
        table.scopeColumns.contains { if case .parameter(parameter.name) = $0.source { true } else { false } }
      }
      return tables.isEmpty ? nil : (parameter.name, tables.map(\.name))
    }
    guard !scopes.isEmpty else { return [] }
    let name = server.authentication.descriptor.name
    guard let authentication = try? server.authentication.make() else { return [] }
    return scopes.compactMap { parameter, tables in
      let whom: String
      switch authentication.principals(withoutValuesOf: parameter) {
      case .named(let names) where names.isEmpty: return nil
      case .named(let names): whom = "for \(named(names, atMost: 8))"
      case .everybody: whom = "for anybody"
      }
      return Diagnostic(
        severity: .warning, file: schemaPlaces.file, line: schemaPlaces.line(["parameters", parameter]),
        path: schemaPlaces.path(["parameters", parameter]),
        message: "is the scope of \(named(tables)), but authentication \"\(name)\" lists no values of it \(whom): "
          + "without a list it is a filter, not a protection, and any value may be asked for and written")
    }
  }
}

/// `"a", "b" and 3 more`.
private func named(_ names: [String], atMost most: Int = .max) -> String {
  let shown = names.prefix(most).map { "\"\($0)\"" }.joined(separator: ", ")
  return names.count > most ? "\(shown) and \(names.count - most) more" : shown
}
