import SalvorModel
import SalvorStorage
import SalvorWire

/// The rows of one table that a synchronization wrote or removed: what an application shows anew.
public struct TableChange: Sendable, Hashable {
  /// The table's name.
  public var table: String
  /// Nil: the whole table. There were more than `changedKeysMax` keys, or they are not known one by one (a recovery, a
  /// download that an earlier synchronization began).
  public var keys: [Key]?

  /// - Parameter keys: nil: the whole table.
  public init(table: String, keys: [Key]?) {
    self.table = table
    self.keys = keys
  }

  /// As `sync --json` prints it.
  public var json: JSONValue {
    ["table": .string(table), "keys": keys.map { .array($0.map { .array($0.map(JSONValue.init)) }) } ?? .null]
  }
}

extension ClientConfiguration {
  /// The tables as they are on this device: the server may have given one another name than the application's schema file has.
  func tablesHere() async throws -> [Table] {
    try await store.history().tables + schema.tables.filter { $0.maintained == .client }
  }

  /// The columns of the synchronized tables' keys, by table.
  func primaryKeysHere() async throws -> [String: [String]] {
    Dictionary(try await store.history().tables.map { ($0.name, $0.primaryKey) }) { first, _ in first }
  }
}

/// Gathers the keys of a download's lines on their way to staging. It may name more rows than were changed, never fewer.
struct ChangedRows: Sendable {
  /// Of all tables together.
  static let keysMax = 1000

  private var tables: [String: Set<Key>?] = [:]
  private var count = 0
  private var reading: (table: String, places: [Int])?

  var isEmpty: Bool { tables.isEmpty }

  var list: [TableChange] {
    tables.sorted { $0.key < $1.key }.map { TableChange(table: $0.key, keys: $0.value.map { Array($0) }) }
  }

  mutating func whole(_ table: String) { tables.updateValue(nil, forKey: table) }

  mutating func add(_ key: Key, of table: String) {
    guard var keys = tables[table, default: Set()] else { return }
    guard count < Self.keysMax else { return whole(table) }
    if keys.insert(key).inserted { count += 1 }
    tables[table] = keys
  }

  /// A line of the payload (`DownloadChunkWriter`).
  ///
  /// - Parameter key: the columns of a table's key; nil: not known here.
  mutating func read(_ line: [UInt8], key: (String) -> [String]?) {
    if line.starts(with: Self.tableMark) {
      reading = nil
      guard let names = try? JSONValue(parsing: line), let table = names["table"]?.string else { return }
      let columns = names["columns"]?.array?.compactMap(\.string) ?? []
      let places = key(table)?.compactMap { columns.firstIndex(of: $0) } ?? []
      guard !places.isEmpty, places.count == key(table)?.count else { return whole(table) }
      reading = (table, places)
      return
    }
    if line.starts(with: Self.fullMark) {
      // A table that comes whole: rows that do not come are gone.
      for name in (try? JSONValue(parsing: line))?["full"]?.array ?? [] { if let name = name.string { whole(name) } }
      return
    }
    guard let (table, places) = reading, let known = tables[table, default: Set()] else { return }
    guard known.count < Self.keysMax else { return whole(table) }
    do {
      try readKeys(line, table, places)
    } catch {
      // The store judges the line; here it is only known that something of the table came.
      whole(table)
    }
  }

  private mutating func readKeys(_ line: [UInt8], _ table: String, _ places: [Int]) throws {
    var keys: [Key] = []
    let room = Self.keysMax - count
    try line.withUnsafeBufferPointer { buffer in
      var reader = DownloadChunkReader(buffer)
      while let event = try reader.next() {
        let wanted: [Int]
        switch event {
        case .row, .part: wanted = places
        case .key: wanted = Array(places.indices)
        default: continue
        }
        guard keys.count <= room else { return }
        var values: [Value] = []
        let last = wanted.max() ?? 0
        while values.count <= last, let item = try reader.item() { values.append(item.value) }
        guard values.count > last else { throw reader.malformed("a row without its key") }
        keys.append(wanted.map { values[$0] })
      }
    }
    if keys.count > room { return whole(table) }
    for key in keys { add(key, of: table) }
  }

  private static let fullMark = Array("{\"full\"".utf8)
  private static let tableMark = Array("{\"table\"".utf8)
}
