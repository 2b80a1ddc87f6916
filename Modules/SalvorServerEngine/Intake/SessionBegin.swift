import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// A begin that has passed every check.
struct SessionBegin: Sendable {
  var message: BeginMessage
  /// S = C: the recorded results are given again.
  var answersAgain = false
  /// The device's schema differs, additively: the SyncConfig goes with the answer.
  var sendsConfig = false
  /// Incarnations of this server that the device does not know.
  var incarnations: [Incarnation] = []
  /// What the device is told of healing; nil: this store takes no offers.
  var heal: HealTerms?
  /// The whole download, where nothing is to come.
  var page: FeedPage?
}
