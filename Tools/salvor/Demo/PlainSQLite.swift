import SQLiteSupport
import SalvorModel

/// The application on a device: a SQLite client in a process of its own that knows nothing of Salvor.
struct PlainSQLite: Sendable {
  enum Client: Sendable {
    case python(String)
    case shell(String)
    /// This executable in another process, with nothing but a SQLite connection in it.
    case own(String)
  }

  let client: Client
  let log: String

  init(log: String) {
    self.log = log
    if let path = ChildProgram.find("python3") {
      client = .python(path)
    } else if let path = ChildProgram.find("sqlite3") {
      client = .shell(path)
    } else {
      client = .own(ChildProgram.own())
    }
  }

  var name: String {
    switch client {
    case .python: "Python's sqlite3 module"
    case .shell: "the sqlite3 shell"
    case .own: "a plain SQLite program"
    }
  }

  /// Runs the statements in one transaction.
  func run(_ statements: [String], on database: String) async throws {
    let result: ChildProgram.Result
    switch client {
    case .python(let path):
      result = try await ChildProgram.run(path, ["-c", PlainSQLite.script, database] + statements, log: log)
    case .shell(let path):
      let text =
        ".timeout 20000\nPRAGMA foreign_keys = ON;\nBEGIN IMMEDIATE;\n" + statements.map { "\($0);\n" }.joined()
        + "COMMIT;"
      result = try await ChildProgram.run(path, ["-batch", "-bail", database, text], log: log)
    case .own(let path):
      result = try await ChildProgram.run(path, ["demo", "plain-sqlite", database] + statements, log: log)
    }
    guard result.code == 0 else {
      throw SalvorError(.failed, "\(name) could not write to \(database); \(log) says why.")
    }
  }

  private static let script = """
    import sqlite3, sys
    db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
    db.execute("PRAGMA foreign_keys = ON")
    db.execute("BEGIN IMMEDIATE")
    for statement in sys.argv[2:]:
        db.execute(statement)
    db.execute("COMMIT")
    """

  /// What `.own` runs.
  static func runHere(_ statements: [String], on database: String) throws {
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    try connection.execute("PRAGMA foreign_keys = ON; BEGIN IMMEDIATE")
    for statement in statements { try connection.execute(statement) }
    try connection.execute("COMMIT")
  }
}
