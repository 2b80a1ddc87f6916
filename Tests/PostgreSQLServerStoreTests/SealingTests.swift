#if PostgreSQL
  import Foundation
  import SalvorModel
  import SalvorStorage
  @testable import ServerStoreSupport
  import Testing

  @testable import PostgreSQLServerStore

  /// Commit numbers are given in one serial place, whoever seals, and in whatever order transactions become visible.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"), .serialized)
  struct SealingTests {
    @Test(
      "Readers by cursor see every change once, in the order of its number, beside sealers, savepoints and rollbacks")
    func linearity() throws {
      let desk = try LogDesk()
      let writers = 8, transactions = 60
      let written = Mutex<Set<String>>([])
      let open = Mutex(writers)
      let seen = Mutex<[[String]]>([])

      let writing: [@Sendable () throws -> Void] = (0..<writers).map { writer in
        {
          defer { open.withLock { $0 -= 1 } }
          let connection = try desk.connection()
          var next = 0
          func insert() throws -> String {
            next += 1
            try connection.run("INSERT INTO note (id, body) VALUES (?1, 'x')", .text(Array("w\(writer)-\(next)".utf8)))
            return "w\(writer)-\(next)"
          }
          for _ in 0..<transactions {
            try connection.execute("BEGIN")
            var ids: [String] = []
            for _ in 0..<Int.random(in: 1...5) {
              ids.append(try insert())
              if Int.random(in: 0..<4) == 0 {
                try connection.execute("SAVEPOINT s")
                _ = try insert()
                try connection.execute("ROLLBACK TO s")
              }
              if Int.random(in: 0..<4) == 0 { try connection.execute("SAVEPOINT kept") }
              if Int.random(in: 0..<3) == 0 {
                try connection.execute("SELECT pg_sleep(\(Double.random(in: 0...0.01)))")
              }
            }
            if Int.random(in: 0..<5) == 0 {
              try connection.execute("ROLLBACK")
            } else {
              try connection.execute("COMMIT")
              written.withLock { $0.formUnion(ids) }
            }
          }
        }
      }
      let sealing: [@Sendable () throws -> Void] = (0..<3).map { _ in
        {
          let connection = try desk.connection()
          let sealing = Sealing(connection: connection)
          while open.withLock({ $0 > 0 }) { if try sealing.isNeeded() { try desk.seal(connection) } }
          try desk.seal(connection)
        }
      }
      let reading: [@Sendable () throws -> Void] = (0..<3).map { _ in
        {
          let connection = try desk.connection()
          var cursor: Int64 = 0
          var found: [String] = []
          var isLast = false
          while true {
            let mayBeLast = open.withLock { $0 == 0 }
            if mayBeLast { try desk.seal(connection) }
            try connection.query("SELECT seq, v0 FROM salvor_change WHERE seq > ?1 ORDER BY seq", [.integer(cursor)]) {
              row in
              // Dense: what has the next number was never invisible beside one that has a later.
              #expect(row.int64(0) == cursor + 1)
              cursor = row.int64(0)
              found.append(row.string(1))
              return true
            }
            if isLast { break }
            isLast = mayBeLast
          }
          seen.withLock { $0.append(found) }
        }
      }
      try onThreads(writing + sealing + reading)

      let expected = written.withLock { $0 }
      #expect(expected.count > writers * transactions)
      let connection = try desk.connection()
      #expect(try Set(connection.rows("SELECT id FROM note").compactMap { $0[0].string }) == expected)
      for found in seen.withLock({ $0 }) {
        #expect(found.count == Set(found).count, "seen twice")
        #expect(Set(found) == expected, "missed")
      }
      #expect(try connection.integer("SELECT count(*) FROM salvor_inbox") == 0)
      #expect(try connection.integer("SELECT max(last_seq) FROM salvor_commit") == Int64(expected.count))
    }

    @Test("An open transaction hides nothing of others, and its own entries come when it commits")
    func openTransaction() throws {
      let desk = try LogDesk()
      let slow = try desk.connection(), quick = try desk.connection()
      try slow.execute("BEGIN; INSERT INTO note (id) VALUES ('slow')")
      for number in 0..<20 {
        try quick.execute("INSERT INTO note (id) VALUES ('q\(number)')")
        #expect(try desk.seal(quick).count == 1)
      }
      #expect(try desk.seal(quick).count == 0)
      try slow.execute("COMMIT")
      #expect(try Sealing(connection: quick).isNeeded())
      #expect(try desk.seal(quick).count == 1)
      #expect(try desk.entries(quick).last == "1 1 - slow -")
    }

    @Test("A prepared transaction's entries come when it is committed, from whatever connection")
    func preparedTransaction() throws {
      let desk = try LogDesk()
      let one = try desk.connection(), other = try desk.connection()
      let name = "p\(UInt32.random(in: .min ... .max))"
      try one.execute("BEGIN; INSERT INTO note (id) VALUES ('two-phase')")
      try one.execute("PREPARE TRANSACTION '\(name)'")
      one.close()
      #expect(try desk.seal(other).count == 0)
      try other.execute("COMMIT PREPARED '\(name)'")
      #expect(try desk.seal(other).count == 1)
      #expect(try desk.entries(other) == ["1 1 - two-phase -"])
    }

    @Test("An upload's entries are one commit with its remote's name; what others wrote before it is one of theirs")
    func uploads() throws {
      let desk = try LogDesk()
      let upload = try desk.connection(), other = try desk.connection()
      let remote = RemoteID(from: SystemRandom())
      try other.execute("INSERT INTO note (id) VALUES ('o')")
      try upload.transaction(Sealing(connection: upload).begin()) {
        try Sealing(connection: upload).numberOthers(isFirst: false)
        upload.numbered = 0
        defer { upload.numbered = nil }
        let log = desk.log(upload)
        _ = try log.sweep()
        try upload.run("INSERT INTO note (id) VALUES ('u')")
        // Committed by others while the upload goes on: they wait for nobody, and come after it.
        try other.execute("INSERT INTO note (id) VALUES ('later')")
        _ = try log.seal(remote: remote)
      }
      try desk.seal(other)
      #expect(
        try other.rows("SELECT remote IS NULL, last_seq FROM salvor_commit WHERE number > 0 ORDER BY number") == [
          [1, 1], [0, 2], [1, 3],
        ])
      #expect(try desk.entries(other) == ["1 1 - o -", "1 1 - u -", "1 1 - later -"])
    }

    @Test("What an upload writes has its number at once, and where it leaves that to others it has none yet")
    func numbersAtOnce() throws {
      let desk = try LogDesk()
      let upload = try desk.connection()
      func count(_ table: String) throws -> Int64? { try upload.integer("SELECT count(*) FROM \(table)") }
      try upload.transaction(Sealing(connection: upload).begin()) {
        upload.numbered = 0
        defer { upload.numbered = nil }
        try upload.run("INSERT INTO note (id) VALUES ('a'), ('b')")
        try upload.run("UPDATE note SET body = 'new' WHERE id = 'b'")
        #expect(try [count("salvor_change"), count("salvor_inbox")] == [3, 0])
        // As where another role owns the functions.
        try upload.execute("SET LOCAL salvor.numbers = 'off'")
        upload.ownsTriggers = false
        try upload.run("INSERT INTO note (id) VALUES ('c')")
        #expect(try [count("salvor_change"), count("salvor_inbox")] == [3, 1])
        _ = try desk.log(upload).seal(remote: nil)
      }
      try upload.transaction(Sealing(connection: upload).begin()) {
        upload.numbered = 0
        try Sealing(connection: upload).leaveToOthers()
        try upload.run("INSERT INTO note (id) VALUES ('d')")
      }
      #expect(try [count("salvor_change"), count("salvor_inbox")] == [4, 1])
      try desk.seal(upload)
      // Triggers of each row, too.
      try upload.execute("INSERT INTO line (note, number) VALUES ('a', 1)")
      try desk.seal(upload)
      try upload.transaction(Sealing(connection: upload).begin()) {
        upload.numbered = 0
        defer { upload.numbered = nil }
        try upload.run("UPDATE line SET extra = '1'")
        try upload.run("DELETE FROM note WHERE id = 'a'")
        _ = try desk.log(upload).seal(remote: nil)
        #expect(try count("salvor_inbox") == 0)
      }
      #expect(
        try desk.entries(upload).map { $0.split(separator: " ").prefix(2).joined(separator: " ") } == [
          "1 1", "1 1", "1 2", "1 1", "1 1", "2 1", "2 2", "1 3", "2 3",
        ])
      let numbers = try upload.rows("SELECT seq FROM salvor_change ORDER BY seq").map { $0[0] }
      #expect(numbers == (1...9).map { .integer($0) })
      #expect(try Sealing(connection: upload).ownsTriggers())
      let role = "r\(UInt32.random(in: .min ... .max))"
      try upload.execute("CREATE ROLE \(role); ALTER FUNCTION salvor_1_update() OWNER TO \(role)")
      #expect(try !Sealing(connection: upload).ownsTriggers())
    }

    @Test("Another program that says it numbers its writes itself is not believed")
    func claims() throws {
      let desk = try LogDesk()
      let connection = try desk.connection()
      let role = "r\(UInt32.random(in: .min ... .max))"
      try connection.execute("CREATE ROLE \(role) LOGIN; GRANT INSERT, SELECT ON note TO \(role)")
      var settings = desk.settings
      settings.url = settings.url.replacing("user=postgres", with: "user=\(role)")
      let other = try PostgreSQLConnection(settings)
      try other.execute("SET salvor.numbers = 'on'; INSERT INTO public.note (id) VALUES ('a')")
      #expect(try connection.integer("SELECT count(*) FROM salvor_change") == 0)
      #expect(try desk.seal(connection).count == 1)
      #expect(try desk.entries(connection) == ["1 1 - a -"])
    }

    @Test("What a savepoint of an upload wrote and took back leaves no entry, numbered or not")
    func savepoints() throws {
      let desk = try LogDesk()
      let upload = try desk.connection()
      struct Back: Error {}
      try upload.transaction(Sealing(connection: upload).begin()) {
        upload.numbered = 0
        defer { upload.numbered = nil }
        try upload.run("INSERT INTO note (id) VALUES ('a')")
        try? upload.savepoint("s") {
          try upload.run("INSERT INTO note (id) VALUES ('b')")
          // 'a' gets its number in here, too, and loses it again.
          try upload.numberWritten()
          throw Back()
        }
        try upload.run("INSERT INTO note (id) VALUES ('c')")
        _ = try desk.log(upload).seal(remote: nil)
      }
      #expect(try desk.entries(upload) == ["1 1 - a -", "1 1 - c -"])
      #expect(try upload.integer("SELECT count(*) FROM salvor_inbox") == 0)
    }

    @Test("After a logical restore transaction IDs begin anew: the inbox is taken whole at the first sealing")
    func restored() throws {
      let desk = try LogDesk()
      let connection = try desk.connection()
      // As the log of another cluster, where many more transactions had been.
      try connection.execute("UPDATE salvor_head SET sealed = '900000000:900000000:'")
      try connection.execute("INSERT INTO note (id) VALUES ('a')")
      #expect(try desk.seal(connection, isFirst: true).count == 1)
      try connection.execute("INSERT INTO note (id) VALUES ('b')")
      #expect(try desk.seal(connection).count == 1)
      #expect(try desk.entries(connection) == ["1 1 - a -", "1 1 - b -"])
    }

    @Test("What is new is found by the index, whatever runs")
    func plan() throws {
      let desk = try LogDesk()
      let connection = try desk.connection()
      try connection.execute("SET enable_seqscan = off")
      let snapshot = "100:200:120,130"
      #expect(Sealing.isNew(snapshot) == "(xid >= '200'::xid8 OR xid = ANY ('{120,130}'::xid8[]))")
      #expect(Sealing.isNew(nil) == "TRUE")
      #expect(Sealing.isNew("5:5:") == "xid >= '5'::xid8")
      let plan = try connection.rows("EXPLAIN SELECT 1 FROM salvor_inbox WHERE \(Sealing.isNew(snapshot))")
        .compactMap { $0[0].string }
      #expect(plan.contains { $0.contains("salvor_inbox_xid") }, "\(plan)")
    }
  }
#endif
