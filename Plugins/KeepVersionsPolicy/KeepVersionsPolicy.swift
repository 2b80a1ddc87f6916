import SalvorModuleKit
import SalvorStorage

/// Both versions are kept, for a person (semantics 7). See README.md.
public enum KeepVersionsPolicy {
  /// The module `keep-versions` of the kind conflict policy. It takes no options.
  public static let factory = ModuleFactory.conflictPolicy(
    "keep-versions", UniformConflictPolicy(.both),
    "The server's row stands, and the client's version is kept beside it for a person.",
    guarantees: [
      "No request is refused for a conflict.", "The server's row stands until a person resolves the conflict.",
      "Nothing that a client wrote is lost: salvor conflicts lists it, with who, when and on which commit.",
    ])
}
