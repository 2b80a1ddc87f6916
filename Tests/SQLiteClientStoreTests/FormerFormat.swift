import SQLiteSupport
import SalvorModel
import SalvorStorage

@testable import SQLiteClientStore

extension SQLiteClientStore {
  /// The file as format 1 had it: old values are those of the base, three operations say what the base is, and what a change
  /// saw stands beside the log. To be opened anew.
  func writeFormerFormat() throws {
    let context = try opened()
    let connection = context.connection
    try connection.transaction {
      try connection.execute("CREATE TABLE salvor_seen (seq INTEGER PRIMARY KEY, before TEXT NOT NULL)")
      let index = try LogIndex(context)
      for table in context.catalog.tables {
        var rows: [(Key, [LogEntry], RowTimeline)] = []
        try index.eachRow(of: table) { key in
          let entries = try index.entries(table, key)
          if !entries.isEmpty { rows.append((key, entries, try index.timeline(table, key))) }
        }
        for (key, entries, timeline) in rows {
          for (entry, step) in zip(entries, timeline.steps) { try write(entry, step, key, table, connection) }
        }
      }
      try connection.execute("DROP TABLE salvor_value; DROP TABLE salvor_base")
      try connection.setState(.format, .integer(1))
      try connection.setState(.opened, Value?.none)
    }
    try writeFormerRequests(format: 1)
  }

  private func write(
    _ entry: LogEntry, _ step: RowTimeline.Step, _ key: Key, _ table: CapturedTable, _ connection: SQLiteConnection
  ) throws {
    var code = entry.operation.rawValue
    var values = key + Array(repeating: Value.null, count: table.columns.count - table.keyCount)
    var saw: [Value]?
    switch step.change {
    case .insert:
      if let before = step.before {
        code = 7
        values = before
      }
    case .update(let news):
      let slots = news.keys.sorted()
      for slot in slots { values[slot] = step.before?[slot] ?? .null }
      if slots.contains(where: { step.saw?[$0] != values[$0] }) { saw = slots.map { step.saw?[$0] ?? .null } }
    case .delete:
      if step.before == nil { code = step.isJoined ? 9 : 8 }
      values = step.before ?? (entry.mask.isEmpty ? values : entry.values)
      if let row = step.saw, row != step.before { saw = row }
    }
    let sets = values.indices.map { "v\($0) = ?\($0 + 3)" }.joined(separator: ", ")
    let mask = step.change == .delete ? (code == 9 && !entry.mask.isEmpty ? ", m0 = 1" : ", m0 = NULL") : ""
    try connection.run(
      "UPDATE salvor_log SET op = ?2, \(sets)\(mask) WHERE seq = ?1", [.integer(step.seq), .integer(code)] + values)
    if let saw {
      try connection.run("INSERT INTO salvor_seen VALUES (?1, ?2)", .integer(step.seq), .text(payload(saw)))
    }
  }

  /// What is known of requests as format 2 had it: in six tables, which a view and triggers name, and with each change of the
  /// archive. To be opened anew.
  func writeFormerRequests(format: Int64 = 2) throws {
    let connection = try openedEvenPaused().connection
    try connection.transaction {
      try connection.execute(
        """
        CREATE TABLE salvor_range (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, tag TEXT);
        INSERT INTO salvor_range SELECT first, last, tag FROM salvor_outstanding WHERE last > first OR tag IS NOT NULL;
        CREATE TABLE salvor_request_state (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT, status INTEGER, message TEXT, blocked_by TEXT, at INTEGER);
        INSERT INTO salvor_request_state SELECT first, last, state, reason, status, message, blocked_by, at FROM salvor_outstanding WHERE state IN ('refused', 'blocked');
        CREATE TABLE salvor_request_note (first INTEGER PRIMARY KEY, since INTEGER, attempts INTEGER NOT NULL, last_attempt INTEGER);
        INSERT INTO salvor_request_note SELECT first, since, attempts, last_attempt FROM salvor_outstanding WHERE since IS NOT NULL OR attempts > 0;
        CREATE TABLE salvor_request_history (first INTEGER NOT NULL, place INTEGER NOT NULL, id TEXT NOT NULL, PRIMARY KEY (first, place)) WITHOUT ROWID;
        CREATE INDEX salvor_request_history_id ON salvor_request_history (id);
        INSERT INTO salvor_request_history SELECT o.first, j.key, j.value FROM salvor_outstanding o, json_each(o.history) j WHERE o.history IS NOT NULL;
        CREATE TABLE salvor_restamped (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, stamp TEXT NOT NULL);
        INSERT INTO salvor_restamped SELECT first, last, stamp FROM salvor_outstanding WHERE stamp IS NOT NULL;
        CREATE TABLE salvor_upload_excluded (first INTEGER PRIMARY KEY, last INTEGER NOT NULL);
        INSERT INTO salvor_upload_excluded SELECT first, last FROM salvor_outstanding WHERE apart = 1;
        CREATE TEMP TABLE former_archive AS SELECT a.seq, a.first, o.last, coalesce(o.stamp, (SELECT stamp FROM salvor_stamp WHERE first_seq <= a.first ORDER BY first_seq DESC LIMIT 1)), o.tag, a.t, a.op, a.joined, a.slots, a.key, a.before, a.after, o.state, o.state_before, o.reason, o.status, o.message, o.blocked_by, o.at, a.shown_key, a.shown_before, a.shown_after FROM salvor_archive a JOIN salvor_outstanding o ON o.first = a.first;
        DROP TABLE main.salvor_archive;
        CREATE TABLE salvor_archive (seq INTEGER PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, stamp TEXT NOT NULL, tag TEXT, t INTEGER NOT NULL, op TEXT NOT NULL, joined INTEGER NOT NULL, slots TEXT NOT NULL, key TEXT NOT NULL, before TEXT NOT NULL, after TEXT NOT NULL, state TEXT NOT NULL, state_before TEXT, reason TEXT, status INTEGER, message TEXT, blocked_by TEXT, at INTEGER, shown_key, shown_before TEXT, shown_after TEXT);
        INSERT INTO salvor_archive SELECT * FROM temp.former_archive;
        DROP TABLE temp.former_archive;
        """)
      for row in try connection.rows(
        "SELECT type, name, sql FROM sqlite_schema WHERE type IN ('view', 'trigger') AND sql LIKE '%salvor\\_outstanding%' ESCAPE '\\'"
      ) {
        guard let type = row[0].string, let name = row[1].string, let sql = row[2].string else { continue }
        try connection.execute("DROP \(type) \(name)")
        let former =
          type == "view"
          ? "CREATE VIEW \(name) AS SELECT * FROM salvor_range"
          : sql.replacing("salvor_outstanding e WHERE e.apart = 1 AND", with: "salvor_upload_excluded e WHERE")
            .replacing(
              "salvor_outstanding r WHERE r.state IN ('refused', 'blocked') AND", with: "salvor_request_state r WHERE")
        try connection.execute(former)
      }
      try connection.execute("DROP TABLE salvor_outstanding")
      try connection.setState(.format, .integer(format))
      try connection.setState(.opened, Value?.none)
    }
  }

  /// Every row with requests, as it is decoded.
  func timelines() throws -> [RowRef: RowTimeline] {
    let context = try opened()
    let index = try LogIndex(context)
    var found: [RowRef: RowTimeline] = [:]
    for table in context.catalog.tables {
      try index.eachRow(of: table) { found[RowRef(table: table.number, key: $0)] = try index.timeline(table, $0) }
    }
    return found
  }
}
