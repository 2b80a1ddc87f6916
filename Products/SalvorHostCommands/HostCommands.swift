import SalvorHost

/// The commands of a host of one's own that need more than a configuration: what `salvor` itself has beside those of `Tool`.
///
///     await Tool.run(modules: StandardModules.all + [my], commands: HostCommands.all)
public enum HostCommands {
  /// `contract` and `token`.
  public static var all: [Command] { [contractCommand, tokenCommand] }
}
