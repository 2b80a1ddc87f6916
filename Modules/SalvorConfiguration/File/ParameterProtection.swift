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

extension HostConfiguration {
  /// What is wrong with the values that the authentication lists: a parameter that the schema does not have locks its principals out, and a
  /// value that is none of the parameter's type shows them nothing. One for each parameter. None without a server.
  ///
  /// Asks the authentication module, as `protectionWarnings` does. No value stands in a message.
  public func listProblems() -> [Diagnostic] {
    guard let server, let principals = try? server.authentication.make().listedPrincipals else { return [] }
    let names = Set(principals.flatMap(\.parameters.keys)).sorted()
    return names.compactMap { name in
      let parameter = schema.parameters.first { $0.name == name }
      let wrong = principals.filter { principal in
        guard let values = principal.parameters[name] else { return false }
        return parameter.map { parameter in !values.allSatisfy { parameter.type.listed($0) != nil } } ?? true
      }
      guard !wrong.isEmpty else { return nil }
      let whom = named(Set(wrong.map(\.name)).sorted(), atMost: 8)
      let what: String
      if let parameter {
        what =
          "lists values of the parameter \"\(name)\" for \(whom) that are no \(parameter.type.rawValue): they show no row. Write them as the schema's type"
      } else {
        what =
          "lists values of the parameter \"\(name)\" for \(whom), and the schema has no such parameter: the server refuses their devices (forbidden)\(suggestion(name, among: schema.parameters.map(\.name)))"
      }
      return Diagnostic(file: file, line: server.authenticationLine, path: "server.authentication", message: what)
    }
  }
}

/// `"a", "b" and 3 more`.
private func named(_ names: [String], atMost most: Int = .max) -> String {
  let shown = names.prefix(most).map { "\"\($0)\"" }.joined(separator: ", ")
  return names.count > most ? "\(shown) and \(names.count - most) more" : shown
}
