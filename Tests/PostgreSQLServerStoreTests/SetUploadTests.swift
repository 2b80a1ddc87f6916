#if PostgreSQL
  import MemoryStore
  import SalvorContracts
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import Testing

  @testable import PostgreSQLServerStore

  /// Rows of one shape are written together where nothing speaks against them. What becomes of an upload does not show it.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct SetUploadTests {
    private let schema = Schema(tables: [
      Table(
        "box", primaryKey: ["id"],
        columns: [Column("id", .text), Column("size", .integer), Column("weight", .real, nullable: true)],
        sameKey: .merge),
      Table(
        "thing", primaryKey: ["id"],
        columns: [
          Column("id", .text), Column("box", .text, nullable: true), Column("label", .text, nullable: true),
          Column("picture", .blob, nullable: true), Column("above", .text, nullable: true),
        ],
        references: [
          Reference(column: "box", table: "box", onDelete: .restrict),
          Reference(column: "above", table: "thing", onDelete: .setNull),
        ], unique: [["label"]]),
    ])

    /// A stream of random numbers that is the same for both stores.
    private struct Dice {
      var state: UInt64
      mutating func roll(_ sides: Int) -> Int {
        state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
        return Int(state >> 33) % sides
      }
    }

    private struct Change {
      var shape: UploadShape
      var values: [Value]
    }

    private func text(_ text: String) -> Value { .text(Array(text.utf8)) }

    /// Runs of one shape, long enough for sets: most of them without trouble, some with keys that are there or come again, values
    /// that break a constraint, parents that are not there or come later, and rows that others need.
    private func changes(_ dice: inout Dice) -> [Change] {
      var changes: [Change] = []
      for _ in 0..<8 {
        let trouble = dice.roll(3) == 0
        let count = 4 + dice.roll(40)
        switch dice.roll(6) {
        case 0, 1:
          let shape = UploadShape(table: "box", operation: .insert, columns: ["id", "size", "weight"])
          for _ in 0..<count {
            let size = trouble && dice.roll(10) == 0 ? 2000 : dice.roll(5)
            changes.append(
              Change(
                shape: shape,
                values: [
                  text("b\(dice.roll(trouble ? 60 : 100_000))"), .integer(Int64(size)),
                  dice.roll(4) == 0 ? .null : .real(Double(dice.roll(100)) / 7),
                ]))
          }
        case 2, 3:
          let shape = UploadShape(
            table: "thing", operation: .insert, columns: ["id", "box", "label", "picture", "above"])
          for _ in 0..<count {
            let label = dice.roll(3) == 0 ? Value.null : text("l\(dice.roll(trouble ? 80 : 1_000_000))")
            changes.append(
              Change(
                shape: shape,
                values: [
                  text("t\(dice.roll(trouble ? 90 : 100_000))"), trouble ? text("b\(dice.roll(70))") : .null, label,
                  dice.roll(2) == 0 ? .null : .blob([UInt8(dice.roll(256)), 0, 255]),
                  trouble && dice.roll(6) == 0 ? text("t\(dice.roll(90))") : .null,
                ]))
          }
        case 4:
          let shape = UploadShape(table: "box", operation: .update, columns: ["size"])
          for _ in 0..<count {
            changes.append(
              Change(
                shape: shape,
                values: [
                  text("b\(dice.roll(70))"), .integer(Int64(dice.roll(5))),
                  .integer(Int64(trouble && dice.roll(12) == 0 ? 5000 : dice.roll(9))),
                ]))
          }
        default:
          let shape = UploadShape(
            table: dice.roll(2) == 0 ? "box" : "thing", operation: .delete, columns: [])
          for _ in 0..<count {
            changes.append(Change(shape: shape, values: [text("\(shape.table == "box" ? "b" : "t")\(dice.roll(90))")]))
          }
        }
      }
      return changes
    }

    private func chunks(_ changes: [Change], _ stamp: RequestStamp, made: Int64) -> [UploadChunk] {
      var chunks: [UploadChunk] = []
      var next = 0
      while next < changes.count {
        let end = min(changes.count, next + 100)
        var writer = UploadChunkWriter()
        for place in next..<end {
          let shape = writer.place(of: changes[place].shape)
          writer.beginChange(shape: shape, stamp: stamp, counter: Int64(place + 1), made: made)
          for value in changes[place].values { writer.value(value) }
          writer.endChange()
        }
        chunks.append(
          UploadChunk(
            bytes: writer.finish(), firstCounter: writer.firstCounter, lastCounter: writer.lastCounter,
            changeCount: writer.changeCount, isLast: end == changes.count))
        next = end
      }
      return chunks
    }

    /// The rows after a round, and how often its upload has named each.
    private struct Round {
      var remote: RemoteID
      var named: [String: Int]
      var rows: [String: Row]
    }

    private func name(_ table: String, _ key: Value) -> String { "\(table) \(key)" }

    /// The conflicts of an upload, by counter, with the names of their rows.
    private func conflicts(_ stamp: RequestStamp, _ store: any ServerStore) async throws -> [Int64: String] {
      var found: [Int64: String] = [:]
      var last: Int64 = 0
      while case let page = try await store.conflicts(after: last, limit: 500, state: .settled), !page.isEmpty {
        for version in page where version.request.stamp == stamp {
          found[version.request.counter] = name(version.table, version.key[0])
        }
        last = page.last?.id ?? last
      }
      return found
    }

    /// An earlier upload of another device has written the row, and written it back: the log names it, though its commit does not
    /// change it, which is what the specification goes by (docs/internals, *Server stores against the specification*).
    private func wasWrittenBack(_ row: String, besides remote: RemoteID, _ rounds: [Round]) -> Bool {
      rounds.indices.dropFirst().contains { place in
        rounds[place].remote != remote && rounds[place].named[row] ?? 0 > 1
          && rounds[place].rows[row] == rounds[place - 1].rows[row]
      }
    }

    @Test("Uploads of many rows of one shape end as the specification says", arguments: ContractTests.seeds)
    func endsAsTheSpecification(_ seed: UInt64) async throws {
      let settings = try #require(PrivateCluster.shared).database()
      let database = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
      let specification = MemoryServerStore(MemoryServerDatabase())
      let stores: [any ServerStore] = [database, specification]
      for store in stores { _ = try await store.open(ServerSetup(schema: schema)) }
      if seed % 2 == 0 {
        // Found within a minute. PostgreSQL takes no ON CONFLICT beside such a key.
        let desk = try PostgreSQLConnection(settings)
        let unique =
          try desk.scalar(
            "SELECT conname::text FROM pg_constraint WHERE conrelid = 'thing'::regclass AND contype = 'u'")?.string
          ?? ""
        try desk.execute(
          "ALTER TABLE thing DROP CONSTRAINT \(unique), ADD UNIQUE (label) DEFERRABLE INITIALLY DEFERRED")
        database.lookAgain()
        _ = try await database.admit(
          AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: []))
        #expect(try database.view().catalog.table("thing")?.defersKeys == true)
      }
      var dice = Dice(state: seed)
      let remotes = (0..<3).map { _ in RemoteID(from: SystemRandom()) }
      for store in stores { for remote in remotes { try await store.register(remote, principal: "anna") } }
      var rounds: [Round] = []
      for round in 0..<12 {
        let (changes, stamp, sequence) = (
          changes(&dice), RequestStamp(from: SystemRandom()), SequenceID(from: SystemRandom())
        )
        let remote = remotes[dice.roll(3)]
        let late = dice.roll(3)
        var found: [UploadResults] = []
        for store in stores {
          let head = try await store.sweep().number
          found.append(
            try await store.process(
              ProcessRequest(
                remote: remote, sequence: sequence, principal: Principal(name: "anna"),
                chunks: chunks(changes, stamp, made: max(0, head - Int64(late))))))
        }
        #expect(found[0].acceptedRequests == found[1].acceptedRequests, "seed \(seed), round \(round)")
        if found[0].conflicts != found[1].conflicts {
          let (here, meant) = (try await conflicts(stamp, database), try await conflicts(stamp, specification))
          for (counter, row) in here where meant[counter] == nil {
            #expect(wasWrittenBack(row, besides: remote, rounds), "seed \(seed), round \(round): \(row)")
          }
          #expect(Set(meant.keys).isSubset(of: here.keys), "seed \(seed), round \(round)")
          #expect(found[0].conflicts - found[1].conflicts == Int64(here.count - meant.count))
        }
        #expect(
          found[0].refused.map { "\($0.counter) \($0.reason)" }
            == found[1].refused.map { "\($0.counter) \($0.reason)" },
          "seed \(seed), round \(round)")
        for table in ["box", "thing"] {
          #expect(
            try await database.rows(of: table) == specification.rows(of: table),
            "seed \(seed), round \(round): \(table)")
        }
        var now = Round(remote: remote, named: [:], rows: [:])
        for change in changes { now.named[name(change.shape.table, change.values[0]), default: 0] += 1 }
        for table in ["box", "thing"] {
          for row in try await specification.rows(of: table) { now.rows[name(table, row[0])] = row }
        }
        rounds.append(now)
      }
      for store in stores { await store.close() }
    }
  }
#endif
