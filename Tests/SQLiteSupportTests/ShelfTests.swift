import Foundation
import SQLiteSupport
import SalvorModel
import Testing

@Suite("Closed connections that are kept for the next process of a simulation")
struct ShelfTests {
  private func path() -> String {
    FileManager.default.temporaryDirectory.appendingPathComponent("shelf-\(UUID().uuidString).db").path
  }

  /// A connection's own mark, which is gone with it.
  private func mark(_ connection: SQLiteConnection) throws { try connection.execute("CREATE TEMP TABLE mark (x)") }
  private func isMarked(_ connection: SQLiteConnection) throws -> Bool {
    try connection.integer("SELECT count(*) FROM sqlite_temp_schema WHERE name = 'mark'") == 1
  }

  @Test("one that was closed is taken again for the same use of the same file, and sees what others wrote meanwhile")
  func takenAgain() throws {
    let path = path()
    defer { try? FileManager.default.removeItem(atPath: path) }
    try SQLiteShelf.$current.withValue(SQLiteShelf()) {
      let first = try SQLiteConnection(path, for: "a")
      try first.execute("PRAGMA journal_mode = WAL; CREATE TABLE t (x)")
      try mark(first)
      first.close()
      let other = try SQLiteConnection(path, for: "b")
      #expect(try !isMarked(other), "another use")
      try other.execute("INSERT INTO t VALUES (1); ALTER TABLE t ADD COLUMN y")
      let again = try SQLiteConnection(path, for: "a")
      #expect(try isMarked(again))
      #expect(try again.rows("SELECT x, y FROM t") == [[1, .null]])
      let second = try SQLiteConnection(path, for: "a")
      #expect(try !isMarked(second), "the one that was kept is in use")
      #expect(try !isMarked(try SQLiteConnection(path)), "of no use")
    }
    #expect(try !isMarked(try SQLiteConnection(path, for: "a")), "there is no shelf")
  }

  @Test("one with an open transaction, an unfinished statement or an attached database is closed for good")
  func unfinished() throws {
    let path = path()
    defer { try? FileManager.default.removeItem(atPath: path) }
    try SQLiteShelf.$current.withValue(SQLiteShelf()) {
      for spoil: (SQLiteConnection) throws -> SQLiteStatement? in [
        { connection in
          try connection.execute("BEGIN")
          return nil
        },
        { connection in
          let statement = try connection.prepare("SELECT 1 UNION SELECT 2")
          #expect(try statement.step())
          return statement
        },
        { connection in
          try connection.execute("ATTACH ':memory:' AS other")
          return nil
        },
      ] {
        let connection = try SQLiteConnection(path, for: "a")
        try mark(connection)
        let statement = try spoil(connection)
        connection.close()
        #expect(try !isMarked(SQLiteConnection(path, for: "b \(String(describing: statement))")))
        let next = try SQLiteConnection(path, for: "a")
        #expect(try !isMarked(next))
        try next.execute("ATTACH ':memory:' AS last")
      }
    }
  }

  @Test("what is kept of a file that was replaced, or let go, is not taken")
  func replaced() throws {
    let path = path()
    defer { try? FileManager.default.removeItem(atPath: path) }
    let shelf = SQLiteShelf()
    try SQLiteShelf.$current.withValue(shelf) {
      func keepOne() throws {
        let connection = try SQLiteConnection(path, for: "a")
        try mark(connection)
        connection.close()
      }
      try keepOne()
      shelf.clear(path)
      let new = try SQLiteConnection(path, for: "a")
      #expect(try !isMarked(new))
      try new.execute("ATTACH ':memory:' AS other")
      new.close()
      try keepOne()
      try FileManager.default.moveItem(atPath: path, toPath: path + ".old")
      defer { try? FileManager.default.removeItem(atPath: path + ".old") }
      #expect(try !isMarked(SQLiteConnection(path, for: "a")))
    }
  }

  @Test("now and then one is closed for good, so that new ones are met, too")
  func refreshed() throws {
    let path = path()
    defer { try? FileManager.default.removeItem(atPath: path) }
    try SQLiteShelf.$current.withValue(SQLiteShelf()) {
      var marked: [Bool] = []
      for _ in 0..<12 {
        let connection = try SQLiteConnection(path, for: "a")
        marked.append(try isMarked(connection))
        if marked.last == false { try mark(connection) }
        connection.close()
      }
      #expect(marked == [false, true, true, true, true, true, false, true, true, true, true, true])
    }
  }
}
