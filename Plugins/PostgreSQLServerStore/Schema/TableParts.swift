#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// A part of a table: a partition, or a table that inherits from it, at every depth.
  struct TablePart {
    /// As SQL takes it.
    var name: String
    /// PostgreSQL gives it the triggers of each row of its parent's; those of `TRUNCATE` it gives to none.
    var isPartition: Bool
    /// All of Salvor's triggers are there, and fire.
    var isCaptured: Bool
  }

  extension DatabaseCheck {
    /// Whether all that is written into a table is captured.
    enum Capture: Sendable, Hashable {
      case whole
      /// These parts have come since the last look. What is written into them is captured, their rows of before are not.
      case partsCame([String])
      /// A trigger was away, and is there again (`CaptureMarks`).
      case interrupted
      /// A trigger is away, a part has gone with its rows, or rows have changed that no trigger saw: nobody knows what the log lacks.
      case lacking
      /// The same, and the triggers look at columns that others have taken the names of.
      case replaced
    }

    func capture(_ table: String, _ number: Int64, eachRow: Bool, always: Bool) throws -> Capture {
      let finding = try knownMarks(number).map { try marks(of: table, number).finding(since: $0) } ?? .same
      if finding == .replaced { return .replaced }
      guard try isCaptured(table, number, eachRow: eachRow, always: always) else { return .lacking }
      if finding == .changed { return .lacking }
      let whole = finding == .same ? Capture.whole : .interrupted
      let parts = try parts(of: table, number, always: always)
      let known = try knownParts(number)
      if parts.isEmpty, known?.isEmpty ?? true { return whole }
      let names = Set(parts.map(\.name))
      guard let known, known.isSubset(of: names),
        parts.allSatisfy({ $0.isCaptured || !known.contains($0.name) })
      else { return .lacking }
      let came = names.subtracting(known).sorted()
      return came.isEmpty || whole != .whole ? whole : .partsCame(came)
    }

    func parts(of table: String, _ number: Int64, always: Bool = false) throws -> [TablePart] {
      let triggers = ChangeCapture.events.map { "'\(ChangeCapture.trigger(number, $0))'" }.joined(separator: ", ")
      return try connection.rows(
        """
        WITH RECURSIVE part AS (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass(?1)
          UNION SELECT i.inhrelid FROM pg_inherits i JOIN part p ON i.inhparent = p.inhrelid)
        SELECT format('%I.%I', n.nspname, c.relname), c.relispartition,
          (SELECT count(*) FROM pg_trigger g WHERE g.tgrelid = c.oid AND g.tgname IN (\(triggers))
            AND \(Self.fires(always: always))) = \(ChangeCapture.events.count)
        FROM part JOIN pg_class c ON c.oid = part.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE c.relkind IN ('r', 'p') ORDER BY 1
        """, .text(Array("\(quoted(connection.settings.tablesIn)).\(quoted(table))".utf8))
      ).map { TablePart(name: $0[0].string ?? "", isPartition: $0[1] == 1, isCaptured: $0[2] == 1) }
    }

    /// Those that the table had when its triggers were looked at last; nil: it was never asked for them.
    func knownParts(_ number: Int64) throws -> Set<String>? {
      let text = try connection.scalar("SELECT value FROM salvor_server WHERE key = ?1", Self.key(number))?.string
      return text.map { Set($0.split(separator: "\n").map(String.init)) }
    }

    func note(_ parts: [TablePart], of number: Int64) throws {
      guard try knownParts(number) ?? [] != Set(parts.map(\.name)) else { return }
      try connection.run(
        "INSERT INTO salvor_server (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2",
        Self.key(number), .text(Array(parts.map(\.name).joined(separator: "\n").utf8)))
    }

    private static func key(_ number: Int64) -> Value { .text(Array("parts.\(number)".utf8)) }
  }

  extension ChangeCapture {
    /// Of a part, beside what PostgreSQL gives it itself.
    func statements(of part: TablePart, capturesReplicas: Bool) -> [String] {
      let own = part.isPartition ? ["truncate"] : Self.events
      let enabled = capturesReplicas ? "ENABLE ALWAYS" : "ENABLE"
      return dropping(part.name, own) + triggers(of: part.name, own)
        + Self.events.map { "ALTER TABLE \(part.name) \(enabled) TRIGGER \(quoted(Self.trigger(t, $0)))" }
    }

    /// Of one that was a part.
    func dropping(_ part: String, _ events: [String] = ChangeCapture.events) -> [String] {
      events.map { "DROP TRIGGER IF EXISTS \(quoted(Self.trigger(t, $0))) ON \(part)" }
    }
  }
#endif
