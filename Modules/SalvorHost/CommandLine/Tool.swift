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
    keepStandardDescriptors()
    exit(await code(modules: modules, commands: more, arguments: arguments))
  }

  /// One that is closed would become that of the next file that is opened, and what is printed would go there. Nothing can be written to what
  /// takes its place.
  private static func keepStandardDescriptors() {
    for descriptor in Int32(0)...2 where fcntl(descriptor, F_GETFD) == -1 { _ = open("/dev/null", O_RDONLY) }
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
      return written(0, plain)
    case .version:
      let version = ToolVersion(registry)
      plain.isJSON ? plain.json(version.json) : plain.print(version.text)
      return written(0, plain)
    case .usageError(let text): return fail(SalvorError(.usage, text), plain)
    case .run(let command, let invocation):
      do {
        return written(try await command.run(invocation), invocation.terminal)
      } catch {
        return written(fail(error, invocation.terminal), invocation.terminal)
      }
    }
  }

  /// What was asked for is not done where nobody could read the answer: a script that reads it must not take it for a success.
  private static func written(_ code: Int32, _ terminal: Terminal) -> Int32 {
    guard let failure = terminal.outputFailure else { return code }
    terminal.error(
      "\(terminal.red("error:")) Standard output could not be written: \(failure). What the command did is done; its answer is lost."
    )
    return code == 0 ? ErrorCode.failed.exitCode : code
  }

  private static func fail(_ error: any Error, _ terminal: Terminal) -> Int32 {
    let error = error as? SalvorError ?? SalvorError(.failed, "Something failed inside: \(type(of: error)).")
    terminal.json(["error": error.json])
    terminal.error("\(terminal.red("error:")) \(error.message)")
    return error.code.exitCode
  }
}
