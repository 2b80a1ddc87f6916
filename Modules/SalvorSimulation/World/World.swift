import SalvorClientEngine
import SalvorContracts
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage

/// A server and its devices in one process, with the engines, the stores and the messages of the product.
///
/// Everything in it runs on the thread of its schedule.
final class World: DeviceSurroundings, @unchecked Sendable {
  let history: History
  let platform: SimulationPlatform
  let schedule: SimulationSchedule
  let network: SimulatedNetwork
  let trace: Trace
  /// `Simulation.tellsRows`
  var tellsRows = false
  /// The rows that were told last, of the server and of each device.
  private var told: [String: Contents] = [:]
  let mutant: Mutant?
  let directory: String
  let clock: VirtualClock
  let startTime: Int64
  private let modules: [ModuleFactory]
  private var registries: [String: ModuleRegistry] = [:]
  private(set) var devices: [SimulatedDevice] = []
  private(set) var server: RunningServer?
  private(set) var serverStore: (any ServerStore)?
  private var program: (any SimulatedDatabase)?
  /// What its connection has shown, and the version that it was of.
  private var shown: (version: [Int64], schema: DrawnSchema, contents: Contents)?
  /// The version that was looked at last.
  private var looked: [Int64]?
  private var loaded: (texts: [String], configuration: HostConfiguration)?
  var serverSchema: DrawnSchema {
    didSet { if serverSchema.version >= newestSchema.version { newestSchema = serverSchema } }
  }
  /// The newest that the server has had: a restore may bring back an older one.
  private(set) var newestSchema: DrawnSchema
  /// By slot: the schema that the server had then.
  var backups: [Int: DrawnSchema] = [:]
  /// The specification, where it goes along (`specification`).
  var beside: AnyObject?
  /// The names of the steps so far.
  var happened: Set<String> = []
  /// Devices that nobody hears of any more.
  var away: Set<Int> = []
  var oracle: Oracle
  var coverage = Coverage()
  /// Nil: this history's disks never fail.
  let serverDisk: MachineDisk?
  private let serverRandom: SeededRandom
  /// The step's own choices.
  var generator: SeededGenerator

  init(_ history: History, _ platform: SimulationPlatform, trace: Trace, mutant: Mutant?) throws {
    self.mutant = mutant
    self.history = history
    self.platform = platform
    self.trace = trace
    let generator = SeededGenerator(seed: history.seed)
    schedule = SimulationSchedule(generator.derived(1), trace: trace)
    clock = VirtualClock(schedule)
    startTime = schedule.now
    network = SimulatedNetwork(generator.derived(2), clock: clock, trace: trace)
    serverRandom = SeededRandom(generator.derived(3))
    self.generator = generator.derived(4)
    directory = try Files.makeDirectory(in: platform.directory)
    modules =
      platform.modules + [SimulatedNetwork.listenFactory, SimulatedValidator.factory, SimulatedAuthentication.factory]
    (serverSchema, newestSchema) = (history.schema, history.schema)
    oracle = Oracle(
      schema: history.schema, principals: history.devices.map(\.principal),
      hasValidator: history.swarm.has(.validators))
    let hasDisks = [.powerCuts, .diskFaults, .writeFaults].contains(where: history.swarm.has)
    serverDisk =
      hasDisks
      ? MachineDisk(directory + "/server.db", generator.derived(99), forgetsSyncs: mutant == .unsyncedServer) : nil
    serverDisk.map(SimulatedDisks.add)
    for (number, settings) in history.devices.enumerated() {
      devices.append(
        SimulatedDevice(
          number, self, settings: settings, schema: history.schema,
          random: SeededRandom(generator.derived(100 + number)),
          diskGenerator: hasDisks ? generator.derived(200 + number) : nil))
    }
  }

  /// Its files go; what still has them open keeps what it has.
  func removeFiles() { Files.removeDirectory(directory) }

  deinit {
    for disk in devices.map(\.disk) + [serverDisk] { disk.map(SimulatedDisks.remove) }
    Files.removeDirectory(directory)
  }

  func registry(device: String) throws -> ModuleRegistry {
    if let known = registries[device] { return known }
    let made = try registry(network.transportFactory(device: device))
    registries[device] = made
    return made
  }

  /// The product's modules and those of a simulation, with this way to the server.
  func registry(_ transport: ModuleFactory) throws -> ModuleRegistry { try ModuleRegistry(modules + [transport]) }

  // MARK: The server

  var serverPath: String { directory + "/server.db" }

  /// Of the configuration files of either side.
  var limits: String {
    history.swarm.has(.blobs) ? ", limits: { blobReferenceBytesMin: \(StatementDrawing.blobReferenceBytesMin) }" : ""
  }

  /// What a chunk of either side has at least; nil: the product's own.
  var chunkBytes: Int? { history.swarm.has(.smallChunks) ? [1, 120, 400][Int(history.seed % 3)] : nil }

  /// The operator of every third server sees each offer first.
  private var reviews: String {
    history.swarm.has(.consent) && history.seed % 3 == 0 ? ", heal: \"review\"" : ""
  }

  private var snapshots: String {
    history.swarm.has(.snapshots)
      ? "snapshots: { minRows: 1, maxBehind: 50, personal: true, compression: \"gzip\" }," : ""
  }

  var serverConfigurationText: String {
    let regions = serverSchema.tables.contains(where: \.hasRegion) ? ", regions: \"listed\"" : ""
    return """
      { schema: "schema.json5",
        server: { storage: { module: "sqlite", path: "server.db" }, listen: { module: "simulated" },
                  authentication: { module: "simulated"\(regions) }, compression: ["gzip"], \(snapshots)
                  validators: [\(history.swarm.has(.validators) ? "{ module: \"simulated\" }" : "")],
                  recovery: { selfServiceRemoteDeletion: \(history.seed % 2 == 0)\(reviews) }\(limits) } }
      """
  }

  /// A file that says the same is not read again.
  private func serverConfiguration() throws -> HostConfiguration {
    let texts = [serverSchema.text, serverConfigurationText]
    if let loaded, loaded.texts == texts { return loaded.configuration }
    try Files.write(texts[0], to: directory + "/schema.json5")
    let configuration = try load(texts[1], "server.json5", registry(device: ""), serverRandom, clock)
    loaded = (texts, configuration)
    return configuration
  }

  /// What a configuration file of this text and name gives.
  func load(
    _ text: String, _ name: String, _ registry: ModuleRegistry, _ random: SeededRandom, _ clock: VirtualClock
  ) throws -> HostConfiguration {
    try Files.write(text, to: "\(directory)/\(name)")
    var configuration = try HostConfiguration.load(
      path: "\(directory)/\(name)", registry: registry, environment: [:],
      template: ModuleContext(random: random, clock: clock)
    ).get()
    if let bytes = chunkBytes {
      configuration.server?.limits.chunkBytesTarget = bytes
      configuration.client?.limits.chunkBytesTarget = bytes
      configuration.client?.limits.singleRoundTripBytesMax = bytes
    }
    return configuration
  }

  func startServer() async throws {
    let configuration = try serverConfiguration()
    var store: (any ServerStore)?
    let made = try await Host.makeServer(
      configuration,
      log: Log.lines { [trace, directory] line in trace.add("  server: " + line.replacingAll(directory, "")) },
      adjust: { made in
        made.clock = clock
        made.random = serverRandom
        // Every job is the schedule's.
        (made.bodyReading, made.bodyParsing, made.downloads) = (nil, nil, [])
        made.store = mutant?.mutated(made.store) ?? made.store
        made.accessLog = false
        store = made.store
      })
    server = made
    serverStore = store
    network.serve { await made.engine.handle($0) }
    try watchServer()
    try makeServerCode()
  }

  func stopServer() async {
    network.serve(nil)
    await server?.stop()
    server = nil
    program?.close()
    (program, shown, looked) = (nil, nil, nil)
  }

  /// Another program's connection to the server's database.
  func serverDatabase() throws -> any SimulatedDatabase {
    if let program { return program }
    let made = try platform.connect(serverPath)
    if try made.rows("PRAGMA foreign_keys") != [[.integer(1)]] { try made.execute("PRAGMA foreign_keys = ON") }
    program = made
    return made
  }

  /// Triggers in the server's tables that note what their rows go through: the server's own, as a host may have them.
  private func watchServer() throws {
    let database = try serverDatabase()
    try database.execute(
      "CREATE TABLE IF NOT EXISTS watched (id INTEGER PRIMARY KEY AUTOINCREMENT, tab TEXT, key TEXT, note TEXT, owner TEXT, region TEXT)"
    )
    for table in serverSchema.synchronized {
      let note = "NEW.\(table.sqlColumn("note"))"
      let key = table.keyColumns.map { "quote(NEW.\($0))" }.joined(separator: " || ', ' || ")
      let (owner, region) = (table.hasOwner ? "NEW.owner" : "NULL", table.hasRegion ? "NEW.region" : "NULL")
      for (name, event) in [("i", "INSERT"), ("u", "UPDATE")] {
        try database.execute(
          """
          CREATE TRIGGER IF NOT EXISTS watch_\(name)_\(table.name) AFTER \(event) ON \(table.sqlName) WHEN \(note) IS NOT NULL
          BEGIN INSERT INTO watched (tab, key, note, owner, region) VALUES ('\(table.name)', \(key), \(note), \(owner), \(region)); END
          """)
      }
    }
  }

  /// The server's own indexes and triggers, made once the server has made the tables.
  private func makeServerCode() throws {
    for sql in serverSchema.serverCode { try serverDatabase().execute(sql) }
  }

  func serverContents() throws -> Contents {
    let database = try serverDatabase()
    let version = try database.version()
    if let shown, shown.version == version, shown.schema == serverSchema { return shown.contents }
    let contents = try contents(database, serverSchema, isServer: true)
    shown = (version, serverSchema, contents)
    return contents
  }

  /// What the server's rows went through since the last look.
  func lookAtServer() throws {
    guard server != nil else { return }
    let database = try serverDatabase()
    // The same rows as at the last look: nothing has gone through them either.
    if let shown, shown.schema == serverSchema, shown.version == looked, try database.version() == looked { return }
    let events = try database.rows("SELECT tab, key, note, owner, region FROM watched ORDER BY id").map {
      Oracle.Event(
        name: RowName(table: $0[0].description, key: $0[1].description), note: $0[2].description, owner: $0[3].string,
        region: $0[4].string)
    }
    let now = try serverContents()
    if !events.isEmpty { try database.execute("DELETE FROM watched") }
    shown?.version = try database.version()
    looked = shown?.version
    oracle.watched(events, now)
  }

  // MARK: Contents

  func contents(_ database: any SimulatedDatabase, _ schema: DrawnSchema, isServer: Bool) throws -> Contents {
    var contents: Contents = [:]
    let names = try names(in: database)
    // A device has a dropped table until it hears of that from the server.
    for table in isServer ? schema.synchronized : schema.tables where names != nil || table.presence == .there {
      let called = names.map { $0.tables[table.name] } ?? SQLNames.Table(name: table.name, columns: [:], extras: [])
      // A file of another version has it not.
      guard let called else { continue }
      let columns = table.columnList(schema).map { column in
        names == nil ? column.name : called.columns[column.name] ?? "NULL"
      }
      // A row with the mark is deleted, as far as the application goes.
      let condition = table.hasFlags && !isServer ? " WHERE coalesce(\(DrawnTable.deletedFlag), 0) = 0" : ""
      func rows(_ columns: [String]) throws -> [[Value]] {
        try database.rows("SELECT \(columns.joined(separator: ", ")) FROM \(called.name)\(condition)")
      }
      let found: [[Value]]
      do { found = try rows(columns) } catch {
        // A file that was put back has the columns of then, until it is opened with the schema of now.
        let there = Set(
          try database.rows("SELECT name FROM pragma_table_info('\(called.name)')").map { $0[0].description })
        guard names == nil, columns.contains(where: { !there.contains($0) }) else { throw error }
        found = try rows(columns.map { there.contains($0) ? $0 : "NULL" })
      }
      for row in found {
        let key = row.prefix(table.keyColumns.count).map(literal).joined(separator: ", ")
        contents[RowName(table: table.name, key: key)] = row
      }
    }
    return contents
  }

  /// A row that a view of Salvor's names: a key of one column as it is, of several as SQL literals.
  func rowName(_ table: String, _ key: Value) -> RowName {
    let called = newestSchema.table(called: table)
    let isComposite = called?.keyKind == .composite
    return RowName(table: called?.name ?? table, key: isComposite ? key.description : literal(key))
  }

  /// The rows of the server that a device should have.
  func expected(_ device: SimulatedDevice) throws -> Contents {
    let (schema, principal) = (device.schema, Value.text(device.settings.principal))
    let regions = (SimulatedAuthentication.regions[device.settings.principal] ?? []).map(Value.text)
    var reach: [String: [Value]] = [:]
    for table in schema.present where table.hasRegion {
      let subscribed = try device.subscribedRegions(table)
      reach[table.name] = subscribed.map { subscribed in regions.filter(subscribed.contains) } ?? regions
    }
    let all = try contents(serverDatabase(), schema, isServer: true)
    func value(_ column: String, _ name: RowName, _ row: [Value]) -> Value? {
      let columns = schema.table(name.table)?.columnList(schema).map(\.name) ?? []
      return columns.firstIndex(of: column).map { row[$0] }
    }
    let members = all.filter { $0.key.table == DrawnTable.member && value("owner", $0.key, $0.value) == principal }
    let joined = members.compactMap { value("subject", $0.key, $0.value) }
    return all.filter { name, row in
      guard let table = schema.table(name.table) else { return false }
      if table.hasOwner, value("owner", name, row) != principal { return false }
      if table.hasOpen, value("open", name, row) != 1 { return false }
      if table.hasRegion, let region = value("region", name, row), reach[table.name]?.contains(region) != true {
        return false
      }
      if table.isJoined, !joined.contains(row[0]) { return false }
      return true
    }
  }

  /// Tells what has become of the rows since this was called last.
  func tellRows() throws {
    guard tellsRows else { return }
    func tell(_ who: String, _ now: Contents) {
      let before = told.updateValue(now, forKey: who) ?? [:]
      for name in Set(before.keys).union(now.keys).sorted() where before[name] != now[name] {
        let row = now[name].map { "(" + $0.map { String(literal($0).prefix(40)) }.joined(separator: ", ") + ")" }
        trace.remark("    \(who): \(name) \(row ?? "gone")")
      }
    }
    tell("server", try serverContents())
    for device in devices where try device.isMade() { tell(device.name, try device.contents()) }
  }

  // MARK: Running

  /// The whole history, and then quiet.
  func run() async -> [Violation] {
    network.onExchange { [weak self] name in self?.look(at: name) }
    network.isCut { [weak self] name in
      guard let self else { return false }
      return serverDisk?.isDead == true || devices.first { $0.name == name }?.disk?.isDead == true
    }
    oracle.configured(heals())
    do {
      try await startServer()
      if history.swarm.has(.specification) { try await beginSpecification() }
      for step in history.steps where oracle.violations.isEmpty {
        oracle.step = step.id
        trace.add("\(step.id): \(step)")
        generator = SeededGenerator(seed: history.seed).derived(1000 + step.id)
        coverage.meet(step.name)
        if !step.leavesOrigins { oracle.forgetOrigins() }
        do { try await perform(step) } catch let error as SalvorError
          where error.code == .storageBusy && history.swarm.has(.restoreInPlace)
        {
          // The server reopens what another copy was put into: an operator who is told to try again does so another day.
          trace.add("  server: \(shown(error))")
        }
        try lookAtServer()
        for device in devices { try await audit(device) }
        try tellRows()
      }
      oracle.step = nil
      await partFromSpecification("the end")
      if oracle.violations.isEmpty { try await comeToRest() }
    } catch {
      oracle.report(.unexpected, shown(error))
    }
    await partFromSpecification("an error")
    for device in devices {
      device.closeApplication()
      await device.endProcess()
    }
    await stopServer()
    for (fate, count) in network.struck.sorted(by: { $0.key < $1.key }) where count > 0 {
      coverage.meet("network " + fate)
    }
    return oracle.violations
  }

  /// A reader while a sync is under way (never 6).
  private func look(at name: String) {
    guard let device = devices.first(where: { $0.name == name }), device.hasDatabase, !device.isDangling
    else { return }
    do {
      if let row = try device.dangling() {
        oracle.report(
          .halfApplied, "during a sync of \(name) a row of \(row[0]) references a row of \(row[2]) that is not there")
      }
    } catch {
      // Another process holds the file, as it does while it replaces it.
      trace.add("  \(name): a reader: \(shown(error))")
    }
  }

  func audit(_ device: SimulatedDevice) async throws {
    guard device.hasDatabase, !oracle.pending[device.number].isEmpty else { return }
    let rows = try device.contents()
    // A dropped table that was not compared stays on the device, with all its rows.
    let kept = rows.keys.filter { newestSchema.table($0.table)?.presence == .dropped }
    let dirty = try device.dirtyRows().union(kept)
    guard oracle.hasUnsettled(device.number, rows: rows, dirty: dirty) else { return }
    oracle.account(
      device.number, rows: rows, dirty: dirty, archive: try device.archiveText(), conflicts: try await conflictText())
  }

  /// The conflict versions that the server keeps, with all their values.
  func conflictText() async throws -> String {
    guard let serverStore else { return "" }
    let versions = try await serverStore.conflicts(after: 0, limit: 10_000, state: nil)
    return versions.flatMap { $0.client.columns.map { "'\($0)'" } }.joined(separator: "\n")
  }

  /// An error without what differs from run to run.
  func shown(_ error: any Error) -> String {
    "\(error)".replacingAll(directory, "")
  }
}

/// A value as SQL writes it.
func literal(_ value: Value) -> String {
  switch value {
  case .null: "NULL"
  case .integer(let number): "\(number)"
  case .real(let number): "\(number)"
  case .text(let bytes): "'" + String(decoding: bytes, as: UTF8.self).replacingAll("'", "''") + "'"
  case .blob(let bytes): "X'" + hexadecimal(bytes).uppercased() + "'"
  }
}

extension String {
  func replacingAll(_ old: String, _ new: String) -> String {
    split(separator: old, omittingEmptySubsequences: false).joined(separator: new)
  }
}
