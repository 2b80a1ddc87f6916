import SalvorModel
import SalvorStorage

/// Which offers wait before anything is written.
struct OfferIntake: Sendable {
  enum Purpose: Sendable {
    case upload, settling, rejecting, givingUp
  }

  var purpose = Purpose.upload
  /// Every offer waits for the operator's consent.
  var reviews = false
  var isPaused = false
}

/// An offer that the server holds.
struct HeldOffer: Sendable {
  var place: Int64
  var request: Request
  var remote: RemoteID
  var principal: Principal
  var reason: WaitingReason
  var parent: RowName?
  /// Milliseconds since 1970.
  var time: Int64
}
