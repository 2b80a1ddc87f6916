import SalvorModel

/// A store whose database other processes may synchronize, too: whoever synchronizes, recovers or restores takes a turn first
/// (semantics 4: two syncs of one device are one after the other).
public protocol TurnTakingClientStore: ClientStore {
  /// Throws `session-in-use` while somebody else has the turn. What the one before did to the database is known when this
  /// returns, also where it put another file in its place. Before `open` it may be called, too.
  func takeTurn() async throws

  /// Also where there is none.
  func giveTurn() async
}
