import SalvorModel
import SalvorModuleKit
import SalvorRecovery

/// `client.recovery`: what a device does when its history and the server's part (semantics 9).
public struct RecoverySettings: Sendable {
  /// The name of the strategy for reasons that `reasons` does not name.
  public var strategy = "recover-unsynced-changes"
  /// A strategy for one reason.
  public var reasons: [RecoveryReason: String] = [:]
  /// Every strategy of the host, with the file's options.
  public var strategies: [PreparedModule<any RecoveryStrategy>] = []
  /// Paths of programs, relative to the working directory like every other path here.
  public var beforeReset: String?
  /// A program that runs when a recovery is done; nil: none.
  public var afterReset: String?
  /// A hook that runs longer is ended and counts as failed.
  public var hookTimeoutSeconds: Int64 = 300
  /// The copies that recoveries keep; older ones are removed.
  public var backupsKept = 3
  /// Which rows are offered to a server that has lost them.
  public var heal = HealMode.own
  /// How long what is kept for a server that goes back is kept at least.
  public var retentionMilliseconds = RecoverySettings.retentionDefault

  /// 90 days, as long as a server keeps its tombstones.
  static let retentionDefault: Int64 = 90 * 86_400_000

  /// The defaults of the file, without any strategy.
  public init() {}

  static func decode(
    _ section: inout OptionReader, directory: String, registry: ModuleRegistry, context: ModuleContext
  ) -> RecoverySettings {
    var settings = RecoverySettings()
    var options: OptionReader?
    guard var reader = section.object("recovery") else {
      settings.prepareStrategies(&options, registry, context)
      return settings
    }
    let names = registry.names(of: .recoveryStrategy)
    settings.strategy = reader.choice("strategy", among: names, default: settings.strategy) ?? settings.strategy
    settings.decodeReasons(&reader, names)
    options = reader.object("options")
    settings.prepareStrategies(&options, registry, context)
    settings.checkOptions(options, &reader)
    if let options { reader.finish(child: options) }
    if var hooks = reader.object("hooks") {
      settings.beforeReset = hook(&hooks, "beforeReset", directory)
      settings.afterReset = hook(&hooks, "afterReset", directory)
      settings.hookTimeoutSeconds = hooks.integer(
        "timeoutSeconds", in: 1...86_400, default: settings.hookTimeoutSeconds)
      reader.finish(child: hooks)
    }
    if var backups = reader.object("backups") {
      settings.backupsKept = Int(backups.integer("keep", in: 0...1000, default: Int64(settings.backupsKept)))
      reader.finish(child: backups)
    }
    settings.heal = reader.choice("heal", default: HealMode.own)
    settings.retentionMilliseconds = TimeSpan.decode(&reader, "retention", default: settings.retentionMilliseconds)
    section.finish(child: reader)
    return settings
  }

  private mutating func decodeReasons(_ reader: inout OptionReader, _ names: [String]) {
    guard var routes = reader.object("reasons") else { return }
    for reason in RecoveryReason.allCases {
      if let strategy = routes.choice(reason.rawValue, among: names, default: nil) { reasons[reason] = strategy }
    }
    reader.finish(child: routes)
  }

  /// Each strategy with its options of the file, or none.
  private mutating func prepareStrategies(
    _ list: inout OptionReader?, _ registry: ModuleRegistry, _ context: ModuleContext
  ) {
    for name in registry.names(of: .recoveryStrategy) {
      guard let factory = try? registry.factory(.recoveryStrategy, name) else { continue }
      let value = list?.value(name)
      var options = OptionReader(
        value ?? ConfigurationValue(.object([]), line: 0), file: list?.file ?? "", path: list?.join(name) ?? name)
      let make = factory.prepare(&options, context, as: (any RecoveryStrategy).self)
      if value != nil { list?.finish(child: options) }
      if let make { strategies.append(PreparedModule(descriptor: factory.descriptor, make: make)) }
    }
  }

  /// A strategy that has to be told something, e.g. which program it is, is of no use where it is named and told nothing.
  private func checkOptions(_ options: OptionReader?, _ reader: inout OptionReader) {
    let missing = Set([strategy] + reasons.values).filter { name in
      !strategies.contains { $0.descriptor.name == name } && options?.has(name) != true
    }
    for name in missing.sorted() {
      reader.report(
        name == strategy ? "strategy" : "reasons",
        "names \(name), which needs options: give them as options: { \(name): { … } } beside it")
    }
  }

  private static func hook(_ reader: inout OptionReader, _ key: String, _ directory: String) -> String? {
    guard let path = reader.optionalString(key) else { return nil }
    if path.isEmpty {
      reader.report(key, "is empty; name a program, or leave it out")
      return nil
    }
    let resolved = directory + "/" + path
    let program = path.hasPrefix("/") ? path : resolved
    if !ConfigurationFile.isExecutable(program) {
      reader.warn(key, "names no file that can be run; recoveries would stop there")
    }
    return program
  }
}
