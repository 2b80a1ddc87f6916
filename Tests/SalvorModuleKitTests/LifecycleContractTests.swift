import SalvorContracts
import SalvorModel
import SalvorModuleKit
import Testing

/// Ports of a make-believe machine, shared by the modules of one test.
private final class Harbour: Sendable {
  private let held = Mutex<[Int64: Int]>([:])
  private let makes = Mutex(0)

  func nextOwner() -> Int {
    makes.withLock { count in
      count += 1
      return count
    }
  }

  func take(_ port: Int64, owner: Int) -> Bool {
    held.withLock { held in
      if held[port] != nil { return false }
      held[port] = owner
      return true
    }
  }

  func release(_ port: Int64, owner: Int?) {
    held.withLock { held in
      if owner == nil || held[port] == owner { held[port] = nil }
    }
  }

  func holds(_ port: Int64, owner: Int) -> Bool { held.withLock { $0[port] == owner } }
  func ports() -> [String] { held.withLock { $0.keys.sorted().map { "port \($0)" } } }
}

/// What is broken about a module.
private enum Flaw: String, CustomTestStringConvertible {
  case none
  case noSummary, hiddenOption, wrongDefault, missingIsIgnored, wrongTypeIsIgnored, stopsAtTheFirstMistake
  case preparingTouches, refusesSoundOptionsTheSecondTime
  case doesNotWork, stopBeforeStartThrows, idleStopReleases, leaksOnStop, secondStopReleases
  case failedStartLeaks, failedStartThrowsUnnamed, stopAfterFailedStartThrows, failedStartPretends

  var testDescription: String { rawValue }
}

/// Holds a port while it runs.
private final class Dock: ModuleLifecycle {
  private let harbour: Harbour
  private let flaw: Flaw
  private let port: Int64
  let owner: Int
  private let state = Mutex(State.made)
  private enum State { case made, running, failed, stopped }
  struct Unnamed: Error {}

  init(_ harbour: Harbour, _ flaw: Flaw, port: Int64) {
    self.harbour = harbour
    self.flaw = flaw
    self.port = port
    owner = harbour.nextOwner()
  }

  func start() async throws {
    if port == 99 {
      state.withLock { $0 = .failed }
      switch flaw {
      case .failedStartPretends: return
      case .failedStartLeaks: _ = harbour.take(1, owner: owner)
      case .failedStartThrowsUnnamed: throw Unnamed()
      default: break
      }
      throw SalvorError(.failed, "Port 99 cannot be taken. Choose another one.")
    }
    guard harbour.take(port, owner: owner) else {
      throw SalvorError(.failed, "The port is taken. Choose another one.")
    }
    state.withLock { $0 = .running }
  }

  func stop() async {
    let before = state.withLock { state in
      defer { state = state == .running ? .stopped : state }
      return state
    }
    switch (before, flaw) {
    case (.running, .leaksOnStop): break
    case (.running, _): harbour.release(port, owner: owner)
    case (.made, .idleStopReleases), (.stopped, .secondStopReleases): harbour.release(port, owner: nil)
    default: break
    }
  }

  /// A seam whose stop can throw.
  func close() async throws {
    let isFailed = state.withLock { $0 == .failed }
    let isMade = state.withLock { $0 == .made }
    if flaw == .stopBeforeStartThrows, isMade { throw Unnamed() }
    if flaw == .stopAfterFailedStartThrows, isFailed { throw Unnamed() }
    await stop()
  }

  func work() throws {
    guard flaw != .doesNotWork, harbour.holds(port, owner: owner) else { throw Unnamed() }
  }
}

private func factory(_ flaw: Flaw, _ harbour: Harbour) -> ModuleFactory {
  let preparations = Mutex(0)
  let descriptor = ModuleDescriptor(
    kind: .serverTransport, name: "dock", summary: flaw == .noSummary ? "" : "Holds a port",
    options: [
      ModuleOption("port", type: "integer", default: nil, "the port to hold"),
      ModuleOption(
        "colour", type: "string", default: flaw == .wrongDefault ? "\"pink\"" : "\"red\"", "of the boats"),
      ModuleOption("depth", type: "integer", default: "3", "in metres"),
      ModuleOption("crane", type: "object", default: "none", "without it none"),
    ])
  return ModuleFactory(descriptor, product: Dock.self) { reader, _ in
    let count = preparations.withLock { count in
      count += 1
      return count
    }
    if flaw == .refusesSoundOptionsTheSecondTime, count > 1 { reader.report("port", "was read before") }
    if flaw == .preparingTouches { _ = harbour.take(Int64(1000 + count), owner: 0) }
    if flaw == .hiddenOption { _ = reader.boolean("secret", default: false) }
    if let crane = reader.object("crane") { reader.finish(child: crane) }
    let port: Int64
    if flaw == .missingIsIgnored, !reader.has("port") {
      port = reader.integer("port", in: 1...99, default: 1)
    } else if reader.has("port") {
      port = reader.integer("port", in: 1...99, default: 1)
    } else {
      _ = reader.value("port")
      reader.report("port", "is missing; give a port")
      port = 1
    }
    if flaw == .stopsAtTheFirstMistake, reader.diagnostics.contains(where: { $0.path.hasSuffix("port") }) {
      _ = reader.value("colour")
      _ = reader.value("depth")
      return nil
    }
    _ = reader.choice("colour", among: ["red", "blue"], default: "red")
    if flaw == .wrongTypeIsIgnored {
      _ = reader.value("depth")
    } else {
      _ = reader.integer("depth", in: 1...9, default: 3)
    }
    return { Dock(harbour, flaw, port: port) }
  }
}

private func subject(_ flaw: Flaw) throws -> LifecycleSubject {
  let harbour = Harbour()
  return try LifecycleSubject(
    factory(flaw, harbour), product: Dock.self, options: "{ port: 1 }", failingOptions: "{ port: 99 }",
    footprint: { harbour.ports() }
  ) { dock in
    .init(start: { try await dock.start() }, stop: { try await dock.close() }, probe: { try dock.work() })
  }
}

@Suite("The lifecycle contract (architecture, rules 5 and 6)")
struct LifecycleContractTests {
  @Test("a sound module keeps every rule", arguments: LifecycleContract.cases)
  func sound(rule: ContractCase<LifecycleSubject>) async throws {
    try await rule.run(subject(.none))
  }

  @Test(
    "a broken module is caught by the rule that it breaks",
    arguments: [
      (.noSummary, ["a module describes itself in one line"]),
      (.hiddenOption, ["a module reads the options that it describes, and no other"]),
      (.wrongDefault, ["an option at the default that is described is accepted"]),
      (.missingIsIgnored, ["an option without a default is missed by its name"]),
      (
        .wrongTypeIsIgnored,
        ["an option of a wrong type is refused by its name", "everything wrong is reported at once"]
      ),
      (.stopsAtTheFirstMistake, ["everything wrong is reported at once"]),
      (.doesNotWork, ["a started module works"]),
      (.stopBeforeStartThrows, ["stop is safe before start"]),
      (.idleStopReleases, ["a module that never started does not stop another's work"]),
      (.leaksOnStop, ["stop gives everything back"]),
      (.secondStopReleases, ["stop is safe twice, and the second does not stop another's work"]),
      (.failedStartLeaks, ["stop is safe after a failed start, and gives everything back"]),
      (.failedStartThrowsUnnamed, ["a start that fails throws a named error"]),
      (.stopAfterFailedStartThrows, ["stop is safe after a failed start, and gives everything back"]),
      (.failedStartPretends, ["stop is safe after a failed start, and gives everything back"]),
      (.preparingTouches, ["reading options touches nothing"]),
      (.refusesSoundOptionsTheSecondTime, ["sound options are accepted, as often as they are read"]),
    ] as [(Flaw, [String])])
  fileprivate func broken(flaw: Flaw, expected: [String]) async throws {
    let broken = await brokenRules(LifecycleContract.cases) { try subject(flaw) }
    for rule in expected { #expect(broken.contains(rule), "\(flaw) breaks \(broken)") }
  }

  @Test("the shape with ModuleLifecycle runs the same cases")
  func lifecycleProduct() async throws {
    let harbour = Harbour()
    let plain = ModuleFactory(
      ModuleDescriptor(
        kind: .serverTransport, name: "plain", summary: "Holds port 1"), product: (any ModuleLifecycle).self
    ) { _, _ in { Dock(harbour, .none, port: 1) } }
    let outcomes = await runContract(LifecycleContract.cases) { try LifecycleSubject(lifecycle: plain) }
    #expect(outcomes.filter { $0.failure != nil } == [])
    #expect(outcomes.count == LifecycleContract.cases.count)
  }

  @Test("case names are unique, and every case names its rule")
  func names() {
    let names = LifecycleContract.cases.map(\.name)
    #expect(Set(names).count == names.count)
    #expect(LifecycleContract.cases.allSatisfy { !$0.rule.isEmpty })
  }
}

@Suite("Expectations of contract suites")
struct ContractExpectationTests {
  @Test("a broken expectation says what was found and where it was asked")
  func failures() throws {
    let failure = try #require(throws: ContractFailure.self) { try expectEqual(1, 2, "the count") }
    #expect(failure.message == "the count: found 1, must be 2")
    #expect(failure.place.hasPrefix("SalvorModuleKitTests/LifecycleContractTests.swift:"))
    #expect(throws: ContractFailure.self) { try expect(false, "no") }
    #expect(throws: ContractFailure.self) { _ = try expectSome(Int?.none, "a number") }
    #expect(try expectSome(3, "a number") == 3)
  }

  @Test("an error is asked for by its code; none, another, or a nameless one is a failure")
  func errors() async throws {
    let error = try await expectError(.timeout, "waiting") { throw SalvorError(.timeout, "late") }
    #expect(error.message == "late")
    await #expect(throws: ContractFailure.self) { try await expectError(.timeout, "waiting") {} }
    await #expect(throws: ContractFailure.self) {
      try await expectError(.timeout, "waiting") { throw SalvorError(.failed, "other") }
    }
    await #expect(throws: ContractFailure.self) {
      try await expectError(nil, "waiting") { throw CancellationError() }
    }
  }

  @Test("a subject that cannot be made fails its case, and every subject is given back")
  func runs() async {
    let given = Mutex(0)
    let cases = [
      ContractCase<Int>("even", rule: "r") { try expect($0.isMultiple(of: 2), "\($0) is odd") },
      ContractCase<Int>("any", rule: "r") { _ in },
    ]
    let outcomes = await runContract(cases) {
      3
    } dispose: { _ in
      given.withLock { $0 += 1 }
    }
    #expect(outcomes.map { $0.failure == nil } == [false, true])
    #expect(given.withLock { $0 } == 2)
    let unmade = await brokenRules(cases) { throw CancellationError() }
    #expect(unmade == ["even", "any"])
  }
}
