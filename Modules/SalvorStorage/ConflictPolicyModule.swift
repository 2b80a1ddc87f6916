import SalvorModuleKit

extension ModuleFactory {
  /// The module of a conflict policy without options.
  public static func conflictPolicy(
    _ name: String, _ policy: any ConflictPolicy, _ summary: String, guarantees: [String] = []
  ) -> ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(kind: .conflictPolicy, name: name, summary: summary, guarantees: guarantees),
      product: (any ConflictPolicy).self
    ) { _, _ in { policy } }
  }
}
