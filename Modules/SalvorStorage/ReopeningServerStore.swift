import SalvorModel

/// A server store that reopens its database by itself when another history replaces it: after a failover, or when somebody restores
/// the database under a running server (semantics 6).
public protocol ReopeningServerStore: ServerStore {
  /// How the database is open now: its incarnation, and whether commits that were seen are missing in it. Nil: it is not open.
  var opening: ServerOpening? { get }
}
