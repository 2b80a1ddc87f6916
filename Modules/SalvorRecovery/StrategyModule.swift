import SalvorModuleKit

extension ModuleFactory {
  /// The module of a strategy without options.
  public static func recoveryStrategy(_ strategy: any RecoveryStrategy, _ summary: String) -> ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(
        kind: .recoveryStrategy, name: strategy.name, summary: summary, guarantees: strategy.guarantees.phrases),
      product: (any RecoveryStrategy).self
    ) { _, _ in { strategy } }
  }
}
