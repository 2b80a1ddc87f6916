import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Parts of rows (decision 103): the columns that were changed of a row that is here. The new base is the old one with them.
extension DownloadStream {
  private static var lackingMax: Int { 10_000 }
  private static var statementsMax: Int { 64 }

  func writePart(
    _ reader: inout DownloadChunkReader, _ target: Target, _ places: [Int], _ version: Int64?
  ) throws {
    guard watch == nil else { throw reader.malformed("a part of a row in a recovery") }
    let table = target.table
    var values: [Value] = []
    while let item = try reader.item() { values.append(item.value) }
    guard values.count == places.count else { throw reader.malformed("a part of a row has not its columns") }
    let changed = zip(places, values).map { (slot: target.slots[$0], value: $1) }
    var key = Key(repeating: .null, count: table.keyCount)
    for (slot, value) in changed where slot < table.keyCount { key[slot] = value }
    let merged = { (row: SlotRow) -> SlotRow in
      var row = row
      for (slot, value) in changed { row[slot] = value }
      return row
    }
    if onlyTables == nil, let version { try remember(table, key, version, nil) }
    try touched.writtenPart(table, key)
    let ref = RowRef(table: table.number, key: key)
    if let known = bases[ref] {
      guard let row = known.row else { return try lack(ref) }
      bases[ref] = (table, merged(row))
    } else if try rows.index.mayContain(table, key) {
      guard let base = try rows.load(table, key).timeline.base else { return try lack(ref) }
      bases[ref] = (table, merged(base))
    } else if rows.isPostponed(table, key) {
      guard let base = try rows.load(table, key).timeline.base else { return try lack(ref) }
      try rows.postpone(table, key, merged(base))
    } else {
      try update(target, places, changed, key, ref, merged)
    }
  }

  /// A clean row.
  private func update(
    _ target: Target, _ places: [Int], _ changed: [(slot: Int, value: Value)], _ key: Key, _ ref: RowRef,
    _ merged: (SlotRow) -> SlotRow
  ) throws {
    // What is there as it came is not written again: the application's triggers have fired for it.
    if onlyTables == nil, rows.firing.contains(target.table.number) {
      guard let current = try context.currentRow(target.table, key) else { return try lack(ref) }
      if merged(current) == current { return }
    }
    let statement = try statement(target, places)
    try statement.bind(key + changed.filter { $0.slot >= target.table.keyCount }.map(\.value))
    do { try statement.write(on: context.connection) } catch let error as SalvorError where error.isConstraintViolation
    {
      guard let current = try context.currentRow(target.table, key) else { return try lack(ref) }
      return try rows.postpone(target.table, key, merged(current))
    }
    if context.connection.changes == 0 { try lack(ref) }
  }

  private func statement(_ target: Target, _ places: [Int]) throws -> SQLiteStatement {
    if let known = target.parts[places] { return known }
    if target.parts.count >= Self.statementsMax { target.parts = [:] }
    let table = target.table
    let columns = places.map { target.slots[$0] }.filter { $0 >= table.keyCount }
    let sets = columns.enumerated().map { "\(quoted(table.columns[$1].name)) = ?\(table.keyCount + 1 + $0)" }
    guard !sets.isEmpty else {
      throw SalvorError(.malformed, "The download has a part of a row of \(table.name) without a column. Sync again.")
    }
    // The server delivers no text for it. A statement that is changed names no alias: `x` is the table itself here.
    let made = try context.connection.prepare(
      "UPDATE \(quoted(table.name)) AS x SET \(sets.joined(separator: ", ")) WHERE \(context.keyCondition(table))",
      persistent: true)
    target.parts[places] = made
    return made
  }

  /// The row is not here. It was not at the cursor either, and comes whole when the feed gets to where it came to be.
  private func lack(_ ref: RowRef) throws {
    if ahead { throw NotAhead() }
    if onlyTables != nil { return }
    lacking.insert(ref)
    if lacking.count > Self.lackingMax { try expectNothingLacks() }
  }

  /// Throws `inconsistent-download` where a row of which parts came is not here: the download is begun anew, by whole rows.
  func expectNothingLacks() throws {
    guard let ref = lacking.first else { return }
    let name = context.catalog.table(number: ref.table)?.name ?? "\(ref.table)"
    throw SalvorError(
      .inconsistentDownload,
      "The server sent what has changed of a row of \(name) that this device does not have. The rows come whole next.",
      context: ["table": name])
  }
}
