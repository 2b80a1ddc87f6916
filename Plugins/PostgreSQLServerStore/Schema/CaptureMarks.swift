#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What tells that something was altered and looks as before (docs/decisions/0185, 0197): a trigger that was disabled and enabled
  /// again has another row in `pg_trigger`, a value of an enum that was renamed another label, a column that took another one's name
  /// another number. `salvor_server` has what they were when the triggers were looked at last.
  struct CaptureMarks {
    /// Row versions of Salvor's triggers on the table and its parts, and the labels of its enums, by OID; the numbers of the columns that
    /// travel, by name; the table's own OID, by that of Salvor's table of marks, which goes with the database.
    var values: [String: String] = [:]

    enum Finding {
      case same
      /// A trigger was away, or another table has its name: the log does not have what was written meanwhile.
      case wereAway
      /// Rows are others than the log says, and that is no trigger's work: a label, or a `TRUNCATE` that did not see all rows.
      case changed
      /// A column has another one's name. Triggers know it by its number: they look at the one of before.
      case replaced
    }

    func finding(since before: CaptureMarks) -> Finding {
      // What a `TRUNCATE` has left.
      if before.values.isEmpty { return .changed }
      let others = values.filter { name, value in before.values[name].map { $0 != value } ?? false }
      if others.keys.contains(where: { $0.hasPrefix("c") }) { return .replaced }
      if others.keys.contains(where: { $0.hasPrefix("e") }) { return .changed }
      return others.isEmpty ? .same : .wereAway
    }

    static func key(_ number: Int64) -> String { "marks.\(number)" }

    init(_ values: [String: String]) { self.values = values }

    init(_ text: String) {
      for line in text.split(separator: "\n") {
        let words = line.split(separator: " ")
        if words.count == 2 { values[String(words[0])] = String(words[1]) }
      }
    }

    var text: String { values.sorted { $0.key < $1.key }.map { "\($0.key) \($0.value)" }.joined(separator: "\n") }
  }

  extension DatabaseCheck {
    func marks(of table: String, _ number: Int64) throws -> CaptureMarks {
      let triggers = ChangeCapture.events.map { "'\(ChangeCapture.trigger(number, $0))'" }.joined(separator: ", ")
      let found = try connection.rows(
        """
        WITH RECURSIVE part AS (SELECT to_regclass(?1)::oid AS oid
          UNION SELECT i.inhrelid FROM pg_inherits i JOIN part p ON i.inhparent = p.oid)
        SELECT 't' || g.oid, g.xmin::text FROM pg_trigger g JOIN part ON part.oid = g.tgrelid WHERE g.tgname IN (\(triggers))
        UNION ALL
        SELECT 'e' || e.oid, md5(e.enumlabel::text) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
          JOIN pg_enum e ON e.enumtypid IN (t.oid, t.typelem, t.typbasetype)
          WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped
        UNION ALL
        SELECT 'o' || to_regclass(?3)::oid, to_regclass(?1)::oid::text
        UNION ALL
        SELECT 'c' || md5(a.attname::text), a.attnum::text FROM pg_attribute a
          WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped AND a.attname::text IN (
            SELECT json_array_elements_text(columns::json) FROM salvor_table WHERE t = ?2)
        """, .text(Array("\(quoted(connection.settings.tablesIn)).\(quoted(table))".utf8)), .integer(number),
        .text(Array("\(quoted(connection.settings.schema)).salvor_server".utf8)))
      return CaptureMarks(
        Dictionary(found.map { ($0[0].string ?? "", $0[1].string ?? "") }) { first, _ in first })
    }

    /// Nil: nobody looked before, or in another database, whose OIDs were others.
    func knownMarks(_ number: Int64) throws -> CaptureMarks? {
      let text = try connection.scalar(
        """
        SELECT m.value FROM salvor_server m JOIN salvor_server c ON c.key = 'cluster' AND c.value =
          (SELECT system_identifier FROM pg_control_system()) || '/'
            || (SELECT oid FROM pg_database WHERE datname = current_database())
        WHERE m.key = ?1
        """, .text(Array(CaptureMarks.key(number).utf8)))
      return text?.string.map { CaptureMarks($0) }
    }

    /// - Parameter seen: what was found before: whatever was altered since then is found the next time.
    func noteMarks(of table: String, _ number: Int64, seen: CaptureMarks?) throws {
      var marks = try marks(of: table, number)
      for (name, value) in seen?.values ?? [:] where marks.values[name] != nil { marks.values[name] = value }
      try connection.run(
        "INSERT INTO salvor_server (key, value) VALUES (?1, ?2) ON CONFLICT (key) DO UPDATE SET value = ?2 "
          + "WHERE salvor_server.value IS DISTINCT FROM ?2",
        .text(Array(CaptureMarks.key(number).utf8)), .text(Array(marks.text.utf8)))
    }
  }
#endif
