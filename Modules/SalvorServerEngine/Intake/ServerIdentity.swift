import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

struct ServerIdentity: Sendable {
  private let opening: ServerOpening
  private let store: any ServerStore

  init(_ opening: ServerOpening, _ store: any ServerStore) { (self.opening, self.store) = (opening, store) }

  private var present: ServerOpening { (store as? any ReopeningServerStore)?.opening ?? opening }

  var server: ServerID { opening.serverID }
  /// It changes when the store reopens its database.
  var incarnation: IncarnationID { present.incarnation }
  /// Commits that were seen before are missing: at this start, or since the store has reopened its database.
  var isRestored: Bool { opening.isRestored || present.isRestored }
}
