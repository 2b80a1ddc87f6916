/// Bytes a second, of one stream or of several together: whoever has bytes to send waits for his turn, in the order of asking.
actor BytePace {
  /// A stream under a limit goes in pieces of this size: none waits long for the others' turns.
  static let pieceBytes = 16 << 10

  private let bytesPerSecond: Int64
  private var free: ContinuousClock.Instant?

  /// Nil: there is no limit.
  init?(_ bytesPerSecond: Int64) {
    guard bytesPerSecond > 0 else { return nil }
    self.bytesPerSecond = bytesPerSecond
  }

  /// Returns when so many bytes may go. The first go at once.
  func wait(_ count: Int) async throws {
    let now = ContinuousClock.now
    let turn = max(free ?? now, now)
    free = turn + .seconds(Double(count) / Double(bytesPerSecond))
    if turn > now { try await Task.sleep(until: turn, clock: .continuous) }
  }
}
