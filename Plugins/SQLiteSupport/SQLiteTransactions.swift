import SalvorModel
import SalvorStorage

extension SQLiteConnection {
  /// When a transaction takes SQLite's locks. In WAL mode, `exclusive` is the same as `immediate`.
  public enum TransactionKind: String, Sendable {
    /// Takes the write lock at its first write; a reader's view starts with its first read.
    case deferred = "DEFERRED"
    /// Takes the write lock at once.
    case immediate = "IMMEDIATE"
    case exclusive = "EXCLUSIVE"
  }

  /// Runs `body` in a transaction: committed where it returns, rolled back where it or the commit throws.
  public func transaction<Result>(
    _ kind: TransactionKind = .immediate, _ body: () throws -> Result
  ) throws -> Result {
    // Compiled once: a short transaction costs little more than these.
    try run("BEGIN \(kind.rawValue)")
    do {
      let result = try body()
      try run("COMMIT")
      return result
    } catch {
      // SQLite has rolled back by itself after a full disk or an I/O error.
      if isInTransaction { try? execute("ROLLBACK") }
      throw error
    }
  }

  /// Runs `body` in a transaction that is rolled back however it ends: for an answer that is found by writing.
  public func rolledBack<Result>(_ body: () throws -> Result) throws -> Result {
    try execute("BEGIN IMMEDIATE")
    defer { if isInTransaction { try? execute("ROLLBACK") } }
    return try body()
  }

  /// Runs `body` in a savepoint: what it wrote is undone where it throws. Outside a transaction it is one.
  public func savepoint<Result>(_ name: String = "salvor", _ body: () throws -> Result) throws -> Result {
    try execute("SAVEPOINT \(quoted(name))")
    do {
      let result = try body()
      try execute("RELEASE \(quoted(name))")
      return result
    } catch {
      if isInTransaction { try? execute("ROLLBACK TO \(quoted(name)); RELEASE \(quoted(name))") }
      throw error
    }
  }
}
