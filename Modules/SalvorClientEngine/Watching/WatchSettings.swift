import SalvorModel
import SalvorStorage

/// What a person has set for the groups of a remote database, in `salvor_setting` (docs/guides, *Changes at once*). Any
/// SQLite library may write it, and a recovery keeps it as it keeps all settings (semantics 9).
///
/// | name | value | |
/// | --- | --- | --- |
/// | `salvor.serverInitiated.GROUP` | `on` (default), `off` | whether what changes on the server starts a sync of the group |
/// | `salvor.interval.GROUP` | seconds, 60 by default; 0: never | how often the group is synchronized while the server does not tell of its changes |
struct WatchSettings: Sendable, Hashable {
  private let settings: [String: Value]

  static let intervalSecondsDefault = 60.0
  static let intervalSecondsMin = 0.1

  init(_ settings: [String: Value] = [:]) { self.settings = settings }

  func isServerInitiated(_ group: String) -> Bool {
    let value = settings["salvor.serverInitiated.\(group)"] ?? .null
    return value != 0 && !["off", "0", "false", "no"].contains(value.string?.lowercased())
  }

  /// Nil: never. What is no number counts as not set.
  func intervalMilliseconds(_ group: String) -> Int64? {
    let seconds: Double? =
      switch settings["salvor.interval.\(group)"] {
      case .integer(let number)?: Double(number)
      case .real(let number)? where number.isFinite: number
      case let value?: value.string.flatMap { Double($0) }
      case nil: nil
      }
    let chosen = seconds ?? Self.intervalSecondsDefault
    guard chosen > 0 else { return nil }
    return Int64(min(max(chosen, Self.intervalSecondsMin), 1e9) * 1000)
  }
}
