import SalvorContracts
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import SalvorStorage
import SalvorTransport
import SalvorWire

/// `salvor contract`: the cases that a module's own tests run, on any module of the list, a plug-in's too.
let contractCommand = Command(
  "contract", "puts a module through the contract tests of its kind",
  discussion: """
    Runs every case of the contract on the module and shows which rule each one is about. KIND is recovery-strategy,
    conflict-policy, validator, client-storage, server-storage or compression; `salvor modules` lists kinds and names. A
    strategy is run by both engines on SQLite databases in a temporary directory: every reason, killed at every step, the
    network cut at every request, the disk full at every write. A conflict policy is asked about every kind of conflict of
    a sample table; with --config, of the tables that name it, with their options. Ends with 1 where a case fails.

      salvor contract recovery-strategy recover-unsynced-changes
      salvor contract conflict-policy keep-versions
      salvor contract client-storage sqlite --options '{ path: "{file}" }'
      salvor contract validator webhook --options '{ url: "http://127.0.0.1:8600/" }'

    A library's module is found where --config names a file that has the library under plugins. What passing does not prove is said at the
    end.

    A validator is asked about requests of tables that it need not know; a webhook's service must run.
    """,
  arguments: ["KIND", "NAME"],
  options: [
    Command.Option(
      "options", value: "JSON5", "the module's options; {file} becomes a file that is not there yet"),
    Command.Option("only", value: "TEXT", "only cases with TEXT in their names"),
  ]
) { invocation in
  defer { ScratchFolder.removeAll() }
  let (kind, name) = (invocation.arguments[0], invocation.arguments[1])
  // A library's module is put through it as any other.
  let invocation = try invocation.withPlugins()
  let module = try ContractModule(kind, name, invocation)
  // Options that do not make the module are the command's fault, and no case's: it is made once before the first one.
  var run = ContractRun(terminal: invocation.terminal, only: invocation.options["only"])
  switch module.factory.descriptor.kind {
  case .recoveryStrategy:
    let strategy = try module.maker((any RecoveryStrategy).self)()
    run.unproven = RecoveryStrategyContract.unproven
    await run.cases(RecoveryStrategyContract.cases) {
      RecoverySubject(
        strategy, stores: contractStores, known: Set(invocation.registry.names(of: .recoveryStrategy)),
        damage: overwriteFile)
    }
  case .conflictPolicy:
    for subject in try conflictPolicies(module, name, invocation) {
      await run.cases(ConflictPolicyContract.cases) { subject }
    }
  case .compression:
    run.unproven = CompressionContract.unproven
    _ = try module.maker((any Compression).self)()
    await run.cases(CompressionContract.cases) { try module.maker((any Compression).self)() }
  case .clientStorage:
    let probe = try module.maker((any ClientStore).self)()
    let subject = StoreSubject<any ClientStore>(recovers: probe is any RecoveringClientStore) {
      try module.maker((any ClientStore).self)
    }
    await run.cases(ClientStoreContract.cases) { subject }
  case .serverStorage:
    let probe = try module.maker((any ServerStore).self)()
    let subject = StoreSubject<any ServerStore>(recovers: probe is any RecoveringServerStore) {
      try module.maker((any ServerStore).self)
    }
    await run.cases(ServerStoreContract.cases) { subject }
  case .validator:
    _ = try module.maker((any RequestValidator).self)()
    await run.cases(ValidatorContract.cases) {
      ValidatorSubject(try module.maker((any RequestValidator).self)())
    }
  case .clientTransport, .serverTransport, .authentication:
    throw SalvorError(
      .usage,
      "The contract of \(kind) needs to know more than options, e.g. who is let in and who is not: adopt its suite in a test of your package (Modules/SalvorContracts/README.md). Here: recovery-strategy, conflict-policy, validator, client-storage, server-storage, compression."
    )
  }
  return try run.finish(kind, name)
}

/// The policy with a sample table; with `--config`, as the tables of that file's schema name it.
private func conflictPolicies(
  _ module: ContractModule, _ name: String, _ invocation: Invocation
) throws -> [ConflictPolicySubject] {
  guard invocation.options["config"] != nil else {
    return [ConflictPolicySubject(try module.maker((any ConflictPolicy).self)())]
  }
  let configuration = try invocation.readConfiguration([.server]).get()
  let subjects = try configuration.schema.tables.compactMap { table -> ConflictPolicySubject? in
    guard let policy = configuration.conflictPolicies[table.name], policy.descriptor.name == name else { return nil }
    return ConflictPolicySubject(try policy.make(), for: table)
  }
  guard !subjects.isEmpty else {
    throw SalvorError(.usage, "No table of \(invocation.configurationPath) names the conflict policy \(name).")
  }
  return subjects
}

/// Runs cases one after the other, with a progress line, and shows what came of them.
private struct ContractRun {
  let terminal: Terminal
  let only: String?
  /// What passing does not prove.
  var unproven: [String] = []
  private var outcomes: [ContractOutcome] = []

  init(terminal: Terminal, only: String?) {
    self.terminal = terminal
    self.only = only
  }

  mutating func cases<Subject>(
    _ all: [ContractCase<Subject>], makeSubject: @Sendable () async throws -> Subject
  ) async {
    let chosen = all.filter { rule in only.map { rule.name.contains($0) } ?? true }
    for (place, rule) in chosen.enumerated() {
      terminal.progress(rule.name, share: Double(place) / Double(chosen.count))
      // One case at a time, and nothing beside it: what the process takes is the case's.
      outcomes += await ContractMemory.$ofACase.withValue(2 << 30) {
        await runContract([rule], makeSubject: makeSubject)
      }
    }
    terminal.endProgress()
  }

  /// The exit code.
  func finish(_ kind: String, _ name: String) throws -> Int32 {
    guard !outcomes.isEmpty else { throw SalvorError(.usage, "No case has \"\(only ?? "")\" in its name.") }
    let failed = outcomes.filter { $0.failure != nil }
    terminal.json([
      "kind": .string(kind), "name": .string(name), "passed": .integer(Int64(outcomes.count - failed.count)),
      "failed": .integer(Int64(failed.count)),
      "cases": .array(
        outcomes.map { outcome in
          [
            "name": .string(outcome.name), "rule": .string(outcome.rule), "passed": .bool(outcome.failure == nil),
            "failure": outcome.failure.map(JSONValue.string) ?? .null,
          ]
        }),
    ])
    terminal.table(
      ["", "case", "rule"],
      outcomes.map { [$0.failure == nil ? "ok" : "no", $0.name, $0.rule] })
    for outcome in failed { terminal.print("\n\(terminal.red(outcome.name)): \(outcome.failure ?? "")") }
    for line in unproven { terminal.say("not proved: \(line)") }
    terminal.say("\n\(kind) \(name): \(outcomes.count - failed.count) of \(outcomes.count) cases passed")
    return failed.isEmpty ? 0 : 1
  }
}
