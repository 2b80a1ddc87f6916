import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The flag columns by which tables are captured. A schema file of the application's may have brought them before its server had them: when that
/// file is withdrawn, nothing else tells that rows are marked.
enum KeptFlags {
  /// In the transaction that brought the tables in line.
  static func note(_ schema: Schema, on connection: SQLiteConnection) throws {
    let flagged = schema.synchronized.filter { $0.flags.dirty != nil || $0.flags.deleted != nil }
    let members = flagged.map { table in
      JSONValue.Member(
        table.name, .array([table.flags.dirty, table.flags.deleted].map { $0.map(JSONValue.string) ?? .null }))
    }
    let text = flagged.isEmpty ? nil : JSONValue.object(members).text
    if try connection.text(.flags) != text { try connection.setState(.flags, text) }
  }

  /// The definitions with the flag columns that their tables have been captured by, and still have.
  static func adding(to definitions: [Table], on connection: SQLiteConnection) throws -> [Table] {
    guard let known = try connection.text(.flags).map({ try JSONValue(parsing: Array($0.utf8)) }) else {
      return definitions
    }
    return try definitions.map { definition in
      guard definition.flags == FlagColumns(), let names = known[definition.name]?.array?.map(\.string),
        names.count == 2, let shape = try connection.tableShape(definition.name)
      else { return definition }
      var table = definition
      let there = names.map { name in name.flatMap { shape.column($0) == nil ? nil : $0 } }
      table.flags = FlagColumns(dirty: there[0], deleted: there[1])
      let named = Set(table.columns.map(\.name.folded))
      table.columns += there.compactMap(\.self).filter { !named.contains($0.folded) }.map { Column($0, .boolean) }
      return table
    }
  }
}
