import SalvorModel
import SalvorModuleKit
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The command-line tool over a list of modules: what `main` of the `salvor` executable calls, and of anyone's own.
///
///     await Tool.run(modules: StandardModules.all + [myFactory])
public enum Tool {
  /// Runs the command that the arguments name, and ends the process with its exit code.
  ///
  /// - Parameters:
  ///   - modules: those that configurations may name. Two of one kind and name are refused.
  ///   - commands: beside Salvor's own.
  ///   - arguments: without the tool's name.
  public static func run(
    modules: [ModuleFactory], commands more: [Command] = [],
    arguments: [String] = Array(CommandLine.arguments.dropFirst())
  ) async -> Never {
    signal(SIGPIPE, SIG_IGN)
    exit(await code(modules: modules, commands: more, arguments: arguments))
  }

  static let commands: [Command] = [
    .initialize, .check, .modules, .serve, .register, .sync, .status, .queue, .queueShow, .queueWithdraw, .errors,
    .errorsShow,
    .errorsDelete, .errorsRetry, .subscribe, .unsubscribe, .subscriptions, .verify, .recover, .backups,
    .backupsRestore, .backupsDelete, .capturePause, .captureResume, .rekey, .detach, .remotes, .remotesList,
    .remotesShow,
    .remotesDelete, .remotesReset, .conflicts, .conflictsList,
    .conflictsShow,
    .conflictsResolve, .serverStats, .serverBackup, .serverBackups, .serverSnapshots, .serverSnapshotsMake,
    .serverSnapshotsExport, .serverSnapshotsDelete,
    .serverRestore, .serverRestores, .serverAdopt, .serverPurge, .explain, .doctor, .completions, .manual,
  ]

  static func code(modules: [ModuleFactory], commands more: [Command], arguments: [String]) async -> Int32 {
    let environment = processEnvironment()
    let plain = Terminal(
      isJSON: arguments.contains("--json"), isQuiet: arguments.contains("--quiet"), environment: environment)
    let registry: ModuleRegistry
    do {
      registry = try ModuleRegistry(modules)
    } catch {
      return fail(error, plain)
    }
    let parser = ArgumentParser(tool: "salvor", commands: commands + more)
    switch parser.parse(arguments, registry: registry, environment: environment) {
    case .help(let text):
      plain.isJSON ? plain.json(["help": .string(text)]) : plain.print(text)
      return 0
    case .version:
      let version = ToolVersion(registry)
      plain.isJSON ? plain.json(version.json) : plain.print(version.text)
      return 0
    case .usageError(let text): return fail(SalvorError(.usage, text), plain)
    case .run(let command, let invocation):
      do {
        return try await command.run(invocation)
      } catch {
        return fail(error, invocation.terminal)
      }
    }
  }

  private static func fail(_ error: any Error, _ terminal: Terminal) -> Int32 {
    let error = error as? SalvorError ?? SalvorError(.failed, "Something failed inside: \(type(of: error)).")
    terminal.json(["error": error.json])
    terminal.error("\(terminal.red("error:")) \(error.message)")
    return error.code.exitCode
  }
}
