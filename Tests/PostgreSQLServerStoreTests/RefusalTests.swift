#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import Testing

  @testable import PostgreSQLServerStore
  @testable import ServerStoreSupport

  /// What the application's own tables do with rows of devices: one row that they refuse stops no other, and none that they take is refused.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct RefusalTests: Uploading {
    let settings: ConnectionSettings
    let desk: PostgreSQLConnection

    init() throws {
      settings = try #require(PrivateCluster.shared).database()
      desk = try PostgreSQLConnection(settings)
      try desk.execute("SET search_path = public")
    }

    @Test(
      "A key that is GENERATED ALWAYS AS IDENTITY takes the devices' values, of one row and of many",
      arguments: [1, 20])
    func identityAlways(count: Int) async throws {
      try desk.execute("CREATE TABLE item (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)")
      let store = try await open(table("item", .integer, Column("body", .text, nullable: true)))
      let made = (1...count).map { insert("item", ["id", "body"], .integer(Int64($0)), "made") }
      let results = try await upload(store, made)
      #expect(results.acceptedRequests == Int64(count) && results.refused.isEmpty, "\(results.refused)")
      let changed = (1...count).map { update("item", "body", .integer(Int64($0)), "made", "changed") }
      #expect(try await upload(store, changed).acceptedRequests == Int64(count))
      #expect(try desk.integer("SELECT count(*) FROM item WHERE body = 'changed'") == Int64(count))
      await store.close()
    }

    @Test("Two devices that write the same into a column are in no conflict, however PostgreSQL writes the value")
    func sameValues() async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, price numeric(10, 2), at timestamptz, doc jsonb, code char(4));
        INSERT INTO item VALUES ('old', 1, '2026-01-01', '{}', 'a')
        """)
      let columns: [(String, Value, Value, Value)] = [
        ("price", "1.00", "12.5", "12.50"),
        ("at", "2026-01-01 00:00:00+00", "2026-02-02T10:00:00Z", "2026-02-02 10:00:00+00"),
        ("doc", "{}", "{\"b\":1,\"a\":2}", "{\"a\": 2, \"b\": 1}"), ("code", "a   ", "b", "b   "),
      ]
      let store = try await open(
        table(
          "item", .text, Column("price", .text, nullable: true), Column("at", .timestamp, nullable: true),
          Column("doc", .json, nullable: true), Column("code", .text, nullable: true)))
      let changes =
        columns.map { update("item", $0.0, "old", $0.1, $0.2) }
        + [insert("item", ["id"] + columns.map(\.0), "new", columns[0].2, columns[1].2, columns[2].2, columns[3].2)]
      let head = try await store.sweep().number
      for device in 1...2 {
        let results = try await upload(store, changes, made: head)
        #expect(results.refused.isEmpty && results.conflicts == 0, "device \(device): \(results.refused)")
      }
      for (name, _, _, stored) in columns {
        let found = try desk.rows("SELECT DISTINCT \(name) FROM item")
        #expect(found == [[stored]], "\(name): \(found)")
      }
      // Another value is one.
      let other = try await upload(store, [update("item", "price", "old", "1.00", "12.6")], made: head)
      #expect(other.refused.count + Int(other.conflicts) == 1)
      await store.close()
    }

    @Test(
      "A trigger that waits for the end of the transaction refuses its row alone, in its own words", arguments: [1, 20])
    func deferredTrigger(others: Int) async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text);
        CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          IF NEW.body = 'bad' THEN RAISE 'the house is full'; END IF; RETURN NULL; END$$;
        CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE ON item DEFERRABLE INITIALLY DEFERRED
          FOR EACH ROW EXECUTE FUNCTION refuse()
        """)
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      let bodies = (0..<others).map { "\($0)" } + ["bad"] + (others..<2 * others).map { "\($0)" }
      let results = try await upload(
        store, bodies.map { insert("item", ["id", "body"], .text("k\($0)"), .text($0)) })
      #expect(results.acceptedRequests == Int64(2 * others))
      #expect(results.refused.map(\.counter) == [Int64(others + 1)])
      #expect(results.refused.first?.message.contains("the house is full") == true, "\(results.refused)")
      #expect(try desk.integer("SELECT count(*) FROM item WHERE body <> 'bad'") == Int64(2 * others))
      #expect(try desk.integer("SELECT count(*) FROM item") == Int64(2 * others))
      await store.close()
    }

    private static let states = [
      "P0001", "check_violation", "unique_violation", "not_null_violation", "foreign_key_violation",
      "integrity_constraint_violation", "restrict_violation", "invalid_parameter_value", "program_limit_exceeded",
      "feature_not_supported", "query_canceled", "admin_shutdown", "serialization_failure", "deadlock_detected",
      "lock_not_available", "data_corrupted",
    ]

    @Test(
      "What a trigger's author raised is told in his words, whatever state he names, and no cause is invented (semantics 8)"
    )
    func raisedStates() async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text);
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          IF NEW.body <> 'good' THEN RAISE 'a note is required' USING ERRCODE = NEW.body; END IF; RETURN NEW; END$$;
        CREATE TRIGGER own BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION own()
        """)
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      for state in Self.states {
        for others in [1, 20] {
          let good = (0..<others).map { insert("item", ["id", "body"], .text("\(state) \(others) \($0)"), "good") }
          let results = try await upload(store, good + [insert("item", ["id", "body"], "bad", .text(state))])
          #expect(
            results.acceptedRequests == Int64(others) && results.refused.map(\.reason) == [.constraint], "\(state)")
          #expect(
            results.refused.first?.message == "item: the server's database refused the row: a note is required",
            "\(state): \(results.refused)")
        }
      }
      await store.close()
    }

    @Test(
      "A row for which a trigger's function fails is refused, with the function's name, and the others go on (semantics 7)"
    )
    func failingFunction() async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text);
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          IF NEW.body = 'bad' THEN INSERT INTO audit VALUES (NEW.id); END IF; RETURN NEW; END$$;
        CREATE TRIGGER own BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION own()
        """)
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      let good = (0..<20).map { insert("item", ["id", "body"], .text("\($0)"), "good") }
      let results = try await upload(store, good + [insert("item", ["id", "body"], "bad", "bad")])
      #expect(results.acceptedRequests == 20 && results.refused.map(\.reason) == [.constraint])
      #expect(
        results.refused.first?.message
          == "item: the server's database refused the row: own() failed: relation \"audit\" does not exist")
      await store.close()
    }

    @Test("A digest is of the rows as they stand, also where somebody wrote past the triggers (semantics 11)")
    func digestPastTheTriggers() async throws {
      try desk.execute("CREATE TABLE item (id text PRIMARY KEY, body text); INSERT INTO item VALUES ('a', 'x')")
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      let scope = ReadScope(Principal(name: "anna"))
      #expect(try await store.digest(of: "item", for: scope).count == 1)
      try desk.execute(
        "SET session_replication_role = replica; INSERT INTO item VALUES ('b', 'y'); RESET session_replication_role")
      #expect(try await store.digest(of: "item", for: scope).count == 2)
      await store.close()
    }

    @Test(
      "A set that takes longer than a statement may is written in halves, and a row that does is refused by name (11.7)",
      arguments: [false, true])
    func timeLimit(hasSlowRow: Bool) async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text);
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          PERFORM pg_sleep(CASE NEW.body WHEN 'slow' THEN 9 ELSE 0.06 END); RETURN NEW; END$$;
        CREATE TRIGGER own BEFORE INSERT ON item FOR EACH ROW EXECUTE FUNCTION own()
        """)
      let item = table("item", .text, Column("body", .text, nullable: true))
      // What is made at the first start may take longer.
      await (try open(item)).close()
      let store = try await open(item, timeLimit: 1500)
      let bodies = (0..<40).map { hasSlowRow && $0 == 11 ? "slow" : "b" }
      let results = try await upload(
        store, bodies.enumerated().map { insert("item", ["id", "body"], .text("k\($0)"), .text($1)) })
      #expect(results.acceptedRequests == (hasSlowRow ? 39 : 40))
      #expect(results.refused.map(\.counter) == (hasSlowRow ? [12] : []))
      if hasSlowRow {
        #expect(results.refused.first?.message.hasPrefix("item: the server's database took longer") == true)
      }
      #expect(try desk.integer("SELECT count(*) FROM item") == (hasSlowRow ? 39 : 40))
      await store.close()
    }

    @Test("A value that its column does not hold is refused with the column and its type (11.7)")
    func misfits() async throws {
      let cases: [(type: String, kind: ColumnType, value: Value, name: String)] = [
        ("varchar(4)", .text, "too long", "character varying(4)"), ("numeric(4, 1)", .text, "99999", "numeric(4,1)"),
        ("mood", .text, "neither", "mood"), ("date", .timestamp, "no date", "date"),
        ("int[]", .text, "{a}", "integer[]"),
        ("jsonb", .json, "{", "jsonb"), ("inet", .text, "somewhere", "inet"), ("short", .text, "long", "short"),
        ("real", .real, .real(1e300), "real"), ("uuid", .text, "none", "uuid"),
      ]
      try desk.execute(
        """
        CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN short AS varchar(2);
        CREATE TABLE item (id text PRIMARY KEY, \(cases.enumerated().map { "c\($0) \($1.type)" }.joined(separator: ", ")))
        """)
      let store = try await open(
        Table(
          "item", primaryKey: ["id"],
          columns: [Column("id", .text)] + cases.enumerated().map { Column("c\($0)", $1.kind, nullable: true) }))
      for (place, entry) in cases.enumerated() {
        let others = place.isMultiple(of: 2) ? 1 : 20
        let good = (0..<others).map { insert("item", ["id"], .text("\(place) \($0)")) }
        let results = try await upload(
          store, good + [insert("item", ["id", "c\(place)"], .text("\(place)"), entry.value)])
        #expect(results.acceptedRequests == Int64(others))
        #expect(
          results.refused.map(\.message) == [
            "item.c\(place): the server's database cannot store the value as \(entry.name). Correct it."
          ])
      }
      await store.close()
    }

    @Test("A row that an index does not hold is refused with PostgreSQL's words about its size")
    func rowsBeyondAnIndex() async throws {
      try desk.execute("CREATE TABLE item (id text PRIMARY KEY, body text); CREATE INDEX body_index ON item (body)")
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      let long = (0..<4000).map { _ in String(UInt8.random(in: .min ... .max), radix: 16) }.joined()
      let results = try await upload(store, [insert("item", ["id", "body"], "a", .text(long))])
      #expect(results.refused.map(\.reason) == [.notStorable])
      #expect(results.refused.first?.message.contains("body_index") == true, "\(results.refused)")
      await store.close()
    }

    @Test(
      "An insert of a key that a table which inherits holds is merged with that row (11.2, 11.4)",
      arguments: ["text", "varchar(9)", "identifier"])
    func inheritedKeys(type: String) async throws {
      try desk.execute(
        """
        CREATE DOMAIN identifier AS text;
        CREATE TABLE item (id \(type) PRIMARY KEY, body text, more text); CREATE TABLE heir (PRIMARY KEY (id)) INHERITS (item);
        INSERT INTO heir SELECT 'k' || n, 'of the heir' FROM generate_series(0, 40) n
        """)
      let store = try await open(
        table("item", .text, Column("body", .text, nullable: true), Column("more", .text, nullable: true)))
      for keys in [0..<1, 1..<41] {
        let results = try await upload(
          store,
          keys.map { insert("item", ["id", "more"], .text("k\($0)"), "sent") }
            + keys.map { insert("item", ["id", "more"], .text("n\($0)"), "sent") })
        #expect(results.acceptedRequests == Int64(2 * keys.count) && results.refused.isEmpty, "\(results.refused)")
      }
      #expect(try desk.integer("SELECT count(*) FROM item") == 82)
      #expect(try desk.integer("SELECT count(*) FROM heir WHERE body = 'of the heir' AND more = 'sent'") == 41)
      await store.close()
    }

    @Test(
      "A row whose key a trigger changes in an update is fed to its sender, and so is that the one of before is gone (11.4)"
    )
    func keysThatATriggerChanges() async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text);
        INSERT INTO item SELECT 'k' || n, 'made' FROM generate_series(0, 40) n;
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN NEW.id := OLD.id || '_new'; RETURN NEW; END$$;
        CREATE TRIGGER own BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION own()
        """)
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      for keys in [0..<1, 1..<41] {
        let results = try await upload(store, keys.map { update("item", "body", .text("k\($0)"), "made", "new") })
        #expect(results.acceptedRequests == Int64(keys.count) && results.refused.isEmpty, "\(results.refused)")
      }
      let fed = "SELECT count(DISTINCT v0) FROM salvor.salvor_change WHERE op = \(LogOperation.differs)"
      #expect(try desk.integer(fed) == 82)
      await store.close()
    }

    private static let takingBack: [(event: String, body: String)] = [
      ("BEFORE INSERT", "IF NEW.body = 'mine' THEN INSERT INTO told VALUES (1); RETURN NULL; END IF; RETURN NEW;"),
      ("AFTER INSERT", "IF NEW.body = 'mine' THEN DELETE FROM item WHERE id = NEW.id; END IF; RETURN NULL;"),
      ("BEFORE UPDATE", "IF NEW.body = 'mine' THEN RETURN NULL; END IF; RETURN NEW;"),
      (
        "AFTER UPDATE",
        "IF NEW.body = 'mine' THEN INSERT INTO told VALUES (1); UPDATE item SET body = OLD.body WHERE id = OLD.id; END IF; RETURN NULL;"
      ),
      ("BEFORE DELETE", "IF OLD.body = 'here' THEN RETURN NULL; END IF; RETURN OLD;"),
      ("AFTER DELETE", "IF OLD.body = 'here' THEN INSERT INTO item VALUES (OLD.id, OLD.body); END IF; RETURN NULL;"),
    ]

    @Test(
      "A change of which a trigger leaves nothing in the table is refused, with the trigger's name, and leaves nothing (semantics 7, 11.2)",
      arguments: 0..<6, [0, 20, 3000])
    func takenBack(which: Int, others: Int) async throws {
      let (event, body) = Self.takingBack[which]
      try desk.execute("CREATE TABLE item (id text PRIMARY KEY, body text); CREATE TABLE told (what int)")
      let store = try await open(table("item", .text, Column("body", .text, nullable: true)))
      try desk.execute(
        """
        INSERT INTO item SELECT 'o' || n, 'other' FROM generate_series(1, \(others)) n; INSERT INTO item VALUES ('v', 'here');
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN \(body) END$$;
        CREATE TRIGGER sweeper \(event) ON item FOR EACH ROW EXECUTE FUNCTION own()
        """)
      _ = try await store.sweep()
      let change: (String) -> (UploadShape, [Value]) = { key in
        switch which {
        case 0, 1:
          insert("item", ["id", "body"], .text(key == "v" ? "n" : "n" + key), .text(key == "v" ? "mine" : "x"))
        case 2, 3:
          update("item", "body", .text(key), .text(key == "v" ? "here" : "other"), .text(key == "v" ? "mine" : "x"))
        default: delete("item", .text(key))
        }
      }
      let keys = (0..<others).map { "o\($0 + 1)" }
      let results = try await upload(store, (keys[..<(others / 2)] + ["v"] + keys[(others / 2)...]).map(change))
      #expect(results.acceptedRequests == Int64(others))
      #expect(
        results.refused.map(\.counter) == [Int64(others / 2 + 1)] && results.refused.map(\.reason) == [.constraint])
      #expect(results.refused.first?.message.contains("sweeper") == true, "\(results.refused)")
      #expect(try rows("SELECT body FROM item WHERE id IN ('v', 'n')") == ["here"])
      #expect(try desk.integer("SELECT count(*) FROM told") == 0)
      await store.close()
    }

    @Test(
      "A value that its type stores as it was is accepted beside triggers, too, and what a trigger makes of a row is")
    func madeOfIt() async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body varchar(10), price numeric(9, 2));
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          UPDATE item SET body = 'deleted' WHERE id = OLD.id; RETURN NULL; END$$;
        CREATE TRIGGER soft BEFORE DELETE ON item FOR EACH ROW EXECUTE FUNCTION own();
        INSERT INTO item VALUES ('a', 'here', 1.50), ('b', 'here', 2)
        """)
      let store = try await open(
        table("item", .text, Column("body", .text, nullable: true), Column("price", .text, nullable: true)))
      let results = try await upload(store, [delete("item", "a"), update("item", "price", "b", "2.00", "2.001")])
      #expect(results.acceptedRequests == 2 && results.refused.isEmpty, "\(results.refused)")
      #expect(try rows("SELECT body FROM item ORDER BY id") == ["deleted", "here"])
      await store.close()
    }

    @Test(
      "What a trigger sets beside an update is fed to its sender, and nothing is where there is no trigger",
      arguments: [1, 60])
    func setBeside(count: Int) async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, body text, times integer NOT NULL DEFAULT 0);
        CREATE TABLE plain (id text PRIMARY KEY, body text);
        CREATE FUNCTION own() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          NEW.times := OLD.times + 1; RETURN NEW; END$$;
        CREATE TRIGGER counted BEFORE UPDATE ON item FOR EACH ROW EXECUTE FUNCTION own();
        INSERT INTO item SELECT 'i' || n, 'old' FROM generate_series(1, \(count)) n;
        INSERT INTO plain SELECT 'i' || n, 'old' FROM generate_series(1, \(count)) n
        """)
      let body = Column("body", .text, nullable: true)
      let store = try await open(table("item", .text, body, Column("times", .integer)), table("plain", .text, body))
      let changes = ["item", "plain"].flatMap { name in
        (1...count).map { update(name, "body", .text("i\($0)"), "old", "new") }
      }
      #expect(try await upload(store, changes).acceptedRequests == Int64(2 * count))
      #expect(try desk.integer("SELECT sum(times) FROM item") == Int64(count))
      let fed = "SELECT count(DISTINCT v0) FROM salvor.salvor_change WHERE op = \(LogOperation.differs) AND t = "
      for (number, wanted) in [(1, count), (2, 0)] {
        #expect(try desk.integer(fed + "\(number)") == Int64(wanted))
      }
      await store.close()
    }

    @Test("A delete does not cascade to rows that the device did not see, where the schema does not declare it, either")
    func undeclaredCascade() async throws {
      try desk.execute("CREATE TABLE item (id text PRIMARY KEY); CREATE TABLE part (id text PRIMARY KEY, item text)")
      let (item, part) = (table("item", .text), table("part", .text, Column("item", .text, nullable: true)))
      await (try open(item, part)).close()
      try desk.execute(
        """
        ALTER TABLE part ADD FOREIGN KEY (item) REFERENCES item ON DELETE CASCADE;
        INSERT INTO item VALUES ('a'), ('b'), ('c'); INSERT INTO part VALUES ('p', 'a'), ('q', 'b')
        """)
      let store = try await open(item, part)
      let results = try await upload(
        store, [delete("item", "a"), delete("item", "c"), delete("part", "q"), delete("item", "b")])
      #expect(results.refused.map(\.reason) == [.conflict] && results.refused.map(\.counter) == [1])
      #expect(try rows("SELECT id FROM item") == ["a"])
      #expect(try rows("SELECT id FROM part") == ["p"])
      await store.close()
    }

    @Test("NULL where the schema has none is refused, though the table takes it")
    func laxColumns() async throws {
      try desk.execute("CREATE TABLE item (id text PRIMARY KEY, body text)")
      let store = try await open(table("item", .text, Column("body", .text)))
      let results = try await upload(
        store,
        [
          insert("item", ["id", "body"], "a", "x"), insert("item", ["id", "body"], "b", .null),
          insert("item", ["id"], "c"), update("item", "body", "a", "x", .null),
        ])
      #expect(results.refused.map(\.reason) == [.constraint, .constraint, .constraint], "\(results.refused)")
      #expect(try rows("SELECT id || body FROM item") == ["ax"])
      await store.close()
    }

    @Test("A uuid in capitals is stored as the database writes it, and refused where it is a key")
    func capitalUUIDs() async throws {
      try desk.execute("CREATE TABLE item (id uuid PRIMARY KEY, tag uuid)")
      let store = try await open(table("item", .text, Column("tag", .text, nullable: true)))
      let (small, large) = ("a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A12")
      let results = try await upload(
        store,
        [
          insert("item", ["id", "tag"], .text(small), .text(large)),
          insert("item", ["id", "tag"], .text(large), .null),
        ])
      #expect(results.refused.map(\.reason) == [.notStorable] && results.refused.map(\.counter) == [2])
      #expect(results.refused.first?.message.contains("lower case") == true, "\(results.refused)")
      #expect(try rows("SELECT tag::text FROM item") == [large.lowercased()])
      await store.close()
    }

    @Test("What the database sets for its sessions changes nothing of what is stored and which names are known")
    func settingsOfTheDatabase() async throws {
      try desk.execute(
        """
        CREATE TABLE item (id text PRIMARY KEY, tags text[]);
        DO $$BEGIN
          EXECUTE format('ALTER DATABASE %I SET quote_all_identifiers = on', current_database());
          EXECUTE format('ALTER DATABASE %I SET array_nulls = off', current_database());
        END$$
        """)
      let store = try await open(table("item", .text, Column("tags", .text, nullable: true)))
      let results = try await upload(store, [insert("item", ["id", "tags"], "a", "{NULL,x}")])
      #expect(results.refused.isEmpty, "\(results.refused)")
      #expect(try desk.integer("SELECT tags[1] IS NULL FROM item") == 1)
      await store.close()
    }

    @Test("Names that have in them what quotes the text of triggers are names like others", arguments: [false, true])
    func namesThatQuote(inParts: Bool) async throws {
      let name = "a$salvor$b$entry$"
      try desk.execute(
        """
        CREATE TABLE "\(name)" (id text PRIMARY KEY, "$entry$" text)\(inParts ? " PARTITION BY RANGE (id)" : "")\(
          inParts ? "; CREATE TABLE part PARTITION OF \"\(name)\" DEFAULT" : "")
        """)
      let store = try await open(table(name, .text, Column("$entry$", .text, nullable: true)))
      try desk.execute("INSERT INTO \"\(name)\" VALUES ('k', 'v')")
      let head = try await store.sweep().number
      try desk.execute("TRUNCATE \"\(name)\"")
      #expect(try await store.sweep().number == head + 1)
      await store.close()
    }

    @Test("Rows that a trigger changes while a set is written are written one by one")
    func setsThatATriggerChanges() async throws {
      try desk.execute(
        """
        CREATE TABLE address (id text PRIMARY KEY, customer text, main integer);
        CREATE FUNCTION one_main() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
          IF NEW.main = 1 THEN
            UPDATE address SET main = 0 WHERE customer = NEW.customer AND id <> NEW.id AND main = 1;
          END IF; RETURN NEW; END$$;
        CREATE TRIGGER one_main BEFORE INSERT OR UPDATE ON address FOR EACH ROW EXECUTE FUNCTION one_main();
        INSERT INTO address SELECT c || '-' || i, c, i - 1 FROM generate_series(1, 9) c, generate_series(1, 2) i
        """)
      let store = try await open(
        table("address", .text, Column("customer", .text, nullable: true), Column("main", .integer, nullable: true)))
      let results = try await upload(
        store,
        (1...9).map { update("address", "main", .text("\($0)-1"), 0, 1) }
          + (1...9).map { update("address", "main", .text("\($0)-2"), 1, 0) })
      #expect(results.acceptedRequests == 18 && results.refused.isEmpty, "\(results.refused)")
      #expect(try rows("SELECT id FROM address WHERE main = 1 ORDER BY id") == (1...9).map { "\($0)-1" })
      await store.close()
    }

    @Test(
      "Unique values that two rows swap are swapped; where nothing can stand in for one meanwhile both changes are refused, and nothing else"
    )
    func swappedUniqueValues() async throws {
      let ones = "11111111-2222-3333-4444-555555555555", twos = "21111111-2222-3333-4444-555555555555"
      let cases: [(type: String, kind: ColumnType, one: Value, other: Value, isSwapped: Bool)] = [
        ("text", .text, "aa", "bb", true), ("varchar(20)", .text, "aa", "bb", true),
        ("uuid", .text, .text(ones), .text(twos), true), ("date", .timestamp, "2026-01-01", "2026-01-02", true),
        ("timestamptz", .timestamp, "2026-01-01 00:00:00+00", "2026-01-02 00:00:00+00", true),
        ("numeric", .text, "1.5", "2.5", true), ("smallint", .integer, 1, 2, true), ("integer", .integer, 1, 2, true),
        ("bigint", .integer, 1, 2, true), ("jsonb", .json, "{}", "[]", true),
        ("bytea", .blob, .blob([1]), .blob([2]), true),
        ("varchar(2)", .text, "aa", "bb", false), ("numeric(4, 1)", .text, "1.5", "2.5", false),
        ("mood", .text, "sad", "glad", false), ("integer CHECK (u > 0)", .integer, 1, 2, false),
      ]
      try desk.execute("CREATE TYPE mood AS ENUM ('sad', 'glad'); CREATE TABLE other (id text PRIMARY KEY)")
      for (place, entry) in cases.enumerated() {
        try desk.execute("CREATE TABLE t\(place) (id text PRIMARY KEY, u \(entry.type) NOT NULL, UNIQUE (u))")
      }
      let tables = cases.enumerated().map { table("t\($0)", .text, Column("u", $1.kind), unique: [["u"]]) }
      let store = PostgreSQLServerStore(PostgreSQLServerStore.Options(url: settings.url, connections: 4))
      _ = try await store.open(ServerSetup(schema: Schema(tables: tables + [table("other", .text)])))
      for (place, entry) in cases.enumerated() {
        let name = "t\(place)"
        let rows = [("1", entry.one), ("2", entry.other)].map { insert(name, ["id", "u"], .text($0), $1) }
        #expect(try await upload(store, rows).acceptedRequests == 2, "\(entry.type)")
        let before = try desk.rows("SELECT u::text FROM \(name) ORDER BY id")
        let results = try await upload(
          store,
          [
            insert("other", ["id"], .text(name)), update(name, "u", "1", entry.one, entry.other),
            update(name, "u", "2", entry.other, entry.one),
          ])
        let after = try desk.rows("SELECT u::text FROM \(name) ORDER BY id")
        #expect(after == (entry.isSwapped ? before.reversed() : before), "\(entry.type): \(after)")
        let refused = entry.isSwapped ? [] : ["2 constraint", "3 blocked"]
        #expect(
          results.refused.map { "\($0.counter) \($0.reason.rawValue)" } == refused, "\(entry.type): \(results.refused)")
      }
      #expect(try desk.integer("SELECT count(*) FROM other") == Int64(cases.count))
      await store.close()
    }
  }
#endif
