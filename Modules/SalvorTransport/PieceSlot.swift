import SalvorModel

/// The place between one writer and one reader that holds at most one piece: what makes back-pressure.
///
/// Each end has a form for tasks, which waits (`waitForRoom`, `take`), and one for C callbacks, which must not
/// (`offer`, `poll`): it is told "not now" and woken by its hook. Either end can fail the slot; both then see it.
package final class PieceSlot: Sendable {
  package enum Polled {
    case piece([UInt8])
    case end
    case failed(any Error)
    /// Nothing yet: `onPiece` is called when that changes.
    case nothing
  }

  private struct State {
    var piece: [UInt8] = []
    var isFinished = false
    var failure: (any Error)?
    /// The reader wants no more: what comes is dropped.
    var isDiscarding = false
    var reader: CheckedContinuation<[UInt8]?, any Error>?
    var writer: CheckedContinuation<Void, any Error>?
    var roomWanted = false
    var pieceWanted = false

    var hasRoom: Bool { piece.isEmpty || isDiscarding }

    /// What a reader gets now; nil for nothing yet.
    mutating func read() -> Result<[UInt8]?, any Error>? {
      if let failure { return .failure(failure) }
      if !piece.isEmpty {
        defer { piece = [] }
        return .success(piece)
      }
      return isFinished ? .success(nil) : nil
    }
  }

  /// Whom a change of the state concerns; they are told outside the lock.
  private struct Wakes {
    var reader: (CheckedContinuation<[UInt8]?, any Error>, Result<[UInt8]?, any Error>)?
    var writer: (CheckedContinuation<Void, any Error>, Result<Void, any Error>)?
    var room = false
    var piece = false
  }

  private let state = Mutex(State())
  private let onRoom: (@Sendable () -> Void)?
  private let onPiece: (@Sendable () -> Void)?

  /// - Parameters:
  ///   - onRoom: called, on any thread, when an `offer` that was refused can be made again.
  ///   - onPiece: called, on any thread, when a `poll` that found nothing can be made again.
  package init(onRoom: (@Sendable () -> Void)? = nil, onPiece: (@Sendable () -> Void)? = nil) {
    self.onRoom = onRoom
    self.onPiece = onPiece
  }

  /// Changes the state and wakes whoever that concerns.
  private func change<T>(wakingReader: Bool = true, _ body: (inout State) -> T) -> T {
    let (value, wakes) = state.withLock { state -> (T, Wakes) in
      let value = body(&state)
      var wakes = Wakes()
      if wakingReader {
        if let reader = state.reader, let result = state.read() {
          wakes.reader = (reader, result)
          state.reader = nil
        }
        if state.pieceWanted, state.failure != nil || state.isFinished || !state.piece.isEmpty {
          wakes.piece = true
          state.pieceWanted = false
        }
      }
      if state.hasRoom || state.failure != nil {
        wakes.writer = state.writer.map { ($0, state.failure.map { .failure($0) } ?? .success(())) }
        wakes.room = state.roomWanted
        (state.writer, state.roomWanted) = (nil, false)
      }
      return (value, wakes)
    }
    if let (reader, result) = wakes.reader { reader.resume(with: result) }
    if let (writer, result) = wakes.writer { writer.resume(with: result) }
    if wakes.room { onRoom?() }
    if wakes.piece { onPiece?() }
    return value
  }

  // MARK: The reader

  /// The next piece, nil at the end. Not cancellable by itself: who cancels calls `fail`.
  package func take() async throws -> [UInt8]? {
    if let result = change({ $0.read() }) { return try result.get() }
    return try await withCheckedThrowingContinuation { continuation in
      change { $0.reader = continuation }
    }
  }

  package func poll() -> Polled {
    switch change({ state -> Result<[UInt8]?, any Error>? in
      let result = state.read()
      state.pieceWanted = result == nil
      return result
    }) {
    case .success(let piece?): .piece(piece)
    case .success(nil): .end
    case .failure(let error): .failed(error)
    case nil: .nothing
    }
  }

  /// The reader is done: what still comes is accepted and dropped.
  package func discard() {
    change {
      $0.isDiscarding = true
      $0.piece = []
    }
  }

  // MARK: The writer

  /// Returns when `store` may be called.
  package func waitForRoom() async throws {
    try await withCheckedThrowingContinuation { continuation in
      change { $0.writer = continuation }
    }
  }

  /// Puts in a piece, after `waitForRoom`.
  package func store(_ piece: [UInt8]) {
    change { state in
      if !state.isDiscarding, state.failure == nil { state.piece = piece }
    }
  }

  /// Takes `bytes`, as a piece of their own or behind those that nobody has taken yet, up to `pieceBytesMax`. Does not
  /// wake the reader: several offers can be brought by one `flush`.
  ///
  /// - Returns: false where there is no room; nothing was taken and `onRoom` will be called.
  package func offer(_ bytes: UnsafeRawBufferPointer) throws -> Bool {
    try state.withLock { state in
      if let failure = state.failure { throw failure }
      if state.isDiscarding { return true }
      guard state.piece.isEmpty || state.piece.count + bytes.count <= pieceBytesMax else {
        state.roomWanted = true
        return false
      }
      state.piece.append(contentsOf: bytes)
      return true
    }
  }

  package func flush() { change { _ in } }

  package func finish() { change { $0.isFinished = true } }

  // MARK: Both

  /// Ends it for both ends. Only the first failure counts, and none that comes after the reader has had everything.
  package func fail(_ error: any Error) {
    change { state in
      if state.failure == nil, !(state.isFinished && state.piece.isEmpty) { state.failure = error }
    }
  }

  package var isFailed: Bool { state.withLock { $0.failure != nil } }

  /// Pulls `source` into the slot, a piece at a time, until its end, its error, or this slot's failure; then closes it.
  /// Cancelling the calling task reaches `source`.
  package func pump(_ source: ByteStream) async {
    do {
      while true {
        try await waitForRoom()
        if state.withLock({ $0.isDiscarding }) { break }
        guard let piece = try await source.next() else { break }
        if !piece.isEmpty { store(piece) }
      }
      finish()
    } catch {
      fail(error)
    }
    await source.close()
  }
}
