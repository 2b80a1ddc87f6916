import SalvorModel
import SalvorModuleKit
import SalvorStorage

extension MemoryClientStore {
  /// The module `memory` of the kind client storage. It takes no options; each store that it makes begins with an empty
  /// database of its own.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .clientStorage, name: "memory", summary: "A remote database in memory, for tests and demonstrations",
      guarantees: ["the executable specification of client storage", "nothing is kept when the process ends"]),
    product: (any ClientStore).self
  ) { _, context in
    let random = context.random, clock = context.clock, limits = context.limits
    return { MemoryClientStore(random: random, clock: clock, limits: limits) }
  }
}

extension MemoryServerStore {
  /// The module `memory` of the kind server storage. It takes no options; each store that it makes begins with an empty
  /// database of its own.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .serverStorage, name: "memory", summary: "A consolidated database in memory, for tests and demonstrations",
      guarantees: ["the executable specification of server storage", "nothing is kept when the process ends"]),
    product: (any ServerStore).self
  ) { _, context in
    let random = context.random, clock = context.clock, limits = context.limits
    return { MemoryServerStore(random: random, clock: clock, limits: limits) }
  }
}
