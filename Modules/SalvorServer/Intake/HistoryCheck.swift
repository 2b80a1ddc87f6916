import SalvorModel
import SalvorStorage

/// What the history check found (semantics 6).
enum HistoryVerdict: Sendable, Hashable {
  case inStep
  case reset(RecoveryReason)
  /// The client must send its sparse list of commits.
  case historyNeeded
}

/// The server-ID line of semantics 6: it comes before everything that asks about a remote.
func checkServer(known: ServerID?, own: ServerID) -> HistoryVerdict {
  known == nil || known == own ? .inStep : .reset(.serverReplaced)
}

/// The cursor lines of semantics 6.
///
/// A cursor that this server never gave, with an earlier commit shared, is the case for a rewind; until a build has it,
/// and where nothing is shared, the reason is `server-restored`.
func checkHistory(cursors: [CursorFinding], historyIsGiven: Bool) -> HistoryVerdict {
  if cursors.contains(.unknown) { return historyIsGiven ? .reset(.serverRestored) : .historyNeeded }
  if cursors.contains(.trimmed) { return .reset(.historyTrimmed) }
  return .inStep
}
