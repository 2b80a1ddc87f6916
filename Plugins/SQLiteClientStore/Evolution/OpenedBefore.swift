import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// What an opening found, so that the next one need not look again (decision 119).
///
/// All that `Opening.bringInLine` looks at is in the file's schema, in what Salvor knows of its tables and in the
/// application's own schema. A digest of all that stands in `salvor_state` as soon as an opening has brought it in line.
/// The next one compares it, whatever process it is in. It is of the content, and not of SQLite's `schema_version`: an
/// edit by `PRAGMA writable_schema` does not move that, and a file that was written from a dump may have any.
struct OpenedBefore {
  /// One more whenever this release brings a file in line in another way than the one before: with other tables, triggers or
  /// views, or other rules. OpeningTests holds what it was raised for last.
  static let revision = 18

  let schema: Schema
  let config: SyncConfig
  let catalog: CaptureCatalog

  /// Nil: somebody has to look.
  static func find(_ own: Schema, on connection: SQLiteConnection) throws -> OpenedBefore? {
    guard try connection.integer("SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'salvor_state'") != nil,
      let mark = try connection.text(.opened)
    else { return nil }
    let place = Place(own: own, content: try content(of: connection))
    if let known = memory.withLock({ $0[place] }) { return known.mark == mark ? known.found : nil }
    guard mark == Self.mark(place) else { return nil }
    let delivered = try connection.deliveredConfig()
    let added = try KeptAdditions(connection).tables
    let config = delivered ?? SyncConfig(own)
    let schema = delivered == nil && added.isEmpty ? own : config.schema(own: own, added: added)
    let found = OpenedBefore(
      schema: schema, config: config,
      catalog: try CaptureCatalog.found(schema.synchronized, on: connection))
    remember(place, mark, found)
    return found
  }

  /// The file is in line with the schema. In the transaction that brought it there, as its last step.
  static func note(_ context: StoreContext) throws {
    let connection = context.connection
    guard !context.triesConstraints, try connection.pausedSince() == nil else {
      return try connection.setState(.opened, Value?.none)
    }
    let place = Place(own: context.own, content: try content(of: connection))
    let mark = mark(place)
    try connection.setState(.opened, mark)
    remember(
      place, mark, OpenedBefore(schema: context.schema, config: context.config, catalog: context.catalog))
  }

  // MARK: In this process

  private struct Place: Hashable {
    var own: Schema
    var content: UInt64
  }

  /// An application that opens its database again, and a simulation, need not read the SyncConfig and the tables' shapes again.
  private static let memory = Mutex<[Place: (mark: String, found: OpenedBefore)]>([:])
  private static let memoryMax = 64

  private static func remember(_ place: Place, _ mark: String, _ found: OpenedBefore) {
    memory.withLock { known in
      if known.count >= memoryMax { known.removeAll() }
      known[place] = (mark, found)
    }
  }

  // MARK: Digests

  private static func mark(_ place: Place) -> String {
    let own = place.own
    let head: JSONValue = [
      "version": .integer(own.version),
      "groups": .array(own.groups.map { [.string($0.name), .bool($0.serverInitiated)] }),
      "parameters": .array(own.parameters.map { [.string($0.name), .string($0.type.rawValue)] }),
      "dropped": .array(own.dropped.map(JSONValue.string)),
      "tables": .array(own.tables.map(TableDefinition.json)),
    ]
    return "\(salvorVersion) \(revision) \(String(place.content, radix: 16)) \(SalvorStorage.digest(head.bytes))"
  }

  /// Of the file's format, of the schema as SQLite has it, in its order (of a table's triggers the newest fires first), and of what Salvor knows of
  /// the tables. What is missing is made by looking.
  private static func content(of connection: SQLiteConnection) throws -> UInt64 {
    var sum = Sum()
    let parts = [
      "SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY rowid",
      "SELECT id, name FROM salvor_table ORDER BY id", "SELECT t, slot, name FROM salvor_column ORDER BY t, slot",
      "SELECT * FROM salvor_sync_config ORDER BY place",
      "SELECT name, value FROM salvor_state WHERE name IN ('\(StateName.format.rawValue)', '\(StateName.configHead.rawValue)', '\(StateName.configDelivered.rawValue)', '\(StateName.added.rawValue)', '\(StateName.schemaVersion.rawValue)', '\(StateName.pausedSince.rawValue)') ORDER BY name",
    ]
    for part in parts {
      try connection.query(part) { row in
        for column in 0..<row.columnCount { row.withText(column) { sum.add($0) } }
        return true
      }
      sum.add(UnsafeRawBufferPointer(start: nil, count: 0))
    }
    return sum.value
  }

  /// 64 bits that tell texts apart; it protects nothing. Eight bytes at a time: a schema is a hundred kilobytes of triggers.
  private struct Sum {
    private(set) var value: UInt64 = 0xCBF2_9CE4_8422_2325

    mutating func add(_ bytes: UnsafeRawBufferPointer) {
      take(UInt64(bytes.count))
      var place = 0
      while place + 8 <= bytes.count {
        take(bytes.loadUnaligned(fromByteOffset: place, as: UInt64.self).littleEndian)
        place += 8
      }
      var rest: UInt64 = 0
      while place < bytes.count {
        rest = rest << 8 | UInt64(bytes[place])
        place += 1
      }
      take(rest)
    }

    private mutating func take(_ word: UInt64) {
      value = (value ^ word) &* 0x9E37_79B9_7F4A_7C15
      value ^= value >> 29
    }
  }
}
