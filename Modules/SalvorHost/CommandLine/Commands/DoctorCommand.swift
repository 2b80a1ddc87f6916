import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

extension Command {
  static let doctor = Command(
    "doctor", "what is wrong with this installation, and the way on",
    discussion: """
      Looks at the configuration, the files and their rights, free space, the limits of the system, the clock, and whether
      the server answers; on a server also at the end of its certificates, at its remotes (the database is opened as by
      salvor remotes), and, where the server runs, at the releases that devices have. A database of another machine is asked
      what would keep it from being served: rights, types, keys; nothing is changed in it. Exit code 2 where something is
      wrong, 0 where all is well or could be better. With --url it also asks the server under the address that devices use,
      through whatever proxies there are. With --reach it asks the server alone (exit code 3 where it does not answer): for
      health checks of containers.
      """,
    options: [
      Option("reach", "only whether the server answers"),
      Option("url", value: "URL", "the address that devices use: is the server reached there?"),
    ]
  ) { invocation in
    let terminal = invocation.terminal
    let loaded = invocation.readConfiguration()
    var examination = Examination(configuration: loaded.configuration, environment: invocation.environment)
    if invocation.flags.contains("reach") {
      let finding = await examination.reach(invocation)
      terminal.json(["findings": .array([finding.json])])
      terminal.say(finding.line(on: terminal))
      return finding.state == .good ? 0 : 3
    }
    examination.takeConfiguration(loaded)
    examination.files()
    examination.system()
    examination.libraries(invocation.registry)
    if loaded.configuration != nil { examination.add(await examination.reach(invocation)) }
    if let url = invocation.options["url"] { examination.add(await examination.reach(outside: url, invocation)) }
    if loaded.configuration?.server != nil {
      examination.certificates()
      await examination.storage()
      await examination.fleet(invocation)
    }
    terminal.json([
      "healthy": .bool(!examination.findings.contains { $0.state == .bad }),
      "findings": .array(examination.findings.map(\.json)),
    ])
    for finding in examination.findings { terminal.print(finding.line(on: terminal)) }
    return examination.findings.contains { $0.state == .bad } ? 2 : 0
  }
}
