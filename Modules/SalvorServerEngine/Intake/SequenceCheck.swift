import SalvorModel

/// What the sequence check found (semantics 5).
enum SequenceVerdict: Sendable, Hashable {
  /// S = P, or neither exists: process, then S := C.
  case inStep
  /// S = C: committed, the acknowledgement was lost.
  case answerAgain
  /// No S, and the client has P: the remote ID was deleted, or the server is older than the remote's first sync.
  case remoteForgotten
  case reset(RecoveryReason)
  /// The client must say which older sequence IDs it remembers.
  case historyNeeded
}

/// The table of semantics 5, line by line.
///
/// - Parameters:
///   - stored: S. Nil where the remote is unknown or was deleted.
///   - isRecorded: C is a sequence ID whose results this server has recorded, of a deleted remote ID too.
///   - previousIsOlder: P is one of the older sequence IDs that the server remembers for this remote.
///   - remembered: the client's older sequence IDs; nil where it was not asked.
///   - cursorIsKnown: every cursor of the client is a commit of this server.
func checkSequence(
  stored: SequenceID?, previous: SequenceID?, current: SequenceID?, isRecorded: Bool, previousIsOlder: Bool,
  remembered: [SequenceID]?, cursorIsKnown: Bool
) -> SequenceVerdict {
  if current != nil, isRecorded || stored == current { return .answerAgain }
  guard let stored else { return previous == nil ? .inStep : .remoteForgotten }
  if stored == previous { return .inStep }
  if previous == nil || previousIsOlder { return .reset(.clientRewound) }
  guard let remembered else { return .historyNeeded }
  if remembered.contains(stored) { return .reset(.serverRestored) }
  return .reset(cursorIsKnown ? .clientRewound : .serverRestored)
}
