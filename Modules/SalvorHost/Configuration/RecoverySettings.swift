import SalvorModel
import SalvorModuleKit

/// A recovery strategy as the configuration knows it: its name, and how its options are read.
public struct StrategyDeclaration: Sendable {
  public var name: String
  /// Reads every option of the strategy through the reader, which collects what is wrong.
  public var readOptions: @Sendable (inout OptionReader) -> Void

  public init(_ name: String, readOptions: @escaping @Sendable (inout OptionReader) -> Void = { _ in }) {
    self.name = name
    self.readOptions = readOptions
  }

  /// The strategies of semantics 9.
  public static let standard: [StrategyDeclaration] = [
    StrategyDeclaration("recreate"),
    StrategyDeclaration("copy-and-resubscribe"),
    StrategyDeclaration("upload-then-recreate") { reader in
      _ = reader.choice("then", among: ["recreate", "copy-and-resubscribe"], default: "recreate")
    },
    StrategyDeclaration("recover-unsynced-changes"),
    StrategyDeclaration("recover-or-discard-unsynced-changes"),
    StrategyDeclaration("discard-unsynced-changes"),
    StrategyDeclaration("manual"),
  ]
}

/// Which lost rows a device offers to a restored server (semantics 10).
public enum HealMode: String, Sendable, CaseIterable {
  case own, all, off
}

/// `client.recovery`: what a device does when its history and the server's part (semantics 9).
public struct RecoverySettings: Sendable {
  public var strategy = "recover-unsynced-changes"
  /// A strategy for one reason.
  public var reasons: [RecoveryReason: String] = [:]
  /// The options of each strategy that has some, checked; by the strategy's name.
  public var options: [String: ConfigurationValue] = [:]
  /// Paths of programs, relative to the working directory like every other path here.
  public var beforeReset: String?
  public var afterReset: String?
  /// A hook that runs longer is ended and counts as failed.
  public var hookTimeoutSeconds: Int64 = 300
  /// The copies that recoveries keep; older ones are removed.
  public var backupsKept = 3
  public var heal = HealMode.own

  public init() {}

  /// The strategy for a reason. `server-replaced` is manual unless the file names one for it (semantics 6).
  public func strategy(for reason: RecoveryReason) -> String {
    reasons[reason] ?? (reason == .serverReplaced ? "manual" : strategy)
  }

  static func decode(
    _ section: inout OptionReader, directory: String, strategies: [StrategyDeclaration]
  ) -> RecoverySettings {
    var settings = RecoverySettings()
    guard var reader = section.object("recovery") else { return settings }
    let names = strategies.map(\.name)
    settings.strategy = reader.choice("strategy", among: names, default: settings.strategy) ?? settings.strategy
    settings.decodeReasons(&reader, names)
    settings.decodeOptions(&reader, strategies)
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

  private mutating func decodeOptions(_ reader: inout OptionReader, _ strategies: [StrategyDeclaration]) {
    guard var list = reader.object("options") else { return }
    for strategy in strategies {
      guard let value = list.value(strategy.name) else { continue }
      var child = OptionReader(value, file: list.file, path: list.join(strategy.name))
      if case .object = value.content {
        strategy.readOptions(&child)
        options[strategy.name] = value
      }
      list.finish(child: child)
    }
    reader.finish(child: list)
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
