/// When the writer leaves the write lock alone for a moment. SQLite lets others wait by looking now and then: one short
/// transaction of Salvor's after the other would keep another program out for as long as devices come.
struct WritePause {
  /// Held for so long without a gap, the lock is left alone for `pause`.
  private static let heldMax = Duration.milliseconds(80)
  static let pause = Duration.milliseconds(20)

  private var held = Duration.zero
  private var ended: ContinuousClock.Instant?

  /// A transaction is about to begin. True: wait for `pause` first.
  mutating func isDue(_ now: ContinuousClock.Instant) -> Bool {
    // Nobody held it meanwhile: others have had their chance.
    if let ended, now - ended >= Self.pause { held = .zero }
    guard held >= Self.heldMax else { return false }
    held = .zero
    return true
  }

  mutating func add(from began: ContinuousClock.Instant, to ended: ContinuousClock.Instant) {
    held += ended - began
    self.ended = ended
  }
}
