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
