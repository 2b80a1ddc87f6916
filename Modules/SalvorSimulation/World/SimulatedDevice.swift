import SalvorClientEngine
import SalvorContracts
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// What a device of a simulation has round it.
protocol DeviceSurroundings: AnyObject {
  var directory: String { get }
  var schedule: SimulationSchedule { get }
  var platform: SimulationPlatform { get }
  var mutant: Mutant? { get }
  /// Of the configuration files of either side.
  var limits: String { get }

  /// The product's modules and those of a simulation, with this device's way to the server.
  func registry(device: String) throws -> ModuleRegistry
  /// What a configuration file of this text and name gives.
  func load(
    _ text: String, _ name: String, _ registry: ModuleRegistry, _ random: SeededRandom, _ clock: VirtualClock
  ) throws -> HostConfiguration
  func contents(_ database: any SimulatedDatabase, _ schema: DrawnSchema, isServer: Bool) throws -> Contents
  /// A row that a view of Salvor's names: a key of one column as it is, of several as SQL literals.
  func rowName(_ table: String, _ key: Value) -> RowName
}

/// A device of a simulation: Salvor's client, and the application beside it. Used on the thread of the schedule alone.
final class SimulatedDevice: @unchecked Sendable {
  /// The files as they were once, and what the oracle had to account for then.
  struct Copy {
    var path: String
    var account: Oracle.Account
  }

  let number: Int
  let path: String
  let clock: VirtualClock
  let random: SeededRandom
  var settings: History.Device
  /// Nil: it never fails.
  let disk: MachineDisk?
  var schema: DrawnSchema
  var copies: [Int: Copy] = [:]
  /// The application's own statement left a reference to nothing: SQLite takes some forms of REPLACE that do.
  var isDangling = false
  /// Where a person has to decide.
  var token: String?
  /// It has the device.
  private unowned let world: any DeviceSurroundings
  private var client: SalvorClient?
  private var application: (any SimulatedDatabase)?
  /// What the application's connection has shown, and the version that it was of.
  private var shown: (version: [Int64], schema: DrawnSchema, contents: Contents)?
  private var unsettled: (version: [Int64], rows: Set<RowName>)?
  private var whole: [Int64]?
  private var loaded: (texts: [String], configuration: HostConfiguration)?

  init(
    _ number: Int, _ world: any DeviceSurroundings, settings: History.Device, schema: DrawnSchema, random: SeededRandom,
    diskGenerator: SeededGenerator?
  ) {
    self.number = number
    self.world = world
    self.settings = settings
    self.schema = schema
    self.random = random
    path = "\(world.directory)/d\(number).db"
    clock = VirtualClock(world.schedule)
    let path = path
    let forgetsSyncs = world.mutant == .unsyncedDevices
    disk = diskGenerator.map { MachineDisk(path, $0, forgetsSyncs: forgetsSyncs) }
    disk.map(SimulatedDisks.add)
  }

  var name: String { "d\(number)" }

  var configurationText: String {
    var recovery = "strategy: \"\(settings.strategy)\""
    if let replaced = settings.replacedStrategy { recovery += ", reasons: { \"server-replaced\": \"\(replaced)\" }" }
    if let heal = settings.heal { recovery += ", heal: \"\(heal)\"" }
    return """
      { schema: "schema-\(name).json5",
        client: { storage: { module: "sqlite", path: "\(name).db" },
                  transport: { module: "simulated"\(settings.gzip ? ", compression: \"gzip\"" : "") },
                  credentials: { principal: "\(settings.principal)" },
                  recovery: { \(recovery) }, errorArchive: { individualDeletion: \(settings.individualDeletion) },
                  queue: { optimise: \(settings.optimises) }\(world.limits) } }
      """
  }

  /// The tables that the application makes in a new file, before Salvor sees it.
  func prepare() throws {
    let tables = schema.applicationTables()
    guard !tables.isEmpty, try !hasDatabase || database().rows("SELECT 1 FROM sqlite_schema").isEmpty else { return }
    for sql in tables { try database().execute(sql) }
  }

  /// A process of Salvor's on this device. Throws what a wrong configuration throws.
  func makeClient(_ strikes: Strikes? = nil) throws -> SalvorClient {
    if disk?.isArmed != true { try prepare() }
    return try Host.makeClient(try configuration()) { made in
      made.clock = clock
      made.random = random
      if world.mutant == .endlessWaits { made.waitMillisecondsMax = .max }
      made.store = world.mutant?.mutated(made.store) ?? made.store
      if let strikes, let store = made.store as? any RecoveringClientStore { made.store = StruckStore(store, strikes) }
    }
  }

  /// A file that says the same is not read again.
  private func configuration() throws -> HostConfiguration {
    let texts = [schema.text, configurationText]
    if let loaded, loaded.texts == texts { return loaded.configuration }
    try Files.write(texts[0], to: "\(world.directory)/schema-\(name).json5")
    let configuration = try world.load(texts[1], "\(name).json5", world.registry(device: name), random, clock)
    loaded = (texts, configuration)
    return configuration
  }

  /// The process that runs.
  func running() throws -> SalvorClient {
    if let client { return client }
    let made = try makeClient()
    client = made
    return made
  }

  func endProcess() async {
    await client?.close()
    client = nil
  }

  /// The application's connection.
  func database() throws -> any SimulatedDatabase {
    if let application { return application }
    let made = try world.platform.connect(path)
    if try made.rows("PRAGMA foreign_keys") != [[.integer(1)]] { try made.execute("PRAGMA foreign_keys = ON") }
    application = made
    return made
  }

  func closeApplication() {
    application?.close()
    (application, shown, unsettled, whole) = (nil, nil, nil, nil)
  }

  var hasDatabase: Bool { Files.exists(path) }

  /// False where the file is an empty one, as a disk that fails during the first contact leaves it.
  func isMade() throws -> Bool {
    guard hasDatabase else { return false }
    return try database().rows("SELECT 1 FROM sqlite_schema WHERE name = 'salvor_row_state'").count == 1
  }

  func contents() throws -> Contents {
    guard hasDatabase else { return [:] }
    let database = try database()
    let version = try database.version()
    if let shown, shown.version == version, shown.schema == schema { return shown.contents }
    let contents = try world.contents(database, schema, isServer: false)
    shown = (version, schema, contents)
    return contents
  }

  /// Rows with changes that are not settled.
  func dirtyRows() throws -> Set<RowName> {
    guard hasDatabase else { return [] }
    let database = try database()
    let version = try database.version()
    if let unsettled, unsettled.version == version { return unsettled.rows }
    guard try isMade() else { return [] }
    let rows = Set(
      try database.rows("SELECT \"table\", key FROM salvor_row_state WHERE dirty OR in_error").map {
        world.rowName($0[0].description, $0[1])
      })
    unsettled = (version, rows)
    return rows
  }

  /// A row that references nothing, as this connection sees it; nil: there is none, or nothing has changed since that was looked for.
  func dangling() throws -> [Value]? {
    let database = try database()
    let version = try database.version()
    if whole == version { return nil }
    let found = try database.rows("PRAGMA foreign_key_check").first
    if found == nil { whole = version }
    return found
  }

  /// The regions of a table that the device asks for, of the table or of its group; nil: all that it may have.
  func subscribedRegions(_ table: DrawnTable) throws -> [Value]? {
    let names = (table.everyName + [table.group ?? "default"]).map { "'\($0)'" }
    let target = "target IN (\(names.joined(separator: ", ")))"
    guard try !database().rows("SELECT 1 FROM salvor_subscribed WHERE \(target)").isEmpty else { return nil }
    let rows = try database().rows(
      """
      SELECT parameter, coalesce(value, (SELECT g.value FROM salvor_setting g WHERE g.name = s.setting))
      FROM salvor_subscription s WHERE \(target)
      """)
    return rows.contains { $0[0] == "" } ? nil : rows.map { $0[1] }
  }

  /// The rows of a table whose dirty column is set, and all rows.
  func flagged(_ table: DrawnTable) throws -> (flagged: Set<RowName>, all: Set<RowName>) {
    let keys = table.keyColumns.joined(separator: ", ")
    var (flagged, all): (Set<RowName>, Set<RowName>) = ([], [])
    for row in try database().rows("SELECT coalesce(\(DrawnTable.dirtyFlag), 0) <> 0, \(keys) FROM \(table.sqlName)") {
      let name = RowName(table: table.name, key: row.dropFirst().map(literal).joined(separator: ", "))
      all.insert(name)
      if row[0] == 1 { flagged.insert(name) }
    }
    return (flagged, all)
  }

  /// What the archive says to people, all of it.
  func archiveText() throws -> String {
    guard hasDatabase else { return "" }
    return try database().rows("SELECT coalesce(before, '') || ' ' || coalesce(after, '') FROM salvor_error_archive")
      .map(\.[0].description).joined(separator: "\n")
  }

  /// The same without what it only holds of what the server lost: that is no place for who gives it back.
  func archiveTextOfRequests() throws -> String {
    guard hasDatabase else { return "" }
    return try database().rows(
      "SELECT coalesce(before, '') || ' ' || coalesce(after, '') FROM salvor_error_archive WHERE coalesce(reason, '') <> 'lost-on-server'"
    ).map(\.[0].description).joined(separator: "\n")
  }

  /// The rows whose deletes are in the archive, or in the queue: an offered delete may wait at the server for the operator's
  /// consent, and until then the row is there.
  func archivedDeletes() throws -> Set<RowName> {
    let query =
      ["salvor_error_archive", "salvor_queue"].map { "SELECT \"table\", key FROM \($0) WHERE operation = 'delete'" }
      .joined(separator: " UNION ")
    return Set(try database().rows(query).map { world.rowName($0[0].description, $0[1]) })
  }

  /// The requests of the archive, each with its state, but for what a recovery kept.
  func archived() throws -> Set<String> {
    guard hasDatabase else { return [] }
    let query = "SELECT DISTINCT id || ' ' || state FROM salvor_error_archive WHERE state <> 'kept'"
    return Set(try database().rows(query).map(\.[0].description))
  }
}
