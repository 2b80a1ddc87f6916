import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What the server acknowledged in a column that the schema has dropped since. The device remembers it as it does conflict versions (`salvor_kept`),
/// until no listed copy of the server is from before it. It is of the retired table that the archive's entries of the column belong to: so
/// nothing sends it.
struct DroppedValue {
  var seq: Int64
  var table: CapturedTable
  var key: Key
  var slot: Int
  var value: Value

  var column: String { table.columns[slot].name }
}

extension StoreContext {
  private static let isDroppedValue = "t NOT IN (SELECT id FROM salvor_table)"

  /// - Parameter number: the commit of the row.
  func remember(_ dropped: DroppedValue, number: Int64) throws {
    try connection.run(
      """
      INSERT INTO salvor_kept (seq, first, last, stamp, t, op, slots, key, before, after, made, number)
        VALUES (?1, ?1, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9)
      """,
      [
        .integer(dropped.seq), .text(try stamp(of: dropped.seq).text), .integer(dropped.table.number),
        .text(Operation.update.rawValue), .text("\(dropped.slot)"), .text(payload(dropped.key)), .text(payload([])),
        .text(payload([dropped.value])), .integer(number),
      ])
  }

  /// Those that a server which has nothing after the commit `shared` has lost, in order; of those up to `last`. They are not remembered any more.
  func takeDroppedValues(after shared: Int64, upTo last: Int64) throws -> [DroppedValue] {
    let lost = "salvor_kept WHERE \(Self.isDroppedValue) AND number > ?1 AND seq <= ?2"
    let bounds: [Value] = [.integer(shared), .integer(last)]
    let rows = try connection.rows("SELECT seq, t, key, slots, after FROM \(lost) ORDER BY seq", bounds)
    if rows.isEmpty { return [] }
    let retired = try retiredTables()
    try connection.run("DELETE FROM \(lost)", bounds)
    return try rows.compactMap { row in
      guard let seq = row[0].integer, let table = row[1].integer.flatMap({ retired[$0] }),
        let slot = row[3].string.flatMap({ Int($0) }), slot < table.columns.count,
        let value = try unpayload(row[4]).first
      else { return nil }
      return DroppedValue(seq: seq, table: table, key: try unpayload(row[2]), slot: slot, value: value)
    }
  }

  func archive(lost dropped: DroppedValue) throws -> RowTimeline.Step {
    let step = RowTimeline.Step(
      seq: dropped.seq, change: .update([dropped.slot: dropped.value]), isJoined: false, before: nil, after: nil)
    try archive(
      step, of: RequestRange(first: dropped.seq, last: dropped.seq), dropped.table, dropped.key,
      kept: (
        "lost-on-server",
        "The server acknowledged this value and has lost it. The column \(dropped.table.name).\(dropped.column) was dropped from the schema."
      ))
    return step
  }
}
