import CSQLite
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Writes the upload's chunks from the log, in order. New values come from the row as it is now, or, where it has later
/// changes, from those.
struct UploadEncoder {
  let context: StoreContext
  let plan: UploadPlan
  /// The upload's last counter.
  let last: Int64
  let blobs: BlobSink

  struct Made {
    var chunk: UploadChunk
    /// Where the blobs that it refers to are, as far as they are new values.
    var hints: [(hash: BlobHash, place: BlobPlace)]
  }

  /// A chunk that refers to more than this is cut: whoever reads it may hold its blobs.
  static let referredBytesMax: Int64 = 32 << 20

  /// The columns of one table on the wire.
  private struct Layout {
    var table: CapturedTable
    /// Travelling columns in the schema's order, and their slots.
    var names: [String]
    var slots: [Int]
    var current: SQLiteStatement
    var group: String
  }

  private struct ShapeKey: Hashable {
    var table: Int64
    var operation: Operation
    var mask: LogMask?
  }

  /// Changes of one kind: their shape's place in the chunk, and the slots that get new values.
  private struct Kind {
    var place: Int
    var slots: [Int]
    /// Selects the row as it is now, and which of its columns are the slots'.
    var current: SQLiteStatement
    var columns: [Int]
  }

  /// So many kinds read what they need alone: each column of a row that is read costs as much as finding the row. The others read it whole.
  private static let narrowKindsMax = 64

  /// In a read transaction. Nil: there is nothing after `counter`.
  func chunk(after counter: Int64, bytesTarget: Int) throws -> Made? {
    try plan.catchUp()
    var writer = UploadChunkWriter(capacity: bytesTarget + 4096, blobs: blobs)
    var hints: [(hash: BlobHash, place: BlobPlace)] = []
    var layouts: [Int64: Layout] = [:]
    var kinds: [ShapeKey: Kind] = [:]
    var names = try RequestNames(context)
    var leftOut = try context.leftOut().filter { $0.last > counter }[...]
    var isLast = true
    var ranges = try RangeCursor(context, after: counter)
    var named: Int64 = 0
    var offers = try OfferCursor(context, after: counter)
    var offeredUpTo: Int64 = 0
    var saysLost = false
    let anyStored = try context.anyStored()
    let catalog = context.catalog
    var versions = KeptVersionPages.lost(context, after: counter, upTo: last)
    func isFull() -> Bool {
      writer.changeCount > 0 && (writer.byteCount >= bytesTarget || writer.referredBytes >= Self.referredBytesMax)
    }
    /// False: the chunk is full.
    func writeVersions(before seq: Int64) throws -> Bool {
      while let version = try versions.first(), version.seq < seq {
        if isFull() { return false }
        _ = try versions.next()
        let number = version.table.number
        if layouts[number] == nil { layouts[number] = try layout(number) }
        guard let layout = layouts[number] else { continue }
        if !saysLost { writer.lost(offers.incarnations, order: offers.order) }
        saysLost = true
        write(version, layout, &writer)
      }
      return true
    }
    try context.connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE seq > ?1 AND seq <= ?2 AND op IN \(StoreContext.changeOperations) ORDER BY seq",
      [.integer(counter), .integer(last)]
    ) { row in
      let seq = row.int64(0)
      while let first = leftOut.first, first.last < seq { leftOut.removeFirst() }
      if let first = leftOut.first, first.first <= seq { return true }
      if try !writeVersions(before: seq) || isFull() {
        isLast = false
        return false
      }
      let number = row.int64(1)
      if layouts[number] == nil { layouts[number] = try layout(number) }
      guard let layout = layouts[number], let operation = LogOperation(rawValue: row.int64(2)) else { return true }
      if let range = try ranges.range(of: seq), range.first != named {
        if seq == range.first, !ranges.former.isEmpty { writer.former(first: seq, ranges.former) }
        if range.last > range.first || range.tag != nil {
          writer.request(first: range.first, last: range.last, tag: range.tag)
        }
        named = range.first
      }
      if seq > offeredUpTo, let run = try offers.run(from: seq) {
        if !saysLost { writer.lost(offers.incarnations, order: offers.order) }
        saysLost = true
        let written = run.written.compactMap { slot in
          layout.slots.firstIndex(of: slot).map { layout.names[$0] }
        }
        writer.offer(first: seq, last: run.last, Offer(run.version, written: written, isForReview: run.isForReview))
        offeredUpTo = run.last
      }
      try write(
        row, seq, operation, layout, anyStored, isOffer: seq <= offeredUpTo, &writer, &kinds, &names, &hints)
      return true
    }
    if isLast, try !writeVersions(before: .max) { isLast = false }
    guard writer.changeCount > 0 else { return nil }
    let (first, end, count) = (writer.firstCounter, writer.lastCounter, writer.changeCount)
    let chunk = UploadChunk(
      bytes: writer.finish(), firstCounter: first, lastCounter: end, changeCount: count, isLast: isLast,
      blobs: writer.blobs)
    return Made(chunk: chunk, hints: hints)
  }

  /// A change that the server had kept as a conflict version, as it was sent.
  private func write(_ version: LostKeptVersion, _ layout: Layout, _ writer: inout UploadChunkWriter) {
    guard let offer = version.offer else { return }
    if version.last > version.first { writer.request(first: version.first, last: version.last, tag: version.tag) }
    writer.offer(first: version.seq, last: version.seq, offer)
    var names: [String] = []
    var values: [(old: Value, new: Value, isKey: Bool)] = []
    for (place, slot) in version.slots.enumerated() {
      guard let column = layout.slots.firstIndex(of: slot), version.operation != .delete else { continue }
      names.append(layout.names[column])
      values.append(
        (
          version.before.indices.contains(place) ? version.before[place] : .null,
          version.after.indices.contains(place) ? version.after[place] : .null,
          version.operation == .insert && slot < layout.table.keyCount
        ))
    }
    let shape = writer.place(
      of: UploadShape(table: layout.table.name, operation: version.operation, columns: names))
    writer.beginChange(shape: shape, stamp: version.stamp, counter: version.seq, made: version.made)
    if version.operation != .insert { for value in version.key { writer.value(value, isKey: true) } }
    for value in values {
      if version.operation == .update { writer.value(value.old) }
      writer.value(value.new, isKey: value.isKey)
    }
    writer.endChange()
  }

  private func layout(_ number: Int64) throws -> Layout? {
    // What the server does not know yet is not said to it.
    guard let table = context.catalog.table(number: number), let definition = context.config.entry(table.name)?.table
    else { return nil }
    let names = definition.travelling.map(\.name)
    let slots = names.compactMap { name in table.columns.firstIndex { $0.name.folded == name.folded } }
    return Layout(
      table: table, names: names, slots: slots,
      current: try context.connection.prepare(context.rowQuery(table), persistent: true),
      group: definition.group)
  }

  private func write(
    _ row: SQLiteStatement, _ seq: Int64, _ operation: LogOperation, _ layout: Layout, _ anyStored: Bool,
    isOffer: Bool, _ writer: inout UploadChunkWriter,
    _ kinds: inout [ShapeKey: Kind], _ names: inout RequestNames, _ hints: inout [(hash: BlobHash, place: BlobPlace)]
  ) throws {
    let table = layout.table
    let firstValue = 3 + context.catalog.maskCount
    let stamp = try names.stamp(of: seq)
    let made = try names.made(
      seq, table.number, layout.group, key: row.values(from: firstValue, count: table.keyCount))
    let hash = plan.anyRepeats ? rowHash(row, table: 1, firstKey: firstValue, count: table.keyCount) : 0
    func begin(_ operation: Operation, _ mask: LogMask?, _ slots: @autoclosure () -> [Int]) throws -> Kind {
      let key = ShapeKey(table: table.number, operation: operation, mask: mask)
      let known = kinds[key]
      let kind = try known ?? makeKind(operation, slots(), layout, isNarrow: kinds.count < Self.narrowKindsMax, &writer)
      if known == nil { kinds[key] = kind }
      writer.beginChange(shape: kind.place, stamp: stamp, counter: seq, made: made)
      return kind
    }
    func writeKey() {
      for slot in 0..<table.keyCount { writer.value { $0.value(of: row, firstValue + slot, isKey: true) } }
    }
    func writeNew(_ slot: Int, _ write: (inout PayloadWriter) -> Void) {
      let known = writer.blobs.count
      writer.value(write)
      guard writer.blobs.count > known, let blob = writer.blobs.last else { return }
      let key = row.values(from: firstValue, count: table.keyCount)
      hints.append(
        (blob.reference.hash, BlobPlace(table: table.name, key: key, column: table.columns[slot].name)))
    }
    /// Its new values are not the row as it is now.
    func isApart() throws -> Bool { try plan.mayRepeat(hash) || (anyStored && context.hasValues(seq)) }
    switch operation {
    case .insert:
      let kind = try begin(.insert, nil, layout.slots)
      if try isApart() {
        let step = try plan.step(seq, table, row.values(from: firstValue, count: table.keyCount), hash)
        guard case .insert(let new) = step.change else { throw plan.unfit(table) }
        for slot in kind.slots { writeNew(slot) { $0.value(new[slot], isKey: slot < table.keyCount) } }
      } else {
        try withCurrent(row, firstValue, kind, table) { current in
          for (slot, column) in zip(kind.slots, kind.columns) {
            writeNew(slot) { $0.value(of: current, column, isKey: slot < table.keyCount) }
          }
        }
      }
    case .update, .cascadedUpdate:
      let mask = LogMask(words: (0..<table.maskCount).map { row.int64(3 + $0) })
      let kind = try begin(.update, mask, mask.slots(below: table.columns.count))
      writeKey()
      if try isApart() {
        let step = try plan.step(seq, table, row.values(from: firstValue, count: table.keyCount), hash)
        guard case .update(let news) = step.change else { throw plan.unfit(table) }
        for slot in kind.slots {
          writer.value { $0.value(of: row, firstValue + slot) }
          writeNew(slot) { $0.value(news[slot] ?? .null) }
        }
      } else {
        try withCurrent(row, firstValue, kind, table) { current in
          for (slot, column) in zip(kind.slots, kind.columns) {
            writer.value { $0.value(of: row, firstValue + slot) }
            // An offer names what is as the server has it, too.
            if isOffer, row.holdsPlainly(firstValue + slot, as: current, column) {
              writer.sameValue()
            } else {
              writeNew(slot) { $0.value(of: current, column) }
            }
          }
        }
      }
    default:
      _ = try begin(.delete, nil, [])
      writeKey()
    }
    writer.endChange()
  }

  private func makeKind(
    _ operation: Operation, _ slots: [Int], _ layout: Layout, isNarrow: Bool, _ writer: inout UploadChunkWriter
  ) throws -> Kind {
    let names = slots.map { slot in layout.names[layout.slots.firstIndex(of: slot) ?? 0] }
    let place = writer.place(of: UploadShape(table: layout.table.name, operation: operation, columns: names))
    guard operation == .update, isNarrow, !slots.isEmpty else {
      return Kind(place: place, slots: slots, current: layout.current, columns: slots)
    }
    let query = context.rowQuery(layout.table, slots: slots)
    return Kind(
      place: place, slots: slots, current: try context.connection.prepare(query, persistent: true),
      columns: Array(slots.indices))
  }

  private func withCurrent(
    _ row: SQLiteStatement, _ firstValue: Int, _ kind: Kind, _ table: CapturedTable,
    _ body: (SQLiteStatement) throws -> Void
  ) throws {
    let current = kind.current
    for slot in 0..<table.keyCount { try current.bindInPlace(slot + 1, column: firstValue + slot, of: row) }
    defer { current.reset() }
    guard try current.step() else { throw plan.unfit(table) }
    try body(current)
  }
}

extension SQLiteStatement {
  /// Binds a column of another statement's current row where it stands: this one is reset before that one goes on.
  func bindInPlace(_ parameter: Int, column: Int, of row: SQLiteStatement) throws {
    switch row.type(column) {
    case SQLITE_TEXT: try row.withText(column) { try bindText(parameter, $0, copying: false) }
    case SQLITE_BLOB: try row.withBlob(column) { try bindBlob(parameter, $0, copying: false) }
    default: try bind(parameter, column: column, of: row)
    }
  }
}

extension PayloadWriter {
  /// Writes a column of a statement's current row, from where SQLite has it.
  ///
  /// - Parameter isKey: it is a part of the row's key.
  mutating func value(of row: SQLiteStatement, _ column: Int, isKey: Bool = false) {
    switch row.type(column) {
    case SQLITE_INTEGER: integer(row.int64(column))
    case SQLITE_FLOAT: real(row.double(column))
    case SQLITE_TEXT: row.withText(column) { text($0.bindMemory(to: UInt8.self)) }
    case SQLITE_BLOB: row.withBlob(column) { blob($0.bindMemory(to: UInt8.self), isKey: isKey) }
    default: null()
    }
  }
}

extension SQLiteStatement {
  /// Both columns have the same value, which is no blob.
  fileprivate func holdsPlainly(_ column: Int, as other: SQLiteStatement, _ place: Int) -> Bool {
    let kind = type(column)
    guard kind == other.type(place) else { return false }
    return switch kind {
    case SQLITE_INTEGER: int64(column) == other.int64(place)
    case SQLITE_TEXT: withText(column) { text in other.withText(place) { text.elementsEqual($0) } }
    case SQLITE_FLOAT: value(column) == other.value(place)
    case SQLITE_NULL: true
    default: false
    }
  }
}

/// Stamps and commits of counters that only grow: looked up again only where the next epoch begins.
struct RequestNames {
  private let context: StoreContext
  private var stamp: RequestStamp?
  private var stampEnd: Int64 = 0
  private var numbers: [String: (number: Int64, end: Int64)] = [:]
  /// The commit that a row stood at which no subscription covers any more. Nil: there are none.
  private let leaving: SQLiteStatement?
  /// Of tables that moved to another group, by number: up to which counter they were in which.
  private let former: [Int64: [(until: Int64, group: String)]]

  init(_ context: StoreContext) throws {
    self.context = context
    var former: [Int64: [(until: Int64, group: String)]] = [:]
    for row in try context.connection.rows("SELECT t, until_seq, grp FROM salvor_former_group ORDER BY t, until_seq") {
      guard let number = row[0].integer, let until = row[1].integer, let group = row[2].string else { continue }
      former[number, default: []].append((until, group))
    }
    self.former = former
    let anyLeaving = try context.connection.integer("SELECT 1 FROM salvor_leaving LIMIT 1") != nil
    leaving =
      anyLeaving
      ? try context.connection.prepare("SELECT number FROM salvor_leaving WHERE t = ?1 AND key = ?2", persistent: true)
      : nil
  }

  mutating func stamp(of counter: Int64) throws -> RequestStamp {
    if let stamp, counter < stampEnd { return stamp }
    let found = try context.stamp(of: counter)
    stamp = found
    stampEnd =
      try context.connection.integer(
        """
        SELECT min(at) FROM (SELECT min(first_seq) AS at FROM salvor_stamp WHERE first_seq > ?1
          UNION ALL SELECT min(first) FROM salvor_outstanding WHERE stamp IS NOT NULL AND first > ?1
          UNION ALL SELECT min(last) + 1 FROM salvor_outstanding WHERE stamp IS NOT NULL AND last >= ?1 AND first = (SELECT max(first) FROM salvor_outstanding WHERE first <= ?1))
        """, .integer(counter)) ?? .max
    return found
  }

  /// The commit that a row of a table, which is in `group` now, stood at when the change was made.
  mutating func made(
    _ counter: Int64, _ table: Int64, _ group: String, key: @autoclosure () -> Key
  ) throws -> Int64 {
    let made = try made(counter, former[table]?.first { counter <= $0.until }?.group ?? group)
    guard let leaving else { return made }
    try leaving.bind(1, table)
    try leaving.bind(2, .text(payload(key())))
    defer { leaving.reset() }
    return try leaving.step() ? min(made, leaving.int64(0)) : made
  }

  private mutating func made(_ counter: Int64, _ group: String) throws -> Int64 {
    if let known = numbers[group], counter < known.end { return known.number }
    let number = try context.made(counter, group: group)
    let end =
      try context.connection.integer(
        "SELECT min(first_seq) FROM salvor_epoch WHERE grp = ?1 AND first_seq > ?2", .text(group), .integer(counter))
      ?? .max
    numbers[group] = (number, end)
    return number
  }
}
