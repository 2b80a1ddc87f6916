/// The deletes that each device knows of: where a restored server has the row again, the archive names the delete
/// (semantics 6 and 9).
struct LostDeletes: Sendable {
  /// By device: rows that it has shown after a sync.
  private var shown: [Set<RowName>]
  /// Of these, the ones that it knew to be deleted on the server.
  private var known: [Set<RowName>]
  /// The rows that the server had when it was put back.
  private var restored: Set<RowName> = []
  /// Tables in which a row goes by a delete alone.
  private let tables: Set<String>

  init(schema: DrawnSchema, devices: Int) {
    shown = Array(repeating: [], count: devices)
    known = shown
    tables = Set(schema.synchronized.filter { !$0.hasScope && !$0.isKeySet }.map(\.name))
  }

  /// The device's file is another one.
  mutating func forget(_ device: Int) { (shown[device], known[device]) = ([], []) }

  mutating func serverWentBack(to now: Contents) { restored = Set(now.keys) }

  /// The rows that a recovery brought back to a device which had seen them go.
  func returned(_ device: Int, _ before: Contents, _ after: Contents, _ server: Contents) -> [RowName] {
    known[device].filter { before[$0] == nil && after[$0] != nil && restored.contains($0) && server[$0] != nil }
      .sorted()
  }

  mutating func synchronized(
    _ device: Int, _ after: Contents, _ server: Contents, wasDeleted: (RowName) -> Bool
  ) {
    shown[device].formUnion(after.keys.filter { tables.contains($0.table) })
    known[device].formUnion(shown[device].filter { after[$0] == nil && server[$0] == nil && wasDeleted($0) })
    known[device].subtract(after.keys)
  }
}
