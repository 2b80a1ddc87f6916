import SalvorStorage
import SalvorWire

extension BeginMessage.Group {
  /// The group as the device has it.
  init(_ state: GroupState) {
    self.init(
      name: state.name, cursor: state.cursor, scope: state.scopeDigest, subscriptions: state.subscriptions)
  }
}
