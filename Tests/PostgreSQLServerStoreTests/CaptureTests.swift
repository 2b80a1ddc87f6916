#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport
  import Testing

  @testable import PostgreSQLServerStore

  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct CaptureTests {
    /// Runs a statement as another program, and answers what the log has of it.
    private func captured(_ sql: String, after before: String = "", _ desk: LogDesk? = nil) throws -> [String] {
      let desk = try desk ?? LogDesk()
      let connection = try desk.connection()
      if !before.isEmpty { try connection.execute(before) }
      let start = try desk.seal(connection)
      try connection.execute(sql)
      try desk.seal(connection)
      return try desk.entries(connection, after: start.last)
    }

    @Test("Each statement of another program leaves the entries of the rows that it changed")
    func statements() throws {
      let two = "INSERT INTO note VALUES ('a', 'x', 'anna'), ('b', 'y', 'ben')"
      #expect(try captured(two) == ["1 1 - a -", "1 1 - b -"])
      #expect(try captured("UPDATE note SET body = 'z' WHERE id = 'a'", after: two) == ["1 2 2 a anna"])
      // A column that decides the scope: a move, with where it was.
      #expect(try captured("UPDATE note SET owner = 'cleo' WHERE id = 'a'", after: two) == ["1 5 4 a anna"])
      #expect(try captured("UPDATE note SET body = body, local_only = 'l'", after: two) == [])
      #expect(try captured("DELETE FROM note WHERE id = 'b'", after: two) == ["1 3 - b ben"])
      #expect(try captured("UPDATE note SET id = 'c' WHERE id = 'a'", after: two) == ["1 3 - a anna", "1 1 - c -"])
      // Keys that are swapped are rows that were changed.
      #expect(
        try captured(
          "UPDATE note SET id = CASE id WHEN 'a' THEN 'b' ELSE 'a' END WHERE id IN ('a', 'b')",
          after: two.replacing("'b', 'y'", with: "'b', 'x'")
            + "; ALTER TABLE note DROP CONSTRAINT note_pkey CASCADE; ALTER TABLE note ADD PRIMARY KEY (id) DEFERRABLE"
        ) == ["1 5 4 a anna", "1 5 4 b ben"])
      #expect(
        try captured(
          "INSERT INTO note VALUES ('a', 'new', 'anna'), ('d', 'x', NULL) ON CONFLICT (id) DO UPDATE SET body = excluded.body",
          after: two) == ["1 2 2 a anna", "1 1 - d -"])
      #expect(
        try captured(
          """
          MERGE INTO note n USING (VALUES ('a', 'm'), ('e', 'm')) v (id, body) ON n.id = v.id
            WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, body) VALUES (v.id, v.body)
          """, after: two
        ).sorted() == ["1 1 - e -", "1 3 - a anna"])
      #expect(try captured("TRUNCATE note CASCADE", after: two).sorted() == ["1 3 - a anna", "1 3 - b ben"])
      let child = two + "; INSERT INTO line VALUES ('a', 1, '{}')"
      #expect(try captured("DELETE FROM note WHERE id = 'a'", after: child) == ["1 3 - a anna", "2 3 - a 1"])
      #expect(
        try captured("UPDATE note SET id = 'q' WHERE id = 'a'", after: child)
          == ["1 3 - a anna", "1 1 - q -", "2 3 - a 1", "2 1 - q 1"])
      // JSON has no equality in PostgreSQL: it is its text.
      #expect(try captured("UPDATE line SET extra = '{ }'", after: child) == ["2 2 4 a 1"])
      #expect(try captured("UPDATE line SET extra = '{}'", after: child) == [])
    }

    @Test("A change in a value's last bits is captured, whatever the writer's session makes of its text")
    func textOfTheWritersSession() throws {
      for eachRow in [false, true] {
        let desk = try LogDesk(bodies: "point"), connection = try desk.connection()
        if eachRow {
          try connection.execute("CREATE TABLE every () INHERITS (note)")
          _ = try LogDesk.install(connection)
        }
        let point = "INSERT INTO note VALUES ('a', point(0.3, 0), 'anna')"
        try connection.execute(point)
        _ = try desk.seal(connection)
        let rough = "SET extra_float_digits = 0; "
        #expect(
          try captured(rough + "UPDATE note SET body = point(0.1::float8 + 0.2::float8, 0)", desk) == ["1 2 2 a anna"],
          "\(eachRow)")
        #expect(try captured(rough + "UPDATE note SET body = body", desk) == [], "\(eachRow)")
      }
    }

    @Test("What a trigger of the application's makes of a row is a later entry than the one that made it")
    func triggersOfTheApplication() throws {
      let trigger = """
        CREATE FUNCTION stamp() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          UPDATE note SET body = 'stamped' WHERE id = NEW.id; RETURN NULL; END$$;
        CREATE TRIGGER a_stamp AFTER INSERT ON note FOR EACH ROW EXECUTE FUNCTION stamp()
        """
      let desk = try LogDesk(), connection = try desk.connection()
      try connection.execute(trigger)
      // A trigger of each statement would fire after it: that is found, and the table's are made anew.
      let check = DatabaseCheck(connection)
      #expect(try check.uncaptured(desk.tables, capturesReplicas: false) == ["note"])
      _ = try LogDesk.install(connection)
      #expect(try check.uncaptured(desk.tables, capturesReplicas: false) == [])
      #expect(
        try captured("INSERT INTO note VALUES ('a', 'x', 'anna')", desk) == ["1 1 - a -", "1 2 2 a anna"])
    }

    @Test("Triggers that somebody has enabled again see what a logical subscriber writes, as before")
    func enabledAgain() throws {
      let desk = try LogDesk(capturesReplicas: true), connection = try desk.connection()
      let check = DatabaseCheck(connection)
      #expect(try check.uncaptured(desk.tables, capturesReplicas: true) == [])
      try connection.execute("ALTER TABLE note DISABLE TRIGGER USER; ALTER TABLE note ENABLE TRIGGER USER")
      #expect(try check.uncaptured(desk.tables, capturesReplicas: true) == ["note"])
      _ = try LogDesk.install(connection, capturesReplicas: true)
      #expect(try check.uncaptured(desk.tables, capturesReplicas: true) == [])
      let start = try desk.seal(connection)
      try connection.execute(
        "SET session_replication_role = replica; INSERT INTO note VALUES ('a', 'x', 'anna'); RESET session_replication_role"
      )
      try desk.seal(connection)
      #expect(try desk.entries(connection, after: start.last) == ["1 1 - a -"])
    }

    @Test("What is written through a parent of the table is captured, and a table that becomes a part later is found")
    func partitions() throws {
      let desk = try LogDesk(), connection = try desk.connection()
      try connection.execute(
        """
        CREATE TABLE every (LIKE note INCLUDING ALL) PARTITION BY RANGE (id);
        ALTER TABLE every ATTACH PARTITION note DEFAULT
        """)
      #expect(try DatabaseCheck(connection).uncaptured(desk.tables, capturesReplicas: false) == ["note"])
      _ = try LogDesk.install(connection)
      #expect(
        try captured("INSERT INTO every VALUES ('a', 'x', 'anna'), ('b', 'y', 'ben')", desk) == [
          "1 1 - a -", "1 1 - b -",
        ])
      #expect(try captured("UPDATE every SET body = 'z' WHERE id = 'a'", desk) == ["1 2 2 a anna"])
      #expect(try captured("DELETE FROM every WHERE id = 'b'", desk) == ["1 3 - b ben"])
    }

    @Test(
      "Statements of many rows, of one and of none leave an entry for each row, in whatever order a session runs them")
    func manyRows() throws {
      let desk = try LogDesk(), connection = try desk.connection()
      try connection.execute("INSERT INTO note SELECT 'n' || g, 'x', 'anna' FROM generate_series(1, 1000) g")
      #expect(try desk.seal(connection).count == 1000)
      #expect(try captured("UPDATE note SET body = 'y' WHERE id = 'n7'", desk) == ["1 2 2 n7 anna"])
      #expect(
        try captured("UPDATE note SET body = 'z' WHERE id = 'none'; DELETE FROM note WHERE id = 'none'", desk) == [])
      try connection.execute("UPDATE note SET body = 'z', owner = 'ben' WHERE length(id) < 4")
      #expect(try desk.seal(connection).count == 99)
      #expect(Set(try desk.entries(connection, after: 1001)) == Set((1...99).map { "1 5 6 n\($0) anna" }))
      try connection.execute("DELETE FROM note WHERE length(id) >= 4")
      #expect(try desk.seal(connection).count == 901)
      #expect(try connection.integer("SELECT count(DISTINCT v0) FROM salvor_change WHERE op = 3") == 901)
      try connection.execute("TRUNCATE note CASCADE")
      #expect(try desk.seal(connection).count == 99)
      #expect(try connection.integer("SELECT count(*) FROM salvor_inbox") == 0)
    }

    @Test("A column that the triggers read is not dropped by accident, and what guards it captures nothing")
    func guardedColumns() throws {
      let desk = try LogDesk(), connection = try desk.connection()
      for column in ["body", "owner"] {
        let error = #expect(throws: SalvorError.self) {
          try connection.execute("ALTER TABLE note DROP COLUMN \(column)")
        }
        #expect(error?.sqlState == "2BP01", "\(column)")
      }
      try connection.execute("ALTER TABLE note DROP COLUMN local_only")
      // As after a bulk load.
      try connection.execute("ALTER TABLE note DISABLE TRIGGER USER; ALTER TABLE note ENABLE TRIGGER USER")
      #expect(try captured("INSERT INTO note VALUES ('a', 'x', 'anna')", desk) == ["1 1 - a -"])
      #expect(try captured("UPDATE note SET body = 'y'", desk) == ["1 2 2 a anna"])
    }

    @Test("Savepoints and transactions that are rolled back leave nothing")
    func rolledBack() throws {
      let sql = """
        BEGIN; INSERT INTO note (id) VALUES ('a'); SAVEPOINT s; INSERT INTO note (id) VALUES ('b'); ROLLBACK TO s;
        INSERT INTO note (id) VALUES ('c'); COMMIT; BEGIN; INSERT INTO note (id) VALUES ('d'); ROLLBACK
        """
      #expect(try captured(sql) == ["1 1 - a -", "1 1 - c -"])
    }

    @Test("What a logical subscriber writes is captured where that is asked for, and else not")
    func replicas() throws {
      let sql =
        "SET session_replication_role = replica; INSERT INTO note (id) VALUES ('a'); RESET session_replication_role"
      #expect(try captured(sql, LogDesk()) == [])
      #expect(try captured(sql, LogDesk(capturesReplicas: true)) == ["1 1 - a -"])
    }

    @Test("A program without a right on Salvor's tables is captured, and cannot bring a name of its own in")
    func rights() throws {
      let desk = try LogDesk()
      let connection = try desk.connection()
      let role = "r\(UInt32.random(in: .min ... .max))"
      try connection.execute(
        "CREATE ROLE \(role); GRANT INSERT, SELECT, UPDATE ON note TO \(role); GRANT CREATE ON SCHEMA public TO \(role)"
      )
      try connection.execute("SET ROLE \(role)")
      #expect(throws: SalvorError.self) { try connection.execute("SELECT * FROM salvor.salvor_inbox") }
      try connection.execute("CREATE TABLE public.salvor_inbox (x text); SET search_path = public")
      try connection.execute("INSERT INTO note (id) VALUES ('a')")
      try connection.execute("RESET ROLE; SET search_path = salvor, public")
      try desk.seal(connection)
      #expect(try desk.entries(connection) == ["1 1 - a -"])
    }

    @Test("Several processes that install at once make it once, and installing again changes nothing")
    func installedAtOnce() throws {
      let desk = try LogDesk()
      let works: [@Sendable () throws -> Void] = (0..<4).map { _ in
        { _ = try LogDesk.install(desk.connection()) }
      }
      try onThreads(works)
      let connection = try desk.connection()
      try connection.execute("INSERT INTO note (id) VALUES ('a')")
      try desk.seal(connection)
      #expect(try desk.entries(connection) == ["1 1 - a -"])
    }

    @Test("A table or column that the database does not have is refused by name")
    func refused() throws {
      let desk = try LogDesk()
      let connection = try desk.connection()
      // Not by accident: the trigger of the updates needs it.
      #expect(throws: SalvorError.self) { try connection.execute("ALTER TABLE line DROP COLUMN extra") }
      try connection.execute("ALTER TABLE line DROP COLUMN number CASCADE")
      let error = try #require(throws: SalvorError.self) { _ = try LogDesk.install(connection) }
      #expect(error.message.contains("line"))
    }
  }
#endif
