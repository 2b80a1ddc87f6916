/// The deletes that each device knows of: where a restored server has the row again, the archive names the delete
/// (semantics 6 and 9).
struct LostDeletes: Sendable {
  /// By device: rows that it has shown after a sync.
  private var shown: [Set<RowName>]
  /// Of these, the ones that it knew to be deleted on the server.
  private var known: [Set<RowName>]
  /// The rows that the server had when it was put back.
  private var restored: Contents = [:]
  /// The rows that the server was seen to lose by a delete: what goes with a restore alone was deleted by nobody, whatever a
  /// device has deleted that never told it.
  private var gone: Set<RowName> = []
  private var backups: [Int: Set<RowName>] = [:]
  /// Tables in which a row goes by a delete alone.
  private let tables: Set<String>

  init(schema: DrawnSchema, devices: Int) {
    shown = Array(repeating: [], count: devices)
    known = shown
    tables = Set(schema.synchronized.filter { !$0.hasScope && !$0.isKeySet }.map(\.name))
  }

  /// The device's file is another one.
  mutating func forget(_ device: Int) { (shown[device], known[device]) = ([], []) }

  mutating func backedUp(_ slot: Int) { backups[slot] = gone }

  /// - Parameter slot: the backup that stands in its place; nil: an empty database.
  mutating func serverWentBack(to now: Contents, slot: Int?) {
    restored = now
    gone = slot.flatMap { backups[$0] } ?? []
  }

  mutating func watched(_ before: Contents, _ now: Contents) {
    gone.formUnion(before.keys.filter { now[$0] == nil })
    gone.subtract(now.keys)
  }

  /// The rows that a recovery brought back to a device which had seen them go, as they were when the server was put back: what
  /// was written over them since, or offered of a later version, stands.
  func returned(_ device: Int, _ before: Contents, _ after: Contents, _ server: Contents) -> [RowName] {
    known[device].filter { name in
      guard before[name] == nil, after[name] != nil, let row = restored[name] else { return false }
      return server[name] == row
    }.sorted()
  }

  /// It compared rows: of those that it has no more it does not know who took them.
  mutating func compared(_ device: Int, _ after: Contents) {
    shown[device].formIntersection(Set(after.keys).union(known[device]))
  }

  mutating func synchronized(_ device: Int, _ after: Contents, _ server: Contents) {
    shown[device].formUnion(after.keys.filter { tables.contains($0.table) })
    known[device].formUnion(shown[device].filter { after[$0] == nil && server[$0] == nil && gone.contains($0) })
    known[device].subtract(after.keys)
  }
}
