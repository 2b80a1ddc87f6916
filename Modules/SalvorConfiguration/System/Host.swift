import SalvorModel
import SalvorModuleKit

/// A configuration file and a list of modules become a running system.
///
///     let configuration = try Host.load("salvor.json5", modules: StandardModules.all, environment: environment)
///     let client = try Host.makeClient(configuration)
public enum Host {
  /// Reads and checks the file. Throws `configuration` with every problem in its message.
  public static func load(
    _ path: String, modules: [ModuleFactory], environment: [String: String],
    sections: Set<HostSection> = Set(HostSection.allCases), log: Log = .none
  ) throws -> HostConfiguration {
    try HostConfiguration.load(
      path: path, registry: try ModuleRegistry(modules), environment: environment, sections: sections,
      template: ModuleContext(log: log)
    ).get()
  }
}
