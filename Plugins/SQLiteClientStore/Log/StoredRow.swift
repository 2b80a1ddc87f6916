import SalvorModel

/// What of a row its changes in the log and its table do not say (`RowTimeline`): in `salvor_base` and `salvor_value`.
struct StoredRow: Sendable, Hashable {
  /// The base, where walking back does not lead to it. `.some(nil)`: there is none; nil: the walk leads to it.
  var base: SlotRow??
  /// By counter and slot: new values that no later change and no table lends. Of a delete by a mark that deletes something
  /// else than it saw: what it deletes, empty for nothing.
  var values: [Int64: [Int: Value]] = [:]

  var isEmpty: Bool { base == nil && values.isEmpty }
}
