import ClientModules
import LoopbackTransport
import MemoryStore
import SalvorModuleKit
import ServerModules

/// The one list of what is built in (architecture, rule 5): what devices have, what servers have, and the stores and the
/// transport that stay in memory.
public enum StandardModules {
  /// - Parameter network: where the loopback transports of this process find each other.
  public static func all(network: LoopbackNetwork) -> [ModuleFactory] {
    let device = ClientModules.all
    let known = Set(device.map { [$0.descriptor.kind.rawValue, $0.descriptor.name] })
    let server = ServerModules.all.filter { !known.contains([$0.descriptor.kind.rawValue, $0.descriptor.name]) }
    let all =
      device + server + [
        MemoryClientStore.factory, MemoryServerStore.factory, network.clientFactory, network.serverFactory,
      ]
    return all.map { factory in
      var factory = factory
      factory.descriptor.origin = "built in"
      return factory
    }
  }

  /// With a loopback network of its own: the transports that two calls give do not find each other.
  public static var all: [ModuleFactory] { all(network: LoopbackNetwork()) }
}
