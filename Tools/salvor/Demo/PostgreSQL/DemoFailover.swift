import SQLiteSupport
import SalvorHost
import SalvorModel
import SalvorWire

/// The story of a database in PostgreSQL behind several servers: one server is killed during an upload, then the primary, and the standby
/// that takes over lacks its last commits. Another program writes all the time.
struct DemoFailover: Sendable {
  let terminal: Terminal
  let data: DemoData
  let plain: PlainSQLite
  var fleet: DemoFleet
  let cluster: DemoCluster
  private var servers: DemoServers
  private let count: Int
  private var chapter = 0
  /// Inspections that each device has written.
  private var written: [String: Int64] = [:]
  /// Synchronizations that were put off, and given again.
  private var retries = 0

  private static let devices = [DemoStory.anna, DemoStory.ben, DemoStory.chloe]

  init(terminal: Terminal, data: DemoData, directory: String, servers count: Int) throws {
    self.terminal = terminal
    self.data = data
    self.count = count
    let cluster = try DemoCluster(log: "\(directory)/demo.log")
    self.cluster = cluster
    fleet = try DemoFleet(
      directory: directory, devices: Self.devices, data: data,
      storage: #"{ module: "postgresql", url: "\#(cluster.url)" }"#, limits: "{ chunkBytesTarget: 4096 }",
      snapshots: #"{ minRows: 1000, path: "../files" }"#)
    plain = PlainSQLite(log: fleet.log)
    servers = try DemoServers(count, fleet, url: cluster.url)
  }

  /// Nothing of it runs any more.
  mutating func end() async {
    _ = await servers.stop()
    await cluster.end()
  }

  /// True: all sides end equal.
  mutating func tell() async throws -> Bool {
    terminal.say(
      """
      Salvor's demo on PostgreSQL, on real data: Toronto's restaurant inspections.
      Contains information licensed under the Open Government Licence – Toronto.
      """)
    try await tellStart()
    // Another program of the office's. While no primary is there its writes fail.
    let office = Task { [cluster] in await Self.write(cluster) }
    do {
      for device in Self.devices { try await sync(device) }
      try await tellKilledServer()
      let lost = try await tellFailover()
      office.cancel()
      let writes = await office.value
      return try await tellEnd(writes, lost)
    } catch {
      office.cancel()
      _ = await office.value
      throw error
    }
  }

  // MARK: - Chapters

  private mutating func tellStart() async throws {
    title("The office has a database in PostgreSQL, with a standby, and starts \(count) servers on it")
    try await cluster.begin()
    try await cluster.psql(String(decoding: try readFile("\(data.directory)/data/schema.sql"), as: UTF8.self))
    var rows: Int64 = 0
    for table in DemoData.tables {
      let file = "\(cluster.folder)/\(table).csv"
      let text = try data.text(of: table)
      rows += Int64(text.count(where: { $0 == 0x0A })) - 1
      try fleet.write(text, toFile: file)
      try await cluster.psql("\\copy \(table) FROM '\(file)' WITH (FORMAT csv, HEADER true)")
    }
    try await cluster.addStandby()
    terminal.say("\(number(rows)) rows in \(DemoData.tables.count) tables, copied in by psql; a standby follows")
    terminal.progress("servers start")
    fleet.url = try await servers.start(count)
    try fleet.configureDevices()
    terminal.say("HAProxy at \(fleet.url) gives each request to the next server; psql writes all the time")
  }

  private mutating func tellKilledServer() async throws {
    title("Anna sends a day's work; one of the servers is killed in the middle of it")
    try await inspect(DemoStory.anna, 10_000)
    let anna = try ChildProgram(
      fleet.executable, ["sync", "--json", "--config", "\(fleet.directory)/\(DemoStory.anna)/salvor.json5"],
      log: fleet.log)
    // Parts of it have come.
    let staged = "SELECT count(*) FROM salvor.salvor_remote WHERE staged_bytes > 0"
    for _ in 0..<400 where try await cluster.psql(staged).out == "0\n" {}
    await servers.kill(0)
    let result = await anna.result()
    terminal.say("The first server is gone. Anna's synchronization ended with \(result.code).")
    try await sync(DemoStory.anna)
    try await sync(DemoStory.ben)
    try await requireWritten()
  }

  /// What the standby lacks.
  private mutating func tellFailover() async throws -> JSONValue {
    title("The line to the standby breaks; work goes on; then the primary is gone")
    let inspections = "SELECT count(*) FROM inspection"
    let all = try await cluster.psql(inspections).out
    while try await cluster.psql(inspections, on: .standby).out != all { try await Task.sleep(for: .milliseconds(50)) }
    try await cluster.cut()
    try await inspect(DemoStory.anna, 50)
    try await inspect(DemoStory.ben, 50)
    for device in [DemoStory.anna, DemoStory.ben] { try await sync(device) }
    try await inspect(DemoStory.chloe, 50)
    terminal.say("Chloe is offline, and has sent nothing of it")
    try await cluster.kill(.primary)
    command("pg_ctl promote")
    try await cluster.promote()
    let missing = try await writtenOnServer()
    let lost = written.reduce(0) { $0 + $1.value - (missing[$1.key] ?? 0) } - 50
    terminal.say("The standby takes over. It lacks \(counted(lost, "inspection")) that Anna and Ben had synchronized.")
    guard lost == 100 else { throw SalvorError(.failed, "The standby lacks \(lost) inspections, and not 100.") }
    title("All three synchronize, as on any day")
    for _ in 0..<2 { for device in Self.devices { try await sync(device) } }
    command("salvor server restores show 1")
    let report = try await fleet.operate(["server", "restores", "show", "1"])
    terminal.say(
      "\(counted(report["lost"]?["commits"]?.integer ?? 0, "commit")) lost, which Anna's and Ben's devices have sent again"
    )
    try await requireWritten()
    return report
  }

  private mutating func tellEnd(_ writes: (done: Int64, failed: Int64), _ restore: JSONValue) async throws -> Bool {
    title("The rows of all sides, compared value by value")
    terminal.say(
      "psql has written \(counted(writes.done, "time")), and could not \(counted(writes.failed, "time")); "
        + "synchronizations were put off \(counted(Int64(retries), "time"))")
    for _ in 0..<2 { for device in Self.devices { try await sync(device) } }
    try await requireWritten()
    let office = "\(fleet.directory)/office.db"
    let connection = try data.emptyDatabase(at: office)
    for table in DemoData.tables {
      let text = try await cluster.psql("COPY \(table) TO STDOUT WITH (FORMAT csv, HEADER true)").out
      _ = try data.load(table, Array(text.utf8), into: connection)
    }
    connection.close()
    let comparison = try DemoComparison.compare(server: office, devices: Self.devices.map(fleet.database))
    let stopped = await servers.stop()
    if !terminal.isQuiet {
      terminal.table(
        ["table", "server"] + Self.devices + ["differing"],
        comparison.tables.map { table in [table.table] + table.counts.map(number) + [number(table.differing)] })
    }
    let isEqual = comparison.isEqual && comparison.inError == 0 && stopped
    terminal.say("")
    terminal.print(
      isEqual
        ? terminal.green("All sides are equal, and nothing that a device wrote is lost.")
        : terminal.red(stopped ? "The sides differ." : "A server did not end in order."))
    terminal.json([
      "equal": .bool(isEqual), "servers": .integer(Int64(count)), "restore": restore,
      "devices": .array(Self.devices.map(JSONValue.string)),
      "written": .integer(written.values.reduce(0, +)), "putOff": .integer(Int64(retries)),
      "office": ["writes": .integer(writes.done), "failed": .integer(writes.failed)],
      "tables": .array(
        comparison.tables.map { table in
          [
            "table": .string(table.table), "rows": .array(table.counts.map(JSONValue.integer)),
            "differing": .integer(table.differing), "inError": .integer(table.inError),
          ]
        }),
    ])
    return isEqual
  }

  // MARK: - What is written

  /// Until it is cancelled: an update of a row that devices have, and a new row.
  private static func write(_ cluster: DemoCluster) async -> (done: Int64, failed: Int64) {
    var (done, failed) = (0 as Int64, 0 as Int64)
    while !Task.isCancelled {
      let result = try? await cluster.psql(
        """
        UPDATE establishment SET min_inspections_per_year = min_inspections_per_year % 3 + 1
          WHERE id IN (SELECT id FROM establishment ORDER BY id LIMIT 5);
        INSERT INTO action (id, name) SELECT 1000000 + \(done + failed), 'written by psql'
        """, failing: true)
      if result?.code == 0 { done += 1 } else { failed += 1 }
      try? await Task.sleep(for: .milliseconds(50))
    }
    return (done, failed)
  }

  /// Inspections that a device writes in one transaction, with numbers of its own.
  private mutating func inspect(_ device: String, _ count: Int64) async throws {
    let first = base(device) + written[device, default: 0]
    written[device, default: 0] += count
    try await plain.run(
      [
        "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < \(count - 1)) INSERT INTO inspection "
          + "SELECT \(first) + i, (SELECT min(id) FROM establishment), '2026-03-02', 1 FROM n"
      ], on: fleet.database(device))
    terminal.say("\(padded(device))\(counted(count, "inspection")), offline")
  }

  private func base(_ device: String) -> Int64 {
    900_000_000 + 10_000_000 * Int64(Self.devices.firstIndex(of: device) ?? 0)
  }

  private func writtenOnServer() async throws -> [String: Int64] {
    var found: [String: Int64] = [:]
    for device in Self.devices {
      let first = base(device)
      let text = try await cluster.psql(
        "SELECT count(*) FROM inspection WHERE id >= \(first) AND id < \(first + 10_000_000)"
      ).out
      found[device] = Int64(text.prefix { $0.isNumber })
    }
    return found
  }

  /// All that devices wrote is on the server, once.
  private func requireWritten() async throws {
    let found = try await writtenOnServer()
    for device in Self.devices where found[device] != written[device, default: 0] {
      throw SalvorError(
        .failed,
        "\(device) has written \(written[device, default: 0]) inspections, and the server has \(found[device] ?? 0).")
    }
    terminal.say("On the server: every inspection that was synchronized, once")
  }

  // MARK: - Telling

  private mutating func title(_ text: String) {
    chapter += 1
    terminal.say("")
    terminal.say(terminal.bold("\(chapter). \(text)"))
  }

  private func command(_ text: String) { terminal.say("$ \(text)") }

  /// As a device's timer does: what is put off is given again a little later.
  private mutating func sync(_ device: String) async throws {
    terminal.progress("\(device) synchronizes")
    var last = ""
    for _ in 0..<300 {
      let result = try await fleet.salvor(device, ["sync"])
      guard result.code == 0 else {
        last = "\(result.code): \(result.out)"
        // Refused requests or a person's decision would be errors here.
        guard [1, 3].contains(result.code) else { break }
        retries += 1
        try await Task.sleep(for: .milliseconds(250))
        continue
      }
      let report = try JSONValue(parsing: fleet.trimmed(result.out))
      let sync = DemoSync(device: device, report: report, milliseconds: 0)
      let reason = report["recovery"]?["reason"]?.string.map { " (\($0))" } ?? ""
      terminal.say(
        "\(padded(device))salvor sync: \(number(sync.number("uploaded"))) sent, "
          + "\(counted(sync.number("downloaded", "upserts"), "row")) fetched\(reason)")
      return
    }
    throw SalvorError(.failed, "salvor sync of \(device) ended with \(last)")
  }

  private func padded(_ device: String) -> String { DemoStory.padded(device) }
  private func counted(_ value: Int64, _ what: String) -> String { DemoStory.counted(value, what) }
  private func number(_ value: Int64) -> String { DemoStory.number(value) }
}
