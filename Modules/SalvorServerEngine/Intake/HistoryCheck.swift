import SalvorModel
import SalvorStorage

/// What the history check found (semantics 6).
enum HistoryVerdict: Sendable, Hashable {
  case inStep
  case reset(RecoveryReason)
  /// The server lost commits that the device has seen; both made this one: the device rewinds to it.
  case parted(Commit)
  /// The client must send its sparse list of commits.
  case historyNeeded
}

/// The server-ID line of semantics 6: it comes before everything that asks about a remote.
func checkServer(known: ServerID?, own: ServerID) -> HistoryVerdict {
  known == nil || known == own ? .inStep : .reset(.serverReplaced)
}

/// The cursor lines of semantics 6.
///
/// - Parameter shared: the newest commit that both sides have made; nil: none, or this server cannot help with a rewind.
func checkHistory(cursors: [CursorFinding], historyIsGiven: Bool, shared: Commit?) -> HistoryVerdict {
  if cursors.contains(.unknown) {
    guard historyIsGiven else { return .historyNeeded }
    return shared.map(HistoryVerdict.parted) ?? .reset(.serverRestored)
  }
  if cursors.contains(.trimmed) { return .reset(.historyTrimmed) }
  return .inStep
}
