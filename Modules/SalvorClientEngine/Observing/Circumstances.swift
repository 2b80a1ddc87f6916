import SalvorModel

/// What calls that stay look at while they do.
final class Circumstances: Sendable {
  private struct State {
    var isMetered = false
    var users = 0
  }
  private let state = Mutex(State())

  var isMetered: Bool {
    get { state.withLock { $0.isMetered } }
    set { state.withLock { $0.isMetered = newValue } }
  }

  /// How many users have signed in: a watch is for one of them.
  var users: Int { state.withLock { $0.users } }

  func otherUser() { state.withLock { $0.users += 1 } }
}
