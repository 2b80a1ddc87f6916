import SalvorModel
import SalvorStorage

/// What became of a row since a device and this server parted, as far as it counts for the device's offer.
struct RowStanding {
  /// Columns of a row that came by offers of one version.
  struct Mark {
    var version: LostVersion
    var mask: Int64
    /// As `salvor_healed.at`; twice the number of the entry, where it has one.
    var at: Int64
    /// Columns that the database made another value of.
    var altered: Int64 = 0
  }

  struct Write {
    /// Of the entry in the log.
    var sequence: Int64
    var mask: Int64
  }

  /// What becomes of an offered column.
  enum Outcome {
    case applied
    /// It stands as it is, and the offered value is kept nowhere.
    case superseded
    /// It stands as it is, and the offered value is a conflict version.
    case conflict
  }

  let version: LostVersion
  /// Ordinary ones, oldest first.
  let writes: [Write]
  /// No two are of the same column.
  let marks: [Mark]
  /// Lines of `salvor_healed` are of the row, also such that do not count here.
  let hasLines: Bool
  /// What a mark's version is beside the offered one.
  let relation: (LostVersion) -> LostOrder.Relation

  private func finding(_ mark: LostVersion) -> LostOrder.Finding { relation(mark).finding }

  func isWritten(_ bit: Int) -> Bool { writes.contains { $0.mask.has(bit) } }

  /// The table of `HealingServerStore`.
  ///
  /// - Parameter isSame: the server has the offered value.
  func outcome(_ bit: Int, isSame: Bool) -> Outcome {
    let stands: Outcome = isSame ? .superseded : .conflict
    guard let mark = marks.first(where: { $0.mask.has(bit) }) else { return isWritten(bit) ? stands : .applied }
    if bit == ColumnMask.shared { return stands }
    switch finding(mark.version) {
    // Once more: whatever was written over it, it was there. Two values of one version are two claims, but where the database has made another
    // one of it.
    case .same: return isWritten(bit, after: mark) || mark.altered.has(bit) ? .superseded : stands
    // Unless it was made where an ordinary write that did not know the offered value had gone before.
    // Or in another history, where nobody had seen what is offered.
    case .newer:
      return isWritten(bit, before: mark) || relation(mark.version).isApart ? stands : .superseded
    case .older: return isWritten(bit) ? stands : .applied
    case .unranked: return stands
    }
  }

  /// What stands there came by an offer of an earlier history, and goes: nobody who made what is offered has seen it.
  func isOvertaken(_ bit: Int) -> Bool {
    guard let mark = marks.first(where: { $0.mask.has(bit) }) else { return false }
    return relation(mark.version) == LostOrder.Relation(finding: .older, isApart: true)
  }

  private func isWritten(_ bit: Int, after mark: Mark) -> Bool {
    mark.at != .max && writes.contains { $0.mask.has(bit) && 2 * $0.sequence >= mark.at }
  }

  private func isWritten(_ bit: Int, before mark: Mark) -> Bool {
    writes.contains { $0.mask.has(bit) && (mark.at == .max || 2 * $0.sequence < mark.at) }
  }

  /// What was given back of the column, if anything, is of an older version.
  func isOlderOrNone(_ bit: Int) -> Bool {
    guard let mark = marks.first(where: { $0.mask.has(bit) }) else { return true }
    return finding(mark.version) == .older
  }

  /// Somebody has written it, or given it back.
  func isChanged(_ bit: Int) -> Bool { isWritten(bit) || marks.contains { $0.mask.has(bit) } }

  /// For a change of the device's own that it made on the offered version: the server's value is one that it has not seen.
  func isUnseen(_ bit: Int) -> Bool {
    if isWritten(bit) { return true }
    guard let mark = marks.first(where: { $0.mask.has(bit) }) else { return false }
    return switch finding(mark.version) {
    case .same, .older: false
    case .newer, .unranked: true
    }
  }
}
