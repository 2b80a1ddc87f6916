import SalvorModel
import SalvorStorage
import SalvorWire

/// What was written up to a moment, as far as a remembered digest has to know.
struct WriteState: Sendable, Hashable {
  /// Of the connection that sees it: its counts mean nothing to another one.
  var connection: Int64
  /// Moves with each commit of another program.
  var others: Int64
  /// The last entry of the change log.
  var sequence: Int64
}

/// The digests of tables as devices last asked for them: computed once, and not for each device and sync.
///
/// A digest holds as long as the change log has no entry of the table, or of one that decides its scope, and no other program
/// has committed anything: it may have written without triggers.
final class DigestMemory: Sendable {
  private struct Name: Hashable {
    var table: String
    var scope: ReadScope
  }
  private struct Entry {
    var digest: TableDigest
    var writes: WriteState
  }

  private static let entriesMax = 10_000
  private let entries = Mutex<[Name: Entry]>([:])

  func known(_ table: String, _ scope: ReadScope) -> (digest: TableDigest, writes: WriteState)? {
    entries.withLock { $0[Name(table: table, scope: scope)].map { ($0.digest, $0.writes) } }
  }

  func keep(_ digest: TableDigest, _ scope: ReadScope, _ writes: WriteState) {
    entries.withLock { entries in
      if entries.count >= Self.entriesMax { entries.removeAll() }
      entries[Name(table: digest.table, scope: scope)] = Entry(digest: digest, writes: writes)
    }
  }
}
