import SalvorModel
import SalvorWire

/// A row of which the server has something else than this device has as its base.
public struct RowDifference: Sendable, Hashable {
  /// Which side has the row.
  public enum Kind: String, Sendable, CaseIterable {
    /// The server alone has the row.
    case missing
    /// This device alone has the row, and has not made it: it was deleted on the server, or left the scope.
    case extra
    /// Both have it, with other values.
    case changed
  }

  /// The table's name.
  public var table: String
  /// The row's, in the order of `Table.primaryKey`.
  public var key: Key
  /// Seen from this device.
  public var kind: Kind
  /// The columns that differ; of a row that one side does not have all.
  public var columns: [String]
  /// The values of `columns` in this device's base; empty: it has no row.
  public var here: [NamedValue]
  /// Those in the server's row; empty: it has none.
  public var there: [NamedValue]
  /// Requests that wait, or are in error, change the row: it is told, and left as it is.
  public var isDirty: Bool

  /// All parts given.
  public init(
    table: String, key: Key, kind: Kind, columns: [String], here: [NamedValue], there: [NamedValue], isDirty: Bool
  ) {
    self.table = table
    self.key = key
    self.kind = kind
    self.columns = columns
    self.here = here
    self.there = there
    self.isDirty = isDirty
  }

  /// Compares a base with the server's row, both in the order of the columns; nil: they are the same.
  public init?(table: Table, key: Key, here: Row?, there: Row?, isDirty: Bool) {
    guard here != there else { return nil }
    let names = table.travelling.map(\.name)
    let places = names.indices.filter { here == nil || there == nil || here?[$0] != there?[$0] }
    func named(_ row: Row?) -> [NamedValue] {
      row.map { row in places.map { NamedValue(names[$0], row[$0]) } } ?? []
    }
    self.init(
      table: table.name, key: key, kind: here == nil ? .missing : there == nil ? .extra : .changed,
      columns: places.map { names[$0] }, here: named(here), there: named(there), isDirty: isDirty)
  }

  /// - Parameter values: whether values are in it, besides those of the key.
  public func json(values: Bool) -> JSONValue {
    var members: [JSONValue.Member] = [
      .init("table", .string(table)), .init("key", .array(key.map { JSONValue($0) })),
      .init("how", .string(kind.rawValue)),
      .init("columns", .array(columns.map(JSONValue.string))), .init("dirty", .bool(isDirty)),
    ]
    if values {
      func object(_ values: [NamedValue]) -> JSONValue {
        values.isEmpty ? .null : .object(values.map { JSONValue.Member($0.name, JSONValue($0.value)) })
      }
      members += [.init("here", object(here)), .init("there", object(there))]
    }
    return .object(members)
  }
}

/// What `RecoveringClientStore.examine` found.
public struct Examination: Sendable, Hashable {
  /// In the order of the schema's tables and of the keys.
  public var differences: [RowDifference]
  /// What was repaired; nil: nothing was, or nothing had to be.
  public var repair: RecoveryReport?
  /// After a repair: rows that differ all the same. They were left out, since a row that they reference did not come.
  public var leftOut: [RowDifference] = []
  /// Rows that were left out since they are larger than this device takes.
  public var notices: [String] = []

  /// By default nothing was repaired.
  public init(differences: [RowDifference], repair: RecoveryReport? = nil) {
    self.differences = differences
    self.repair = repair
  }
}
