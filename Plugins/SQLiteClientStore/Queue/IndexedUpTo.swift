import SQLiteSupport
import SalvorModel

/// How far a temporary index of the log has come. It is used again, and takes in what was captured since, as long as
/// nothing else has happened to the log: every step that takes rows out of it, or puts another base under some, says so by
/// `noteLogChange`, in the file, so that other processes' indexes hear of it. It stands in a temporary table itself: a
/// transaction that is rolled back takes it back, too.
struct IndexedUpTo {
  private let connection: SQLiteConnection
  private let name: String

  /// - Parameter name: the index.
  init(_ context: StoreContext, _ name: String) throws {
    connection = context.connection
    self.name = name
    try connection.execute(
      "CREATE TABLE IF NOT EXISTS temp.salvor_indexed (name TEXT PRIMARY KEY, shape TEXT, up_to INTEGER, generation TEXT) WITHOUT ROWID"
    )
  }

  /// - Parameter shape: what else it was made for.
  /// - Returns: nil: the index must be made anew.
  func known(_ shape: String) throws -> Int64? {
    guard let generation = try connection.logGeneration() else { return nil }
    return try connection.integer(
      "SELECT up_to FROM temp.salvor_indexed WHERE name = ?1 AND shape = ?2 AND generation = ?3", .text(name),
      .text(shape), generation)
  }

  func set(_ counter: Int64, _ shape: String) throws {
    try connection.run(
      "INSERT OR REPLACE INTO temp.salvor_indexed (name, shape, up_to, generation) VALUES (?1, ?2, ?3, ?4)",
      .text(name), .text(shape), .integer(counter), try connection.logGeneration() ?? .null)
  }
}

extension SQLiteConnection {
  /// Drawn anew with each change, and with the file: no copy that is put back has it by chance.
  fileprivate func logGeneration() throws -> Value? { try state(.logGeneration) ?? state(.fileStamp) }
}

extension StoreContext {
  /// The log is not what it was and what was captured since.
  ///
  /// - Parameters:
  ///   - isFollowed: the indexes of this connection know already. They have been made.
  ///   - isAcceptance: requests that need none in error have left, and nothing else was done.
  func noteLogChange(isFollowed: Bool = false, isAcceptance: Bool = false) throws {
    if !isAcceptance { try lookAtAllErrors() }
    let old = try connection.logGeneration()
    let new = Value.text(hexadecimal(random.bytes(8)))
    try connection.setState(.logGeneration, new)
    if isFollowed, let old {
      try connection.run("UPDATE temp.salvor_indexed SET generation = ?1 WHERE generation = ?2", new, old)
    }
  }
}
