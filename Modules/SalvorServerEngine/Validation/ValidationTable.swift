import SalvorModel
import SalvorStorage

/// The uploads that validators are asked about, one for each remote.
///
/// Asking goes on when the device that waited for it is gone, and what came of it is kept for a while: the device comes
/// back with the same upload, and finds the answer. So a slow validator never begins anew for a device that hangs up
/// before it has ended. What is in staging cannot be changed between being judged and being processed.
final class ValidationTable: Sendable {
  private struct Entry {
    var upload: JudgedUpload
    var task: Task<[Refusal], any Error>
    /// Requests of the protocol that wait for it, or process what it found.
    var users = 1
    /// Milliseconds since 1970, when the last user left.
    var left: Int64 = 0
  }

  private struct State {
    var entries: [RemoteID: Entry] = [:]
    /// Chunks on their way into staging.
    var stagings: [RemoteID: Int] = [:]
    var isClosed = false
  }

  private let state = Mutex(State())
  private let clock: any Clock
  /// How long an answer is kept for a device that has hung up.
  static let keptMilliseconds: Int64 = 600_000

  init(clock: any Clock) { self.clock = clock }

  /// Runs `body` with what `judge` finds of the upload: begun here, under way, or kept. The upload counts as under way
  /// until `body` has ended; where it ends well, nothing is kept.
  func judged<Result: Sendable>(
    _ upload: JudgedUpload, judge: @escaping @Sendable () async throws -> [Refusal],
    body: @Sendable ([Refusal]) async throws -> Result
  ) async throws -> Result {
    let task = try enter(upload, judge)
    do {
      let result = try await body(try await task.value)
      leave(upload, task, isDone: true)
      return result
    } catch {
      leave(upload, task, isDone: false)
      throw error
    }
  }

  private func enter(
    _ upload: JudgedUpload, _ judge: @escaping @Sendable () async throws -> [Refusal]
  ) throws -> Task<[Refusal], any Error> {
    let now = clock.now()
    return try state.withLock { state in
      guard !state.isClosed else { throw SalvorError(.overloaded, "The server is stopping. Sync again later.") }
      guard state.stagings[upload.remote, default: 0] == 0 else { throw Self.inUse(upload.remote) }
      state.entries = state.entries.filter { $0.value.users > 0 || now - $0.value.left < Self.keptMilliseconds }
      if state.entries[upload.remote]?.upload == upload {
        state.entries[upload.remote]?.users += 1
        if let task = state.entries[upload.remote]?.task { return task }
      }
      state.entries[upload.remote]?.task.cancel()
      let task = Task { try await judge() }
      state.entries[upload.remote] = Entry(upload: upload, task: task)
      return task
    }
  }

  private func leave(_ upload: JudgedUpload, _ task: Task<[Refusal], any Error>, isDone: Bool) {
    let now = clock.now()
    state.withLock { state in
      guard var entry = state.entries[upload.remote], entry.task == task else { return }
      entry.users -= 1
      entry.left = now
      state.entries[upload.remote] = isDone && entry.users == 0 ? nil : entry
    }
  }

  /// What failed is asked anew by the next one.
  func forget(_ upload: JudgedUpload) {
    state.withLock { state in
      if state.entries[upload.remote]?.upload == upload { state.entries[upload.remote] = nil }
    }
  }

  /// Runs `body`, which puts a chunk into staging. Throws `session-in-use` while an upload of the remote is judged or
  /// processed.
  func staging(_ remote: RemoteID, body: () async throws -> Void) async throws {
    try state.withLock { state in
      if let entry = state.entries[remote] {
        guard entry.users == 0 else { throw Self.inUse(remote) }
        entry.task.cancel()
        state.entries[remote] = nil
      }
      state.stagings[remote, default: 0] += 1
    }
    defer {
      state.withLock { state in
        let left = state.stagings[remote, default: 1] - 1
        state.stagings[remote] = left > 0 ? left : nil
      }
    }
    try await body()
  }

  private static func inUse(_ remote: RemoteID) -> SalvorError {
    SalvorError(
      .sessionInUse, "An upload of this remote ID is being looked at. Wait for it to end.",
      context: ["remote": remote.text], retryAfterMilliseconds: 500)
  }

  /// Ends what is under way.
  func close() {
    let entries = state.withLock { state in
      state.isClosed = true
      defer { state.entries = [:] }
      return state.entries
    }
    for entry in entries.values { entry.task.cancel() }
  }
}
