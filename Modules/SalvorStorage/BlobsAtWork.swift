import SalvorModel
import SalvorWire

/// Which of a principal's staged blobs devices work with at this moment, so that others make room first: those that were
/// asked about last (`missingBlobs`), and those that chunks of an upload under way refer to.
///
/// Kept in memory. After a start of the server a device that goes on says so anew, by its next chunk or by asking for its
/// upload to be processed.
public final class BlobsAtWork: Sendable {
  private struct Question {
    var hashes: Set<BlobHash>
    /// Of the question, or of the last part that came since; milliseconds since 1970.
    var time: Int64
  }

  private struct State {
    var questions: [String: Question] = [:]
    var uploads: [RemoteID: Int64] = [:]
  }

  private let state = Mutex(State())
  private let patience: Int64
  /// So many sessions' idle times after its last sign a device is given up.
  private static let patienceFactor: Int64 = 20

  /// Nobody works with a blob yet.
  ///
  /// - Parameter limits: a device that is silent for 20 times their `sessionIdleMilliseconds` is given up.
  public init(_ limits: Limits) { patience = Self.patience(limits) }

  /// So many milliseconds after its last sign a device is given up.
  public static func patience(_ limits: Limits) -> Int64 { patienceFactor * limits.sessionIdleMilliseconds }

  /// A device of the principal is about to send those of these blobs that are not staged.
  public func asked(_ references: [BlobReference], _ principal: Principal, now: Int64) {
    state.withLock { state in
      state.questions = state.questions.filter { now - $0.value.time < patience }
      state.questions[principal.name] = Question(hashes: Set(references.map(\.hash)), time: now)
    }
  }

  /// A part of a blob has come.
  public func came(_ principal: Principal, now: Int64) {
    state.withLock { state in
      guard let question = state.questions[principal.name], now - question.time < patience else { return }
      state.questions[principal.name]?.time = now
    }
  }

  /// A chunk of the remote's upload has come, or the upload is to be processed.
  public func goesOn(_ remote: RemoteID, now: Int64) {
    state.withLock { state in
      state.uploads = state.uploads.filter { now - $0.value < patience }
      state.uploads[remote] = now
    }
  }

  /// The remote's upload was processed, or given up.
  public func ended(_ remote: RemoteID) { state.withLock { $0.uploads[remote] = nil } }

  /// What was asked about last, by hash.
  public func wanted(by principal: Principal, now: Int64) -> Set<BlobHash> {
    state.withLock { state in
      guard let question = state.questions[principal.name], now - question.time < patience else { return [] }
      return question.hashes
    }
  }

  /// Whether a device goes on with the remote's upload: it has not `ended`, and its last sign (`goesOn`) is not
  /// too old.
  ///
  /// - Parameter now: milliseconds since 1970.
  public func isUnderWay(_ remote: RemoteID, now: Int64) -> Bool {
    state.withLock { state in state.uploads[remote].map { now - $0 < patience } ?? false }
  }
}

extension SalvorError {
  /// A blob cannot be staged beside those that are at work.
  public static func noRoomForBlob(_ limits: Limits) -> SalvorError {
    SalvorError(
      .tooLarge,
      "There is no room for this blob: blobs that wait for their upload have at most \(limits.blobStagingBytesMax) bytes together (blobStagingBytesMax). Upload fewer at a time; where another device of the same principal is uploading, try again later.",
      context: ["limit": "blobStagingBytesMax", "bytes": "\(limits.blobStagingBytesMax)"])
  }

  /// The bytes that blobs waiting for their upload may have together, where this one was beyond them; nil: this is
  /// another error.
  public var blobRoom: Int64? {
    guard code == .tooLarge, context["limit"] == "blobStagingBytesMax" else { return nil }
    return context["bytes"].flatMap { Int64($0) }
  }
}
