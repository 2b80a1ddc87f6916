import SalvorClientEngine
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// The second oracle: the executable specification of the stores (the module `memory`) does beside the real ones what they do, with
/// engines of its own, and has the same rows after each synchronization.
///
/// It goes along for as long as both sides do the same things in the same order. Where something happens that it cannot do
/// as well, as a restore or a lost message, it is given up for the rest of the history.
final class Specification {
  /// What a transaction did, as far as a SELECT shows it.
  enum Move {
    case begin(tag: String)
    case end
    /// One statement.
    case rows(Contents, Contents, isReplace: Bool)
  }

  private struct Device {
    var client: SalvorClient
    var store: any ClientStore
  }

  /// It has the specification.
  private unowned let world: World
  private let network: SimulatedNetwork
  private let random: SeededRandom
  private var server: (running: RunningServer, store: any ServerStore)?
  private var devices: [Int: Device] = [:]

  init(_ world: World, _ generator: SeededGenerator) {
    self.world = world
    network = SimulatedNetwork(generator.derived(1), clock: world.clock, trace: Trace())
    random = SeededRandom(generator.derived(2))
  }

  /// Whether the step is one that both sides do alike.
  static func follows(_ step: Step) -> Bool {
    switch step.action {
    case .write, .program, .restartDevice, .restartServer, .clockJump, .look, .verify, .wait, .subscribe, .unsubscribe,
      .uproot:
      true
    case .sync(_, let faults, let meanwhile): faults.isSound && meanwhile.isEmpty
    case .syncGroups(_, _, let faults): faults.isSound
    default: false
    }
  }

  // MARK: Both sides of it

  func start() async throws {
    let text = world.serverConfigurationText.replacingAll(
      "module: \"sqlite\", path: \"server.db\"", "module: \"memory\"")
    let configuration = try world.load(
      text, "specification.json5", world.registry(network.transportFactory(device: "")), random, world.clock)
    var store: (any ServerStore)?
    let running = try await Host.makeServer(configuration, log: .none) { made in
      made.clock = world.clock
      made.random = random
      (made.bodyReading, made.bodyParsing, made.downloads) = (nil, nil, [])
      made.accessLog = false
      store = made.store
    }
    guard let store else { return }
    server = (running, store)
    network.serve { await running.engine.handle($0) }
  }

  func stop() async {
    for (_, device) in devices.sorted(by: { $0.key < $1.key }) { await device.client.close() }
    network.serve(nil)
    await server?.running.stop()
    (devices, server) = ([:], nil)
  }

  private func device(_ device: SimulatedDevice) async throws -> Device {
    if let known = devices[device.number] { return known }
    let text = device.configurationText
      .replacingAll("module: \"sqlite\", path: \"\(device.name).db\"", "module: \"memory\"")
      .replacingAll("schema-\(device.name).json5", "schema.json5")
    let configuration = try world.load(
      text, "specification-\(device.name).json5", world.registry(network.transportFactory(device: device.name)), random,
      device.clock)
    let made = try Host.clientConfiguration(configuration) { made in
      made.clock = device.clock
      made.random = random
    }
    let store = made.store
    let known = Device(client: SalvorClient(made), store: store)
    _ = try await known.client.open(reattaching: true)
    devices[device.number] = known
    return known
  }

  // MARK: What happens

  /// Nil: a program in the server's tables.
  func write(_ device: SimulatedDevice?, _ moves: [Move]) async throws {
    var writes: [ApplicationWrite] = []
    var isOpen = false
    for move in moves {
      switch move {
      case .begin(let tag):
        isOpen = true
        writes.append(.beginRequest(tag: tag))
      case .end:
        isOpen = false
        writes.append(.endRequest)
      case .rows(let before, let after, let isReplace):
        writes += self.writes(before, after, joined: isReplace && !isOpen && device != nil)
      }
    }
    guard !writes.isEmpty else { return }
    if let device {
      try await self.device(device).store.write([.deferReferences] + writes)
    } else {
      try await server?.store.write([.deferReferences] + writes)
    }
  }

  /// What a person does by the client.
  func act(_ device: SimulatedDevice, _ body: (SalvorClient) async throws -> Void) async throws {
    try await body(self.device(device).client)
  }

  /// - Returns: nil: both sides have what the real ones have.
  func synchronize(_ device: SimulatedDevice, groups: Set<String>?) async throws -> String? {
    let own = try await self.device(device)
    let report = await own.client.attemptSync(groups: groups)
    if let error = report.error { throw error }
    let names = Set(world.serverSchema.synchronized.map(\.name))
    let here = try device.contents().filter { names.contains($0.key.table) }
    var found: Contents = [:]
    for name in names.sorted() { found.merge(try await rows(name, own.store.rows)) { $1 } }
    if let difference = difference(found, here) { return "\(device.name) \(difference)" }
    guard let store = server?.store else { return nil }
    found = [:]
    for name in names.sorted() { found.merge(try await rows(name, store.rows)) { $1 } }
    return difference(found, try world.serverContents()).map { "the server \($0)" }
  }

  private func rows(_ table: String, _ read: (String) async throws -> [Row]) async throws -> Contents {
    let count = world.serverSchema.table(table)?.keyColumns.count ?? 1
    return Dictionary(
      try await read(table).map {
        (RowName(table: table, key: $0.prefix(count).map(literal).joined(separator: ", ")), $0)
      }, uniquingKeysWith: { $1 })
  }

  private func difference(_ wanted: Contents, _ found: Contents) -> String? {
    func shown(_ row: [Value]?) -> String {
      row.map { "(" + $0.map { String($0.description.prefix(40)) }.joined(separator: ", ") + ")" } ?? "none"
    }
    let names = Set(wanted.keys).union(found.keys).sorted().filter { wanted[$0] != found[$0] }
    return names.first.map { "has \(shown(found[$0])) as row \($0), and the specification \(shown(wanted[$0]))" }
  }

  // MARK: Statements as writes

  private func writes(_ before: Contents, _ after: Contents, joined: Bool) -> [ApplicationWrite] {
    // Parents first: what a delete of theirs does to their children, it does here, too.
    let places = Dictionary(
      uniqueKeysWithValues: world.serverSchema.tables.enumerated().map { ($0.element.name, $0.offset) })
    let names = Set(before.keys).union(after.keys).filter { before[$0] != after[$0] }.sorted {
      (places[$0.table] ?? 0, $0) < (places[$1.table] ?? 0, $1)
    }
    var (deletes, updates, inserts): ([ApplicationWrite], [ApplicationWrite], [ApplicationWrite]) = ([], [], [])
    for name in names {
      guard let table = world.serverSchema.table(name.table), let row = after[name] ?? before[name] else { continue }
      let columns = table.columnList(world.serverSchema).map(\.name)
      let key = Array(row.prefix(table.keyColumns.count))
      let values = zip(columns, row).map { NamedValue($0, $1) }
      switch (before[name], after[name]) {
      case (_, nil): deletes.append(.delete(table: name.table, key: key))
      case (nil, _): inserts.append(.insert(table: name.table, values: values))
      case (let old?, _):
        let changed = zip(values, old).filter { $0.value != $1 }.map(\.0)
        updates.append(.update(table: name.table, key: key, values: changed))
      }
    }
    // The row that a REPLACE writes, and those that it removes for it, are one request.
    let isOne = joined && !deletes.isEmpty && updates.count + inserts.count == 1
    return (isOne ? [.beginRequest(tag: nil)] : []) + deletes + updates + inserts + (isOne ? [.endRequest] : [])
  }
}
