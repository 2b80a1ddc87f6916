import SalvorModel
import SalvorStorage
import SalvorWire

/// What SQL says otherwise from one database to the next. The statements of the server stores are written once, in what
/// SQLite and PostgreSQL both take, and ask here for the rest.
///
/// Conditions are `TRUE` and `FALSE`, never numbers. Parameters are `?` and `?1`, `?2`, …; a connection whose database wants
/// others renumbers them.
package protocol Dialect: Sendable {
  /// Two expressions are the same, byte for byte, whatever their collations; NULL is the same as NULL.
  func isSame(_ left: String, _ right: String) -> String
  /// They are not.
  func differs(_ left: String, _ right: String) -> String
  /// An expression that compares and sorts by its bytes.
  func bytewise(_ expression: String) -> String
  /// An expression that sorts by its bytes; of a column that does not by itself.
  func byteOrdered(_ expression: String) -> String
  /// A value of a real column as the change log holds it; `type`: the column's (`ServerTable.types`).
  func logged(_ expression: String, _ type: String) -> String
  /// A value of the change log as a real column of this type compares it.
  func unlogged(_ expression: String, _ type: String) -> String
  /// The same, read by a statement that does not say it in its text.
  func unlogged(_ value: Value, _ type: String) -> Value
  /// A parameter whose type the statement does not tell by itself.
  func parameter(_ slot: String, _ type: String) -> String
  /// A value that somebody's scope asks for, in a column of this type; NULL where no value of the type is written so: the log has texts.
  func written(_ value: Value, _ type: String) -> Value
  /// The parameter of such a value, beside the column: NULL where the database alone knows that no value of the type is written so.
  func writtenSlot(_ type: String) -> String
  /// So many values of a list are parameters; those of a longer one stand in the statement.
  var listedParametersMax: Int { get }
  /// A real column may be NaN, which travels as the text `NaN`.
  var storesNotANumber: Bool { get }
  /// A value as `salvor_server` holds it, whose column has no type where the database has such.
  func untyped(_ value: Value) -> Value
  /// No value of a column of this type, whatever it is compared with or put into; false: it may be one.
  ///
  /// - Parameter names: it is a row's key, or the key of another one.
  func excludes(_ value: PayloadReader.Item, _ type: String, names: Bool) -> Bool
  /// What the person may do about such a value, as a sentence.
  func wanted(_ value: PayloadReader.Item, _ type: String) -> String
  /// Between the columns of an `INSERT` and its values: what it gives stands, whatever the database would have given.
  var overriding: String { get }
  /// A value of this type that no row has, for a moment; nil: any of the schema's type does.
  ///
  /// - Parameter random: negative.
  func standIn(_ type: String, _ random: Int64) -> Value?
  /// An `INSERT` that does nothing where a unique value is another row's already, if the database can say so.
  func insertingFree(_ insert: String) -> String
  /// Rows that a statement is given, one array for each column, as what follows `FROM`: `rows`, with the columns `c0`, … and `place`
  /// from 1 on. Nil: the database takes none, or not of these types.
  func rows(_ types: [String]) -> String?
  /// A value of such a row as a column of this type takes it.
  func rowValue(_ place: Int, _ type: String) -> String
  /// A value in the text of a statement: of a schema, never of a row.
  func literal(_ value: Value) -> String
  /// ` INDEXED BY …` after a table and its alias, where the database takes such a hint.
  func using(index name: String) -> String
  /// Joins in this order, so that what is small is read first; an `ON` follows.
  var orderedJoin: String { get }
  /// `INSERT …` that leaves out rows whose key is there: what stands before and after.
  func insertingNew(_ insert: String) -> String
  /// The text of a statement that makes a temporary table of `columns`, without a row, and `indexes` on it.
  func temporaryTable(_ name: String, _ columns: [TemporaryColumn], indexes: [TemporaryIndex]) -> [String]
  /// A statement after which the planner knows how many rows a temporary table has; nil: it needs none.
  func measuring(_ temporary: String) -> String?
  /// The name of a temporary table in other statements.
  func temporary(_ name: String) -> String
  /// One row of each key, with the first or the last number: `numbered`, then `columns` of that very row.
  func oneOfEach(
    key: String, numbered number: String, _ end: RangeEnd, _ columns: [String], from: String, where condition: String
  ) -> String
  /// A condition as a number: 1 where it holds, else 0.
  func number(_ condition: String) -> String
  /// A query of the names of the triggers on a table that are not Salvor's, and that fire.
  func ownTriggers(on table: String) -> (sql: String, values: [Value])
  /// The statement that inserts a row and answers with its number `id`.
  func insertingNumbered(_ insert: String, id: String) -> String
}

extension Dialect {
  package func byteOrdered(_ expression: String) -> String { bytewise(expression) }
  package func logged(_ expression: String, _ type: String) -> String { expression }
  package func unlogged(_ expression: String, _ type: String) -> String { expression }
  package func unlogged(_ value: Value, _ type: String) -> Value { value }
  package func parameter(_ slot: String, _ type: String) -> String { slot }
  package func written(_ value: Value, _ type: String) -> Value { value }
  package func writtenSlot(_ type: String) -> String { "?" }
  package var listedParametersMax: Int { .max }
  package var storesNotANumber: Bool { false }
  package func measuring(_ temporary: String) -> String? { nil }

  /// The expression is one of the values: a condition, whose parameters are those of `bound`.
  ///
  /// - Parameter slot: the parameter of a value.
  func isAmong(_ expression: String, _ values: [Value], _ slot: String = "?") -> String {
    // An empty list is no SQL but SQLite's.
    if values.isEmpty { return "FALSE" }
    let isBound = !bound(values).isEmpty
    let list = values.map { isBound ? slot : slot.replacing("?", with: literal($0)) }
    return "\(bytewise(expression)) IN (\(list.joined(separator: ", ")))"
  }

  /// What is bound of a list of values.
  func bound(_ values: [Value]) -> [Value] { values.count > listedParametersMax ? [] : values }
  package func untyped(_ value: Value) -> Value { value }
  package func excludes(_ value: PayloadReader.Item, _ type: String, names: Bool) -> Bool { false }
  package func wanted(_ value: PayloadReader.Item, _ type: String) -> String { "Correct it." }
  package var overriding: String { "" }
  package func standIn(_ type: String, _ random: Int64) -> Value? { nil }
  package func insertingFree(_ insert: String) -> String { insert }
  package func rows(_ types: [String]) -> String? { nil }
  package func rowValue(_ place: Int, _ type: String) -> String { "rows.c\(place)" }
}

package enum RangeEnd: Sendable { case first, last }

/// A column of a temporary table.
package struct TemporaryColumn: Sendable {
  package enum Kind: Sendable {
    /// Numbers the rows by itself, and is their key.
    case id
    case integer
    /// Any value, as it stands in the change log.
    case value
  }
  package var name: String
  package var kind: Kind
  package init(_ name: String, _ kind: Kind) {
    self.name = name
    self.kind = kind
  }
}

package struct TemporaryIndex: Sendable {
  /// What the index's name has more than the table's.
  package var suffix: String
  package var columns: String
  package var isUnique: Bool
  package init(_ suffix: String, _ columns: String, isUnique: Bool = false) {
    self.suffix = suffix
    self.columns = columns
    self.isUnique = isUnique
  }
}

/// `names`, quoted and joined by `, `.
package func quotedNames(_ names: some Sequence<String>) -> String { names.map(quoted).joined(separator: ", ") }

/// `(a OR b) OR (c OR d)`: SQLite limits the depth of an expression, not its width.
package func balanced(_ terms: [String], by sign: String = "OR") -> String {
  switch terms.count {
  case 0: return "FALSE"
  case 1: return terms[0]
  default:
    let half = terms.count / 2
    return "(\(balanced(Array(terms[..<half]), by: sign)) \(sign) \(balanced(Array(terms[half...]), by: sign)))"
  }
}
