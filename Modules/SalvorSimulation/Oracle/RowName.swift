import SalvorModel

/// A row of either side, by its table and its key as SQL shows it.
public struct RowName: Hashable, Sendable, Comparable, CustomStringConvertible {
  /// The table's name.
  public var table: String
  /// The values of the key as SQL literals, in the order of the key, with `, ` between them.
  public var key: String
  /// The table and the key, with a space between them.
  public var description: String { "\(table) \(key)" }
  /// By the table's name first, then by the key's text.
  public static func < (a: RowName, b: RowName) -> Bool { (a.table, a.key) < (b.table, b.key) }
}

/// The rows of one side: what a plain SELECT shows.
typealias Contents = [RowName: [Value]]
