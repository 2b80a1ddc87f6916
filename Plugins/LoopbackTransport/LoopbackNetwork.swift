import SalvorModel

/// The names under which servers of one process can be reached: what the ports of a machine are to HTTP. Whoever
/// composes a system makes one and gives it to both factories.
public final class LoopbackNetwork: Sendable {
  private let servers = Mutex<[String: LoopbackServerTransport]>([:])

  /// A network of no servers. Networks do not share names.
  public init() {}

  /// False where the name is taken.
  func add(_ server: LoopbackServerTransport, name: String) -> Bool {
    servers.withLock { servers in
      if servers[name] != nil { return false }
      servers[name] = server
      return true
    }
  }

  func remove(_ server: LoopbackServerTransport, name: String) {
    servers.withLock { servers in
      if servers[name] === server { servers[name] = nil }
    }
  }

  func server(_ name: String) -> LoopbackServerTransport? { servers.withLock { $0[name] } }
}
