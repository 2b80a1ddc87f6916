import SalvorModel
import SalvorStorage
import SalvorWire

/// One connection to the consolidated database, as the code that the server stores share uses it.
///
/// Not thread-safe: it belongs to one actor, and everything on it is synchronous, so that no `await` is ever inside a
/// transaction. Statements are text with the parameters `?` and `?1`, `?2`, …; what differs between databases is in `dialect`.
package protocol StoreConnection: AnyObject {
  associatedtype Statement: StoreStatement

  var dialect: any Dialect { get }

  /// Compiles one statement, which is not kept. `persistent`: it is going to run often.
  func prepare(_ sql: String, persistent: Bool) throws -> Statement
  /// A statement from the cache, reset and without bindings; a new one where the cached one is in use.
  func cached(_ sql: String) throws -> Statement
  /// The same of a query whose rows may be many and are not all read: it holds a part of its answer. In a transaction.
  func stream(_ sql: String) throws -> Statement
  /// Runs any number of statements without parameters; their rows are thrown away.
  func execute(_ sql: String) throws

  /// Rows changed by the last statement, without those of triggers and foreign key actions.
  var changes: Int { get }
  /// Whether a transaction is open. After a failed statement it may do nothing but end, or go back to a savepoint
  /// (`endsOnFailure`).
  var isInTransaction: Bool { get }

  /// How many rows the statements of this connection have written, those of triggers with them; nil: the database does not
  /// say it.
  var writtenRows: Int? { get }

  /// A statement that fails takes what its savepoint or transaction did along: what may fail is tried in a savepoint.
  var endsOnFailure: Bool { get }
  /// A row may come to be another one than was written: triggers before the write, types with a form of their own.
  var altersRows: Bool { get }

  /// Where the entries of the change log get their numbers later than they are written: those of this transaction get them
  /// now. Call it before the log is read for what the transaction itself wrote.
  func numberWritten() throws
  /// Columns, each after a comma, of a query that is to say whether other programs have committed entries that have no number yet, and
  /// that a reader of the log does not see. Empty: there are none such.
  var unnumberedColumns: String { get throws }
  /// What they say, from `column` on; nil: the query is asked once more, with the columns of now.
  func hasUnnumbered(_ row: any StoreStatement, from column: Int) throws -> Bool?

  /// Throws (`serialization`) where this transaction has read a table as it is after its snapshot: another one has emptied or rewritten it.
  /// Call it after the last look at the tables.
  func proveMoment(of tables: [String]) throws

  /// Runs `body` in a transaction that reads one snapshot; what it throws rolls it back.
  func snapshot<Result>(_ body: () throws -> Result) throws -> Result
  /// Runs `body` in a savepoint: what it wrote is undone where it throws.
  func savepoint<Result>(_ name: String, _ body: () throws -> Result) throws -> Result

  /// From here to the end of the transaction, or to `checkReferences`, foreign keys are checked later.
  func deferReferences() throws
  /// Foreign keys are checked at once again. What was broken meanwhile `unresolved` has said.
  func checkReferences() throws
  /// What refuses rows and was not checked yet: a foreign key, or what else the database proves later. Nil: nothing does.
  var unresolved: SalvorError? { get throws }

  /// The first of these values that its column cannot hold, and the column's type in the database's words; nil: the database does not say it.
  func misfit(in table: String, _ values: [(column: String, value: Value)]) throws -> (column: String, type: String)?

  /// What its column makes of a value (`altersRows`); nil: it cannot hold it.
  func asStored(_ value: Value, in table: String, _ column: String) throws -> Value?

  /// What an error of this database says.
  func failure(_ error: SalvorError) -> StoreFailure?
}

/// What a database said against a statement.
package enum StoreFailure: Sendable, Hashable {
  /// A unique value, or a key, is another row's.
  case unique
  case foreignKey
  case check
  case notNull
  /// The column's type cannot hold the value.
  case value
  /// Another constraint: an exclusion, or one that the database does not name by kind.
  case constraint
  /// A trigger of the application's refused the row, in its own words.
  case trigger
  /// The statement took longer than a statement may.
  case slow
  /// A lock of somebody else's was not given in time.
  case busy
  /// The transaction cannot go on beside another one: it is tried again whole.
  case serialization
}

extension StoreFailure {
  /// The row is refused, whatever anybody else does.
  package var refusesRow: Bool { self != .busy && self != .serialization }
}

/// A prepared statement of a `StoreConnection`. Parameters are numbered from 1, columns from 0.
///
/// Text goes in and out as bytes; nothing here makes a `String` or an array unless its name says so.
package protocol StoreStatement: AnyObject {
  /// True: a row is there. False: the statement is done (reset it before it runs again).
  func step() throws -> Bool
  /// Runs a statement that gives no rows, and resets it, whether it succeeds or not.
  func run() throws
  /// Back to the start. Bindings stay.
  func reset()
  /// All parameters become NULL.
  func clearBindings()

  func bind(_ parameter: Int, _ value: Int64) throws
  func bind(_ parameter: Int, _ value: Double) throws
  func bindNull(_ parameter: Int) throws
  /// - Parameter copying: false where the bytes outlive the statement's next reset or rebind; they are then read in place.
  func bindText(_ parameter: Int, _ bytes: UnsafeRawBufferPointer, copying: Bool) throws
  /// - Parameter copying: as in `bindText`.
  func bindBlob(_ parameter: Int, _ bytes: UnsafeRawBufferPointer, copying: Bool) throws

  /// Binds the values of one column of the rows that the statement is given (`Dialect.rows`).
  func bindColumn(_ parameter: Int, count: Int, _ value: (Int) -> PayloadReader.Item) throws

  var columnCount: Int { get }
  func storageClass(_ column: Int) -> StorageClass
  func int64(_ column: Int) -> Int64
  func double(_ column: Int) -> Double
  /// The bytes of a text; they are valid until the next step or reset.
  func textBytes(_ column: Int) -> UnsafeRawBufferPointer
  /// The bytes of a blob; they are valid until the next step or reset.
  func blobBytes(_ column: Int) -> UnsafeRawBufferPointer
}

/// The kind of a value in a column. The numbers are SQLite's own.
package enum StorageClass: Int32, Sendable {
  case integer = 1, real, text, blob, null
}

// MARK: - What follows from these

extension StoreStatement {
  package func bindColumn(_ parameter: Int, count: Int, _ value: (Int) -> PayloadReader.Item) throws {
    throw SalvorError(.storage, "This database takes no sets of rows.")
  }

  /// The column holds this very value.
  package func holds(_ item: PayloadReader.Item, _ column: Int) -> Bool {
    func isSame(_ bytes: UnsafeRawBufferPointer, _ other: UnsafeBufferPointer<UInt8>) -> Bool {
      bytes.count == other.count && bytes.elementsEqual(other)
    }
    return switch (storageClass(column), item) {
    case (.null, .null): true
    case (.integer, .integer(let x)): int64(column) == x
    case (.real, .real(let x)): double(column) == x
    case (.text, .text(let x)): isSame(textBytes(column), x)
    case (.blob, .blob(let x)): isSame(blobBytes(column), x)
    default: false
    }
  }

  package func bind(_ parameter: Int, _ value: Value) throws {
    switch value {
    case .null: try bindNull(parameter)
    case .integer(let integer): try bind(parameter, integer)
    case .real(let real): try bind(parameter, real)
    case .text(let bytes): try bytes.withUnsafeBytes { try bindText(parameter, $0, copying: true) }
    case .blob(let bytes): try bytes.withUnsafeBytes { try bindBlob(parameter, $0, copying: true) }
    }
  }

  /// Binds `values` to the parameters from `first` on.
  package func bind(_ values: [Value], from first: Int = 1) throws {
    for (place, value) in values.enumerated() { try bind(first + place, value) }
  }

  package func isNull(_ column: Int) -> Bool { storageClass(column) == .null }

  package func withText<Result>(_ column: Int, _ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
    try body(textBytes(column))
  }

  package func withBlob<Result>(_ column: Int, _ body: (UnsafeRawBufferPointer) throws -> Result) rethrows -> Result {
    try body(blobBytes(column))
  }

  package func value(_ column: Int) -> Value {
    switch storageClass(column) {
    case .integer: .integer(int64(column))
    case .real: .real(double(column))
    case .text: .text(Array(textBytes(column)))
    case .blob: .blob(Array(blobBytes(column)))
    case .null: .null
    }
  }

  /// The columns from `first`, `count` of them (all that follow where nil).
  package func values(from first: Int = 0, count: Int? = nil) -> [Value] {
    let end = count.map { first + $0 } ?? columnCount
    return (first..<end).map(value)
  }

  /// Text as a string (invalid UTF-8 repaired); an empty string for NULL.
  package func string(_ column: Int) -> String { String(decoding: textBytes(column), as: UTF8.self) }

  package func optionalString(_ column: Int) -> String? { isNull(column) ? nil : string(column) }
}

extension StoreConnection {
  package func stream(_ sql: String) throws -> Statement { try cached(sql) }
  package var endsOnFailure: Bool { false }
  package var altersRows: Bool { false }
  package func misfit(in table: String, _ values: [(column: String, value: Value)]) throws -> (
    column: String, type: String
  )? { nil }
  package func asStored(_ value: Value, in table: String, _ column: String) throws -> Value? { value }
  package func numberWritten() throws {}
  package func proveMoment(of tables: [String]) throws {}
  package var unnumberedColumns: String { "" }
  package func hasUnnumbered(_ row: any StoreStatement, from column: Int) throws -> Bool? { false }

  package func prepare(_ sql: String) throws -> Statement { try prepare(sql, persistent: false) }
  package func savepoint<Result>(_ body: () throws -> Result) throws -> Result { try savepoint("salvor", body) }

  /// Runs one statement to its end, with `values` bound from parameter 1 on.
  package func run(_ sql: String, _ values: Value...) throws { try run(sql, values) }

  package func run(_ sql: String, _ values: [Value]) throws {
    let statement = try cached(sql)
    try statement.bind(values)
    defer { statement.reset() }
    while try statement.step() {}
  }

  /// Calls `body` with each row of a query, as long as it answers true.
  package func query(_ sql: String, _ values: [Value] = [], _ body: (any StoreStatement) throws -> Bool) throws {
    let statement = try cached(sql)
    try statement.bind(values)
    defer { statement.reset() }
    while try statement.step() {
      guard try body(statement) else { return }
    }
  }

  /// All rows of a query. For small results.
  package func rows(_ sql: String, _ values: Value...) throws -> [[Value]] { try rows(sql, values) }

  package func rows(_ sql: String, _ values: [Value]) throws -> [[Value]] {
    var rows: [[Value]] = []
    try query(sql, values) {
      rows.append($0.values())
      return true
    }
    return rows
  }

  /// The first column of the first row; nil where there is no row.
  package func scalar(_ sql: String, _ values: Value...) throws -> Value? {
    var result: Value?
    try query(sql, values) {
      result = $0.value(0)
      return false
    }
    return result
  }

  package func integer(_ sql: String, _ values: Value...) throws -> Int64? { try integer(sql, values) }

  package func integer(_ sql: String, _ values: [Value]) throws -> Int64? {
    var result: Int64?
    try query(sql, values) {
      result = $0.isNull(0) ? nil : $0.int64(0)
      return false
    }
    return result
  }

  /// A constraint of the database, or a trigger, refused the row: not the lock or the moment.
  package func refusesRow(_ error: SalvorError) -> Bool { failure(error)?.refusesRow ?? false }
}
