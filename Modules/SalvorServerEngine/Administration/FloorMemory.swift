import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// The floor of a store's listed copies, looked up once a minute: each begin tells it.
final class FloorMemory: Sendable {
  private let known = Mutex<(number: Int64?, at: Int64)?>(nil)
  private let clock: any Clock

  init(clock: any Clock) { self.clock = clock }

  /// Nil: no copy is listed, or the list cannot be read.
  func number(_ store: any ServerStore) async -> Int64? {
    let now = clock.now()
    if let known = known.withLock({ $0 }), now - known.at < 60_000, now >= known.at { return known.number }
    let listed = try? await (store as? any BackupListingServerStore)?.recordedBackups()
    let number = listed.flatMap { RecordedBackup.floor(of: $0) }
    known.withLock { $0 = (number, now) }
    return number
  }
}
