import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What the device's schema has and the server's SyncConfig does not: tables and columns of a later version of the
/// application (`SyncConfig.schema(own:added:)`).
struct LocalAdditions {
  /// By number.
  private(set) var tables: Set<Int64> = []
  /// Of tables that the server knows: the slots that it does not know.
  private(set) var slots: [Int64: [Int]] = [:]

  var isEmpty: Bool { tables.isEmpty && slots.isEmpty }

  init(_ catalog: CaptureCatalog, _ config: SyncConfig) {
    for table in catalog.tables {
      guard let entry = config.entry(table.name) else {
        tables.insert(table.number)
        continue
      }
      let known = Set(entry.table.travelling.map { $0.name.folded })
      let unknown = table.columns.indices.filter { !known.contains(table.columns[$0].name.folded) }
      if !unknown.isEmpty { slots[table.number] = unknown }
    }
  }
}

extension SyncConfig {
  func entry(_ table: String) -> Entry? { entries.first { $0.table.name.folded == table.folded } }
}

extension StoreContext {
  var additions: LocalAdditions { LocalAdditions(catalog, config) }
}

extension StoreContext {
  /// What a row has in a column that nobody gave a value for.
  func defaultValue(_ table: CapturedTable, _ slot: Int) -> Value {
    let name = table.columns[slot].name.folded
    return self.table(table)?.columns.first { $0.name.folded == name }?.defaultValue ?? .null
  }
}
