import SalvorModel
import SalvorStorage
import SalvorWire

extension WaitingBook {
  /// Offers that wait go on under the new names of a table and its columns, and so does what a restore's record counts of the table.
  package static func rename(
    from old: String, to new: String, _ columns: [(old: String, new: String)], _ connection: any StoreConnection
  ) throws {
    let names = Dictionary(columns.map { ($0.old, $0.new) }) { first, _ in first }
    var place: Int64 = 0
    while true {
      let waiting = try connection.rows(
        "SELECT place, payload FROM salvor_heal_waiting WHERE \"table\" = ?1 AND place > ?2 ORDER BY place LIMIT \(batch)",
        .text(old), .integer(place))
      guard let last = waiting.last?[0].integer else { break }
      place = last
      for row in waiting {
        guard case .blob(let payload) = row[1] else { continue }
        try connection.run(
          "UPDATE salvor_heal_waiting SET \"table\" = ?2, payload = ?3 WHERE place = ?1", row[0], .text(new),
          .blob(try renamed(payload, new, names)))
      }
    }
    guard new != old else { return }
    try connection.run("UPDATE salvor_heal_waiting SET parent = ?2 WHERE parent = ?1", .text(old), .text(new))
    try connection.run(
      """
      UPDATE salvor_restore_offer SET "table" = ?2 WHERE "table" = ?1 AND NOT EXISTS
        (SELECT 1 FROM salvor_restore_offer o WHERE o.restore = salvor_restore_offer.restore AND o.remote = salvor_restore_offer.remote AND o."table" = ?2)
      """, .text(old), .text(new))
  }

  /// Two kinds of an upload's lines have names: those of shapes, and those of offers.
  private static func renamed(_ payload: [UInt8], _ table: String, _ columns: [String: String]) throws -> [UInt8] {
    var renamed: [UInt8] = []
    for line in payload.split(separator: 0x0A) {
      guard line.starts(with: Array("{\"shape\":".utf8)) || line.starts(with: Array("{\"offer\":".utf8)),
        case .object(let members) = try JSONValue(parsing: Array(line))
      else {
        renamed += line + [0x0A]
        continue
      }
      let named = members.map { member in
        switch member.key {
        case "table": JSONValue.Member(member.key, .string(table))
        case "columns", "written":
          JSONValue.Member(
            member.key,
            .array(
              (member.value.array ?? []).map { name in .string(name.string.map { columns[$0] ?? $0 } ?? "") }))
        default: member
        }
      }
      renamed += JSONValue.object(named).bytes + [0x0A]
    }
    return renamed
  }
}
