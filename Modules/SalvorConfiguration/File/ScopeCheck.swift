import SalvorModel
import SalvorModuleKit

/// References and scopes (semantics 7): who may see a row also gets every row that it needs.
extension SchemaCheck {
  mutating func checkReferences(_ table: Table) {
    for reference in table.references {
      let keys = place(table, "references", reference.column)
      let column = column(reference.column, of: table, namedAt: keys)
      if let column {
        if isFlag(column.name, of: table) { report(keys, "is a flag column, which never travels") }
        if reference.onDelete == .setNull, !column.nullable || table.primaryKey.contains(column.name) {
          report(
            keys, "has onDelete: \"set null\", but the column is not nullable; make it \"\(column.type.rawValue)?\"")
        }
      }
      guard let parent = schema.table(reference.table) else {
        if !source.has(["tables", reference.table]) {
          let names = schema.tables.map(\.name)
          report(
            keys,
            "names the table \"\(reference.table)\", which is not in the schema\(suggestion(reference.table, among: names))"
          )
        }
        continue
      }
      checkTarget(keys, reference, column, parent)
      if table.maintained == .client {
        if reference.inheritsScope { report(keys, "inherits a scope, but a client-only table never travels") }
        continue
      }
      if parent.maintained == .client {
        report(
          keys,
          "refers to \"\(parent.name)\", which is client-only: the server does not have the row. Make it dual or "
            + "server-maintained, or this table client-only")
        continue
      }
      checkVisibility(keys, reference, of: table, column, parent)
    }
  }

  /// A foreign key needs a single key column of the same type.
  private mutating func checkTarget(_ keys: [String], _ reference: Reference, _ column: Column?, _ parent: Table) {
    guard parent.primaryKey.count <= 1 else {
      report(
        keys,
        "refers to \"\(parent.name)\", whose primary key has \(parent.primaryKey.count) columns; "
          + "only a key of one column can be referenced")
      return
    }
    guard let column, let name = parent.primaryKey.first, let index = parent.columnIndex(name) else { return }
    let key = parent.columns[index]
    if key.type != column.type {
      report(
        keys, "is \(column.type.rawValue), but the key \"\(key.name)\" of \"\(parent.name)\" is \(key.type.rawValue)")
    }
  }

  /// The parent of every row that a principal sees must be seen as well, or have no foreign key on the device.
  private mutating func checkVisibility(
    _ keys: [String], _ reference: Reference, of table: Table, _ column: Column?, _ parent: Table
  ) {
    guard reference.inheritsScope else {
      if !reference.soft, hasScope(parent), !brings(reference, of: table, parent) {
        report(
          keys,
          "refers to \"\(parent.name)\", whose scope this row need not be in: whoever gets the row might not get "
            + "the one it needs. Say scope: \"inherit\", or soft: true (no foreign key on the device)")
      }
      return
    }
    if !hasScope(parent) {
      report(keys, "inherits the scope of \"\(parent.name)\", which has none; leave scope out")
    } else if column?.nullable == true {
      warn(keys, "inherits a scope through a nullable column: rows where it is NULL are in nobody's scope")
    }
  }

  /// One of the ways into the parent's scope is this very reference: whoever sees the row sees its parent because of it.
  private func brings(_ reference: Reference, of table: Table, _ parent: Table) -> Bool {
    let ways =
      parent.scopeAlternatives.isEmpty ? [parent.scope] : parent.scopeAlternatives.map { parent.scope + $0 }
    return !parent.references.contains(where: \.inheritsScope)
      && ways.contains { way in
        way.count == 1 && way[0].column == parent.primaryKey.first
          && way[0].source == .via(table: table.name, column: reference.column)
      }
  }

  /// Own scope columns, or a scope inherited from anywhere; a circle back to the table counts, it is reported as one.
  private func hasScope(_ table: Table) -> Bool {
    var seen: Set<String> = []
    var open = [table]
    while let next = open.popLast() {
      guard seen.insert(next.name).inserted else {
        if next.name == table.name { return true }
        continue
      }
      if let scope = source.value(place(next, "scope")), scope.content != .object([]) { return true }
      for reference in next.references where reference.inheritsScope {
        guard let parent = schema.table(reference.table) else { return true }
        open.append(parent)
      }
    }
    return false
  }

  mutating func checkScope(_ table: Table) {
    if table.maintained == .client {
      if source.has(place(table, "scope")) { report(place(table, "scope"), "a client-only table never travels") }
      return
    }
    if source.value(place(table, "scope"))?.content == .object([]) {
      report(place(table, "scope"), "names no column; without a scope the rows are everyone's")
    }
    let ways = schema.scopeWays(of: table)
    if ways > Schema.scopeWaysMax {
      report(
        place(table, "scope"),
        "lets a row be seen by \(ways >= 1 << 20 ? "very many" : "\(ways)") ways, at most \(Schema.scopeWaysMax): the "
          + "alternatives of the tables that it goes through multiply. Give fewer of them, or none to the tables in between"
      )
    }
    for scope in table.scopeColumns {
      let keys = place(of: scope, in: table)
      guard let column = column(scope.column, of: table, namedAt: keys) else { continue }
      if isFlag(column.name, of: table) { report(keys, "is a flag column, which never travels") }
      switch scope.source {
      case .principal:
        if column.type != .text { report(keys, "is compared with the principal, which is text, but is \(column.type)") }
      case .parameter(let name): checkParameter(keys, column, name)
      case .value(let value):
        if !column.type.stores(value) {
          report(keys, "is \(column.type), which does not store the value \(value)")
        }
      case .via(let name, let target): checkVia(keys, column, name, target)
      }
    }
  }

  /// A table that a scope goes through decides who sees what: it is the server's, unless the schema says otherwise in so
  /// many words (semantics 7).
  mutating func checkMembership(_ table: Table) {
    let shown = schema.tables.filter { $0.name != table.name }.flatMap { other in
      other.scopeColumns.compactMap { scope in
        if case .via(table.name, _) = scope.source { "\(other.name).\(scope.column)" } else { nil }
      }
    }
    let saysDevices = source.value(place(table, "membership"))?.content == .string("devices")
    if source.has(place(table, "membership")), shown.isEmpty {
      warn(place(table, "membership"), "has no effect: no scope goes via \(table.name)")
    } else if saysDevices, table.maintained != .dual {
      warn(place(table, "membership"), "has no effect: devices do not write \(table.name)")
    } else if !shown.isEmpty, table.maintained == .dual, !saysDevices {
      report(
        source.has(place(table, "maintained")) ? place(table, "maintained") : ["tables", table.name],
        "decides who sees rows (the scope of \(list(shown)) goes via it), and devices write it. Say maintained: "
          + "\"server\"; or membership: \"devices\", if devices are meant to let others in")
    }
  }

  /// In a list of alternatives there is no key path to the column; the list's is given, and the message names the column.
  private func place(of scope: ScopeColumn, in table: Table) -> [String] {
    table.scopeAlternatives.isEmpty ? place(table, "scope", scope.column) : place(table, "scope")
  }

  private mutating func checkParameter(_ keys: [String], _ column: Column, _ name: String) {
    guard let parameter = schema.parameters.first(where: { $0.name == name }) else {
      if source.has(["parameters", name]) { return }
      let names = schema.parameters.map(\.name)
      report(
        keys,
        "names the parameter \"\(name)\"; declared under parameters: \(list(names))\(suggestion(name, among: names))"
      )
      return
    }
    if parameter.type != column.type {
      report(keys, "is \(column.type), but the parameter \"\(name)\" is \(parameter.type)")
    }
  }

  /// The server looks the values up in its own rows.
  private mutating func checkVia(_ keys: [String], _ column: Column, _ name: String, _ target: String) {
    guard let joined = schema.table(name) else {
      if source.has(["tables", name]) { return }
      let names = schema.tables.map(\.name)
      report(keys, "goes via the table \"\(name)\", which is not in the schema\(suggestion(name, among: names))")
      return
    }
    if joined.maintained == .client {
      report(keys, "goes via \"\(name)\", which is client-only: the server does not have its rows")
      return
    }
    guard let index = joined.columnIndex(target) else {
      let names = joined.columns.map(\.name)
      if !source.has(place(joined, "columns", target)) {
        report(
          keys, "goes via the column \"\(target)\", which \"\(name)\" does not have\(suggestion(target, among: names))")
      }
      return
    }
    let other = joined.columns[index]
    if isFlag(target, of: joined) { report(keys, "goes via \"\(name).\(target)\", a flag column, which never travels") }
    if other.type != column.type { report(keys, "is \(column.type), but \"\(name).\(target)\" is \(other.type)") }
    if !hasScope(joined) {
      warn(keys, "goes via \"\(name)\", which has no scope: whatever row of it names a value shows it to everyone")
    }
  }

  /// Every circle of scopes that ask for each other, once, at the first of its tables in the file.
  mutating func checkInheritance() {
    var done: Set<String> = []
    for table in schema.tables { follow(table, path: [], &done) }
  }

  private mutating func follow(_ table: Table, path: [String], _ done: inout Set<String>) {
    guard !done.contains(table.name) else { return }
    let path = path + [table.name]
    for reference in table.references where reference.inheritsScope {
      if let circle = circle(to: reference.table, path) {
        report(place(table, "references", reference.column), "inherits its scope in a circle: \(circle)")
      } else if let parent = schema.table(reference.table) {
        follow(parent, path: path, &done)
      }
    }
    for scope in table.scopeColumns {
      guard case .via(let name, _) = scope.source else { continue }
      if let circle = circle(to: name, path) {
        report(place(of: scope, in: table), "has its scope in a circle: \(circle)")
      } else if let joined = schema.table(name) {
        follow(joined, path: path, &done)
      }
    }
    done.insert(table.name)
  }

  private func circle(to name: String, _ path: [String]) -> String? {
    path.firstIndex(of: name).map { (path[$0...] + [name]).joined(separator: " → ") }
  }
}
