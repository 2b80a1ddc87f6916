import SalvorModuleKit
import SalvorStorage

/// The fields that the client changed stand (semantics 7). See README.md.
public enum ClientWinsPolicy {
  /// The module `client-wins` of the kind conflict policy. It takes no options.
  public static let factory = ModuleFactory.conflictPolicy(
    "client-wins", UniformConflictPolicy(.client),
    "Of a row that both sides changed, the fields that the client changed are the client's.",
    guarantees: [
      "No request is refused for a conflict.", "Fields that the client did not change are the server's.",
      "A delete deletes, whatever the server has done to the row.",
    ])
}
