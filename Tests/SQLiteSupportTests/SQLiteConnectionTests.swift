import CSQLite
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteSupport

@Suite struct SQLiteConnectionTests {
  func memory() throws -> SQLiteConnection { try SQLiteConnection(":memory:") }

  @Test func everyStorageClassComesBackByteForByte() throws {
    let connection = try memory()
    try connection.execute("CREATE TABLE t (v)")
    let values: [Value] = [
      .null, .integer(.min), .integer(.max), .real(-0.5), .real(1e300), .text([]), .text("äß日本"),
      .text([0x61, 0, 0x62]), .text([0xff, 0xfe]), .blob([]), .blob([0, 1, 255]),
    ]
    for value in values { try connection.run("INSERT INTO t VALUES (?)", value) }
    #expect(try connection.rows("SELECT v FROM t ORDER BY rowid").map { $0[0] } == values)
    #expect(try connection.rows("SELECT v FROM t ORDER BY rowid").count == values.count)
  }

  @Test func bytesBoundInPlaceAreReadAtTheStep() throws {
    let connection = try memory()
    let statement = try connection.prepare("SELECT ?1, ?2")
    let bytes = Array("in place".utf8)
    try bytes.withUnsafeBytes { raw in
      try statement.bindText(1, raw, copying: false)
      try statement.bindBlob(2, raw, copying: false)
      #expect(try statement.step())
      #expect(statement.values() == [.text(bytes), .blob(bytes)])
      statement.reset()
      statement.clearBindings()
    }
  }

  @Test func aColumnBindsToAnotherStatement() throws {
    let connection = try memory()
    try connection.execute("CREATE TABLE a (v); CREATE TABLE b (v); INSERT INTO a VALUES (1.5), ('x'), (x'00'), (NULL)")
    let insert = try connection.prepare("INSERT INTO b VALUES (?)")
    try connection.query("SELECT v FROM a") { row in
      try insert.bind(1, column: 0, of: row)
      try insert.run()
      return true
    }
    #expect(try connection.rows("SELECT v FROM b ORDER BY rowid") == [[.real(1.5)], ["x"], [.blob([0])], [.null]])
  }

  @Test func aTransactionThatThrowsLeavesNothing() throws {
    struct Stop: Error {}
    let connection = try memory()
    try connection.execute("CREATE TABLE t (v)")
    #expect(throws: Stop.self) {
      try connection.transaction {
        try connection.run("INSERT INTO t VALUES (1)")
        throw Stop()
      }
    }
    #expect(!connection.isInTransaction)
    try connection.transaction {
      try connection.run("INSERT INTO t VALUES (2)")
      #expect(throws: Stop.self) {
        try connection.savepoint {
          try connection.run("INSERT INTO t VALUES (3)")
          throw Stop()
        }
      }
    }
    #expect(try connection.rows("SELECT v FROM t") == [[2]])
  }

  @Test func errorsCarryTheCodeAndTheTextButNoValue() throws {
    let connection = try memory()
    try connection.execute("CREATE TABLE t (v UNIQUE)")
    try connection.run("INSERT INTO t VALUES (?)", "secret")
    let error = failure { try connection.run("INSERT INTO t VALUES (?)", "secret") }
    #expect(error?.code == .storage)
    #expect(error?.sqliteCode == SQLITE_CONSTRAINT_UNIQUE_CODE)
    #expect(error?.isConstraintViolation == true)
    #expect(error?.message.contains("INSERT INTO t VALUES (?)") == true)
    #expect(error?.message.contains("secret") == false)
    #expect(failure { try connection.run("SELEKT 1") }?.message.contains("SELEKT") == true)
    #expect(throws: SalvorError.self) { try connection.prepare(" -- nothing") }
  }

  @Test func fullBusyAndForeignFilesHaveTheirOwnCodes() throws {
    let directory = try Directory()
    defer { directory.remove() }
    let path = directory.path + "/a.db"
    let connection = try SQLiteConnection(path)
    try connection.execute("CREATE TABLE t (v)")
    try connection.pragma("max_page_count", "4")
    let full = failure { try connection.run("INSERT INTO t VALUES (zeroblob(1000000))") }
    #expect(full?.code == .storageFull)
    let other = try SQLiteConnection(path, busyTimeoutMilliseconds: 0)
    try connection.execute("BEGIN IMMEDIATE")
    let busy = failure { try other.run("INSERT INTO t VALUES (1)") }
    try connection.execute("COMMIT")
    #expect(busy?.code == .storageBusy && busy?.isRetryable == true)
    let text = try SQLiteConnection(directory.path + "/no.db")
    try writeFile(directory.path + "/no.db", Array(repeating: UInt8(ascii: "x"), count: 4096))
    #expect(failure { try text.tableNames() }?.code == .storageCorrupt)
    #expect(failure { try SQLiteConnection(directory.path + "/none/x.db") }?.code == .storage)
    #expect(failure { try SQLiteConnection(directory.path + "/missing.db", mode: .readWrite) }?.code == .storage)
  }

  @Test func theTriggerSwitchHoldsForPreparedStatementsToo() throws {
    let connection = try memory()
    try connection.execute(
      "CREATE TABLE t (v); CREATE TABLE log (v); CREATE TRIGGER a AFTER INSERT ON t BEGIN INSERT INTO log VALUES (NEW.v); END"
    )
    try connection.run("INSERT INTO t VALUES (?)", 1)
    try connection.withTriggers(false) { try connection.run("INSERT INTO t VALUES (?)", 2) }
    #expect(connection.triggersEnabled)
    try connection.run("INSERT INTO t VALUES (?)", 3)
    #expect(try connection.rows("SELECT v FROM log") == [[1], [3]])
  }

  @Test func aNestedUseOfACachedStatementGetsItsOwn() throws {
    let connection = try memory()
    let sql = "WITH n(v) AS (VALUES (1), (2)) SELECT v FROM n"
    var seen: [Int64] = []
    try connection.query(sql) { outer in
      try connection.query(sql) { inner in
        seen.append(outer.int64(0) * 10 + inner.int64(0))
        return true
      }
      return true
    }
    #expect(seen == [11, 12, 21, 22])
  }

  @Test func theAuthorizerSeesTablesAndRefuses() throws {
    let connection = try memory()
    try connection.execute("CREATE TABLE mine (v); CREATE TABLE other (v)")
    try connection.withAuthorizer({ $0.action != SQLITE_INSERT || $0.first == "mine" }) {
      _ = try connection.prepare("INSERT INTO mine VALUES (1)")
      #expect(throws: SalvorError.self) { try connection.prepare("INSERT INTO other VALUES (1)") }
    }
    _ = try connection.prepare("INSERT INTO other VALUES (1)")
  }

  @Test func aBackupIsTheWholeDatabase() throws {
    let source = try memory()
    let target = try memory()
    try source.execute("CREATE TABLE t (v); INSERT INTO t VALUES (1), (2)")
    try source.backup(into: target)
    #expect(try target.rows("SELECT v FROM t") == [[1], [2]])
  }

  @Test func anInterruptedQueryIsCancelled() throws {
    let connection = try memory()
    let interrupter = connection.interrupter
    let error = failure {
      try connection.query("WITH RECURSIVE n(v) AS (VALUES (1) UNION ALL SELECT v + 1 FROM n) SELECT v FROM n") { _ in
        interrupter.interrupt()
        return true
      }
    }
    #expect(error?.code == .cancelled)
    connection.close()
    interrupter.interrupt()
    #expect(throws: SalvorError.self) { try connection.run("SELECT 1") }
  }

  @Test func anActorOnItsQueueRunsThere() async throws {
    actor Store {
      let queue = SQLiteQueue("test")
      nonisolated var unownedExecutor: UnownedSerialExecutor { queue.asUnownedSerialExecutor() }
      private var connection: SQLiteConnection?
      func count() throws -> Int64? {
        queue.checkIsolated()
        let open = try connection ?? SQLiteConnection(":memory:")
        connection = open
        return try open.integer("SELECT 7")
      }
    }
    #expect(try await Store().count() == 7)
  }

  @Test(arguments: ["plain", "a\"b", "it's", "ünï", "x y;--", "a\"\u{308}b"]) func anyNameIsQuoted(name: String) throws
  {
    let connection = try memory()
    try connection.execute("CREATE TABLE \(quoted(name)) (\(quoted(name)))")
    try connection.run("INSERT INTO \(quoted(name)) (\(quoted(name))) VALUES (1)")
    #expect(try connection.scalar("SELECT name FROM sqlite_schema WHERE name = \(quotedText(name))") == .text(name))
  }
}

let SQLITE_CONSTRAINT_UNIQUE_CODE: Int32 = 2067
