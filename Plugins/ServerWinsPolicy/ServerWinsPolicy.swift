import SalvorModuleKit
import SalvorStorage

/// A request in conflict is refused (semantics 7). See README.md.
public enum ServerWinsPolicy {
  /// The module `server-wins` of the kind conflict policy. It takes no options.
  public static let factory = ModuleFactory.conflictPolicy(
    "server-wins", UniformConflictPolicy(.server), "A request that changes a row which the server changed is refused.",
    guarantees: [
      "The server's row stands.", "The client's change is in the device's archive, with the reason conflict.",
    ])
}
