import SalvorContracts
import SalvorModel
import SalvorModuleKit
import StandardModules
import Testing

/// Every built-in module keeps the part of the lifecycle contract that asks nothing of its product.
@Suite("Built-in modules describe and read their options (architecture, rule 5)")
struct StandardModulesTests {
  /// What must be given, by kind and name.
  private static let required: [String: String] = [
    "client-storage sqlite": "{path: 'a.db'}", "server-storage sqlite": "{path: 'a.db'}",
    "server-storage postgresql": "{url: 'postgresql://localhost/field'}",
    "validator webhook": "{url: 'https://rules.example.org/visits'}",
    "client-transport http": "{url: 'http://127.0.0.1:8484'}", "recovery-strategy program": "{path: 'plan.py'}",
    "conflict-policy program": "{path: 'settle.py'}",
    "authentication tokens": "{file: 'tokens.json5'}",
  ]

  private static func subject(_ factory: ModuleFactory) throws -> LifecycleSubject {
    let name = "\(factory.descriptor.kind.rawValue) \(factory.descriptor.name)"
    return try LifecycleSubject(
      factory, product: (any Sendable).self, options: required[name] ?? "{}",
      context: ModuleContext(modules: try ModuleRegistry(StandardModules.all))
    ) { _ in .init(start: {}, stop: {}, probe: {}) }
  }

  @Test("each rule is kept by every module", arguments: LifecycleContract.configurationCases)
  func keepsTheContract(rule: ContractCase<LifecycleSubject>) async throws {
    for factory in StandardModules.all {
      do {
        try await rule.run(Self.subject(factory))
      } catch {
        Issue.record("\(factory.descriptor.kind.rawValue) \(factory.descriptor.name): \(error)")
      }
    }
  }

  @Test("the list has each kind, and no kind and name twice")
  func list() throws {
    let registry = try ModuleRegistry(StandardModules.all)
    #expect(registry.descriptors.count == StandardModules.all.count)
    for kind in ModuleKind.allCases { #expect(!registry.names(of: kind).isEmpty, "\(kind.rawValue)") }
  }
}
