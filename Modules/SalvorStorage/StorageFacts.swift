import SalvorModel

/// A store that can say before it is opened what it could not make of a schema. The host asks `store as? any
/// SchemaExamining` when it reads a configuration; a store that does not say refuses such a schema when it is opened.
public protocol SchemaExamining: Sendable {
  /// What the database would refuse when the schema's tables are made in it; empty: nothing.
  ///
  /// Works without `open`, and neither opens nor makes a file.
  ///
  /// - Parameter schema: sound by the rules that do not need a database (names, keys, references).
  func problems(in schema: Schema) -> [SchemaProblem]
}

/// What a storage module refuses of a schema.
public struct SchemaProblem: Sendable, Hashable {
  /// The table that cannot be made as the schema has it.
  public var table: String
  /// The place in `Table.check` of the condition that is meant; nil: the table as a whole.
  public var check: Int?
  /// A sentence without its subject, which is the condition or the table: `cannot be …`.
  public var message: String

  /// By default the problem is the table as a whole.
  public init(table: String, check: Int? = nil, message: String) {
    self.table = table
    self.check = check
    self.message = message
  }
}

/// A store that keeps its database in one file.
public protocol FileDatabase: Sendable {
  /// The file's path, whether it is there or not; nil where this one keeps its database in memory.
  var databaseFile: String? { get }
}

/// A database that is no file, and that has a place for files of the host's all the same. What stands there is no part of a copy of the database, and
/// stays as it is when one is put back.
public protocol FilesBesideDatabase: Sendable {
  /// What the paths of these files begin with; nil: no place was named.
  var besidePrefix: String? { get }
}
