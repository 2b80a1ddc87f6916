import SalvorModel

/// The task that a synchronization runs in, as its callbacks know it. What they call may wait for that very synchronization to
/// end, which waits for the callback: both would wait for ever, so such a call is refused.
final class OwnTask: Sendable {
  private let client: ObjectIdentifier
  private let task: Int
  /// Tasks that a callback leaves behind inherit this, and the system gives the number of one that has ended to another.
  private let isOver = Mutex(false)

  @TaskLocal static var current: OwnTask?

  /// - Parameter client: whose synchronization it is.
  init(of client: AnyObject) {
    self.client = ObjectIdentifier(client)
    task = Self.number
  }

  private init(_ client: ObjectIdentifier) {
    self.client = client
    task = Self.number
  }

  private static var number: Int { withUnsafeCurrentTask { $0?.hashValue ?? 0 } }

  func end() { isOver.withLock { $0 = true } }

  /// A callback of the synchronization in a task of its own.
  static func extended<Result: Sendable>(
    _ callback: @Sendable () async throws -> Result
  ) async throws -> Result {
    guard let current else { return try await callback() }
    let own = OwnTask(current.client)
    defer { own.end() }
    return try await $current.withValue(own) { try await callback() }
  }

  /// Throws `usage` where a callback of this client's synchronization is the caller.
  static func refuse(_ client: AnyObject) throws(SalvorError) {
    guard let current, current.client == ObjectIdentifier(client), current.task == number,
      !current.isOver.withLock({ $0 })
    else { return }
    throw SalvorError(
      .usage,
      "A callback of a synchronization asks for something that waits for the end of this very synchronization. Ask for it when synchronize has returned, or in a Task that the callback does not wait for."
    )
  }
}
