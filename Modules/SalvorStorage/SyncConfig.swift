import SalvorModel
import SalvorWire

/// What is synchronized and how, as data: rows that the server delivers and the remote database keeps in
/// `salvor_sync_config` (semantics 4). A new table needs no new client.
public struct SyncConfig: Sendable, Hashable {
  /// The version of the server's schema. Where an application's own is higher, its additions are taken over
  /// (`schema(own:added:)`).
  public var schemaVersion: Int64
  /// The groups that tables are synchronized in.
  public var groups: [Schema.Group] { didSet { known = KnownDigest() } }
  /// The parameters that scopes name, with their types.
  public var parameters: [Schema.Parameter]
  /// The synchronized tables, in the order in which rows are inserted (parents first); rows are deleted in the reverse
  /// order.
  public var entries: [Entry] { didSet { known = KnownDigest() } }
  /// Tables that are gone on purpose (`Schema.dropped`).
  public var dropped: [String] { didSet { known = KnownDigest() } }
  private var known = KnownDigest()

  /// One synchronized table, and how its rows travel.
  public struct Entry: Sendable, Hashable {
    /// The table as the schema has it.
    public var table: Table
    /// The payload's path of the download and of the upload (nil: never uploaded).
    public var fetchPath: String
    /// Nil: the table is never uploaded.
    public var uploadPath: String?
    /// The table's name in the payload; nil where the server gave none.
    public var parameterName: String?
    /// The rows with changes that are not settled, as one JSON array of objects (a blob in hexadecimal). Salvor uploads what
    /// was captured; this is for whoever wants to see it by any SQLite library. Nil: the table is never uploaded.
    public var dirtyQuery: String?
    /// The primary keys of all rows, as one JSON array: of values, or of arrays where the key has several columns.
    public var keyQuery: String
    /// One statement each with the travelling columns, or the key, as parameters ?1 …; it may touch only its own table.
    public var upsertStatement: String
    /// Deletes the row with the key ?1 …
    public var deleteStatement: String
    /// The table's place in a download, from 0: parents before children. The four places are for whoever reads
    /// `salvor_sync_config`; Salvor itself goes by the order of `entries`, and sends requests in the device's order.
    public var fetchOrder: Int64
    /// The table's place in an upload, from 0: parents before children.
    public var uploadOrder: Int64
    /// The table's place where rows are written, from 0: parents before children.
    public var upsertOrder: Int64
    /// The table's place where rows are deleted, from 0: children before parents.
    public var deleteOrder: Int64
  }

  /// The configuration that a schema gives.
  public init(_ schema: Schema) {
    schemaVersion = schema.version
    groups = schema.groups
    parameters = schema.parameters
    dropped = schema.dropped
    let ordered = schema.parentsFirst(schema.synchronized)
    entries = ordered.enumerated().map { place, table in
      let columns = table.travelling.map { quoted($0.name) }
      let keys = table.primaryKey.map(quoted)
      let others = table.travelling.map(\.name).filter { !table.primaryKey.contains($0) }.map(quoted)
      let slots = (1...max(1, columns.count)).map { "?\($0)" }.joined(separator: ", ")
      let action =
        others.isEmpty
        ? "NOTHING" : "UPDATE SET " + others.map { "\($0) = excluded.\($0)" }.joined(separator: ", ")
      return Entry(
        table: table, fetchPath: "/v1/sync", uploadPath: table.maintained == .dual ? "/v1/sync" : nil,
        parameterName: table.name, dirtyQuery: table.maintained == .dual ? Self.dirtyQuery(table) : nil,
        keyQuery: Self.keyQuery(table),
        upsertStatement:
          "INSERT INTO \(upsertTarget(table.name)) (\(columns.joined(separator: ", "))) VALUES (\(slots)) "
          + "ON CONFLICT (\(keys.joined(separator: ", "))) DO \(action)",
        deleteStatement: "DELETE FROM \(quoted(table.name)) WHERE "
          + keys.enumerated().map { "\($1) = ?\($0 + 1)" }.joined(separator: " AND "),
        fetchOrder: Int64(place), uploadOrder: Int64(place), upsertOrder: Int64(place),
        deleteOrder: Int64(ordered.count - 1 - place))
    }
  }

  private static func keyQuery(_ table: Table) -> String {
    let keys = table.primaryKey.compactMap { name in table.columns.first { $0.name == name } }.map { json($0) }
    let key = keys.count == 1 ? keys[0] : "json_array(\(keys.joined(separator: ", ")))"
    return "SELECT json_group_array(\(key)) FROM \(quoted(table.name)) x"
  }

  private static func dirtyQuery(_ table: Table) -> String {
    let keys = table.primaryKey.map { "x.\(quoted($0))" }
    let key = keys.count == 1 ? keys[0] : keys.map { "quote(\($0))" }.joined(separator: " || ', ' || ")
    // Not json_object: a function has a limit on its arguments, as a compound on its terms, and a table may have more columns.
    let members = table.columns.map { "SELECT \(literal($0.name)) AS n, \(json($0)) AS v" }
    let parts = stride(from: 0, to: members.count, by: 200).map { first in
      "SELECT n, v FROM (\(members[first..<min(first + 200, members.count)].joined(separator: " UNION ALL ")))"
    }
    let row = "SELECT json_group_object(n, v) FROM (\(parts.joined(separator: " UNION ALL ")))"
    return "SELECT json_group_array(json((\(row)))) "
      + "FROM \(quoted(table.name)) x WHERE \(key) IN "
      + "(SELECT s.\"key\" FROM salvor_row_state s WHERE s.\"table\" = \(literal(table.name)) AND s.dirty)"
  }

  /// JSON has no blobs, and no infinite numbers.
  private static func json(_ column: Column) -> String {
    let name = "x.\(quoted(column.name))"
    if column.type == .real { return "CASE \(name) WHEN 9e999 THEN 'inf' WHEN -9e999 THEN '-inf' ELSE \(name) END" }
    // hex makes an empty text of NULL.
    return column.type == .blob ? "CASE WHEN \(name) IS NOT NULL THEN hex(\(name)) END" : name
  }

  private static func literal(_ text: String) -> String {
    "'" + text.split(separator: "'", omittingEmptySubsequences: false).joined(separator: "''") + "'"
  }

  /// Equal exactly where the synchronized part of two schemas is equal (the schema's version aside): the tables, and the
  /// groups of whose changes the server tells.
  public var digest: String { known.text { makeDigest() } }

  private func makeDigest() -> String {
    var parts = entries.map { TableDefinition.json($0.table) }
    let telling = groups.filter(\.serverInitiated).map(\.name).sorted()
    if !telling.isEmpty { parts.append(["serverInitiated": .array(telling.map(JSONValue.string))]) }
    if !dropped.isEmpty { parts.append(["dropped": .array(dropped.map(JSONValue.string))]) }
    return SalvorStorage.digest(JSONValue.array(parts).bytes)
  }

  /// As the server sends it in an answer; `init(_ json:)` reads it back.
  public var json: JSONValue {
    [
      "schemaVersion": .integer(schemaVersion),
      "groups": .array(groups.map { ["name": .string($0.name), "serverInitiated": .bool($0.serverInitiated)] }),
      "parameters": .array(parameters.map { ["name": .string($0.name), "type": .string($0.type.rawValue)] }),
      "dropped": .array(dropped.map(JSONValue.string)),
      "tables": .array(
        entries.map { entry in
          [
            "definition": TableDefinition.json(entry.table),
            "fetchPath": .string(entry.fetchPath),
            "uploadPath": entry.uploadPath.map(JSONValue.string) ?? .null,
            "parameterName": entry.parameterName.map(JSONValue.string) ?? .null,
            "dirtyQuery": entry.dirtyQuery.map(JSONValue.string) ?? .null,
            "keyQuery": .string(entry.keyQuery),
            "upsertStatement": .string(entry.upsertStatement),
            "deleteStatement": .string(entry.deleteStatement),
            "fetchOrder": .integer(entry.fetchOrder),
            "uploadOrder": .integer(entry.uploadOrder),
            "upsertOrder": .integer(entry.upsertOrder),
            "deleteOrder": .integer(entry.deleteOrder),
          ]
        }),
    ]
  }

  /// Reads what a server sent. Throws `malformed` where a member is missing or cannot be. `dirtyQuery` and `keyQuery`
  /// are made from the table, whatever the server says of them.
  public init(_ json: JSONValue) throws(SalvorError) {
    schemaVersion = try json.integer("schemaVersion")
    groups = []
    for group in try json.array("groups") {
      groups.append(Schema.Group(name: try group.string("name"), serverInitiated: try group.bool("serverInitiated")))
    }
    parameters = []
    for parameter in try json.array("parameters") {
      guard let type = ColumnType(rawValue: try parameter.string("type")) else {
        throw SalvorError(.malformed, "A parameter of the SyncConfig has an unknown type.")
      }
      parameters.append(Schema.Parameter(name: try parameter.string("name"), type: type))
    }
    dropped = []
    for name in try json.optionalArray("dropped") ?? [] {
      guard let name = name.string else { throw SalvorError(.malformed, "A dropped table has no name.") }
      dropped.append(name)
    }
    entries = []
    for entry in try json.array("tables") {
      guard let definition = entry["definition"] else {
        throw SalvorError(.malformed, "A table of the SyncConfig has no definition.")
      }
      let table = try TableDefinition.table(definition)
      entries.append(
        Entry(
          table: table, fetchPath: try entry.string("fetchPath"),
          uploadPath: try entry.optionalString("uploadPath"),
          parameterName: try entry.optionalString("parameterName"),
          // Both follow from the table: another side's SQL is not what an application runs.
          dirtyQuery: table.maintained == .dual ? Self.dirtyQuery(table) : nil, keyQuery: Self.keyQuery(table),
          upsertStatement: try entry.string("upsertStatement"), deleteStatement: try entry.string("deleteStatement"),
          fetchOrder: try entry.integer("fetchOrder"), uploadOrder: try entry.integer("uploadOrder"),
          upsertOrder: try entry.integer("upsertOrder"), deleteOrder: try entry.integer("deleteOrder")))
    }
  }
}

extension Schema {
  /// `tables` with every table after those it references; tables of a cycle in their own order.
  public func parentsFirst(_ tables: [Table]) -> [Table] {
    var out: [Table] = []
    var visiting: Set<String> = []
    func visit(_ table: Table) {
      guard visiting.insert(table.name).inserted else { return }
      for reference in table.references {
        if let parent = tables.first(where: { $0.name == reference.table }) { visit(parent) }
      }
      out.append(table)
    }
    for table in tables { visit(table) }
    return out
  }
}

extension Schema {
  /// The place of each table, by name, among those that rows are deleted from: one comes before those that it references.
  public var deleteOrder: [String: Int] {
    Dictionary(uniqueKeysWithValues: parentsFirst(tables).reversed().enumerated().map { ($1.name, $0) })
  }
}

/// A 128-bit fingerprint (FNV-1a) of texts that both sides make alike. It tells versions apart; it protects nothing.
public func digest(_ bytes: [UInt8]) -> String {
  var high: UInt64 = 0x6C62_272E_07BB_0142
  var low: UInt64 = 0x62B8_2175_6295_C58D
  for byte in bytes {
    low ^= UInt64(byte)
    // Times the 128-bit FNV prime 2^88 + 0x13B.
    let (carry, product) = low.multipliedFullWidth(by: 0x13B)
    high = high &* 0x13B &+ carry &+ (low << 24)
    low = product
  }
  return hexadecimal((0..<8).map { UInt8(truncatingIfNeeded: high >> (56 - 8 * $0)) })
    + hexadecimal((0..<8).map { UInt8(truncatingIfNeeded: low >> (56 - 8 * $0)) })
}

/// An SQL identifier between double quotes, whatever it holds. Byte by byte: a quote that a combining mark follows is a
/// quote to SQL, but not one `Character`.
public func quoted(_ identifier: String) -> String {
  var bytes: [UInt8] = [0x22]
  bytes.reserveCapacity(identifier.utf8.count + 2)
  for byte in identifier.utf8 {
    bytes.append(byte)
    if byte == 0x22 { bytes.append(byte) }
  }
  bytes.append(0x22)
  return String(decoding: bytes, as: UTF8.self)
}

/// A table as the target of an `INSERT` with `ON CONFLICT`. One of the name `excluded` has another one there: `excluded.x` would be the row as it is.
public func upsertTarget(_ table: String) -> String {
  quoted(table) + (table.lowercased() == "excluded" ? " AS salvor_row" : "")
}

/// The digest of a configuration, once it was asked for: each begin asks, and it is made of every table.
private struct KnownDigest: Sendable, Hashable {
  private final class Box: Sendable {
    let text = Mutex<String?>(nil)
  }

  private let box = Box()

  func text(_ make: () -> String) -> String {
    if let known = box.text.withLock({ $0 }) { return known }
    let made = make()
    box.text.withLock { $0 = made }
    return made
  }

  /// It follows from the rest.
  static func == (a: KnownDigest, b: KnownDigest) -> Bool { true }
  func hash(into hasher: inout Hasher) {}
}
