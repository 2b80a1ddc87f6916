import SQLiteSupport
import SalvorHost
import SalvorModel
import SalvorWire

/// Tells the demo, chapter by chapter, and keeps what happened for `--json`.
struct DemoStory: Sendable {
  let terminal: Terminal
  let data: DemoData
  let plain: PlainSQLite
  var fleet: DemoFleet
  var badDay: JSONValue = .null
  /// Milliseconds of a first synchronization.
  private var firstSyncs: JSONValue = .null
  private var syncs: [JSONValue] = []
  private var chapter = 0

  static let anna = "anna", ben = "ben", chloe = "chloe"

  init(terminal: Terminal, data: DemoData, directory: String) throws {
    self.terminal = terminal
    self.data = data
    fleet = try DemoFleet(
      directory: directory, devices: [DemoStory.anna, DemoStory.ben, DemoStory.chloe], data: data)
    plain = PlainSQLite(log: fleet.log)
  }

  /// True: all sides end equal.
  mutating func tell() async throws -> Bool {
    terminal.say(
      """
      Salvor's demo, on real data: Toronto's restaurant inspections.
      Contains information licensed under the Open Government Licence – Toronto.
      """)
    try await tellStart()
    try await tellFirstSync()
    let subject = try Subject(fleet.serverDatabase)
    try await tellOfflineEdits(subject)
    try await tellConflict(subject)
    try await tellRefusal(subject)
    try await tellBadDay(subject)
    return try await tellEnd()
  }

  /// The rows of the city's that the story is about.
  struct Subject {
    var establishment: Int64
    var name: String
    var inspection: Int64
    var type: Int64
    var other: Int64

    init(_ database: String) throws {
      let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
      let rows = try connection.rows(
        """
        SELECT e.id, e.name, (SELECT max(id) FROM inspection WHERE establishment_id = e.id),
               (SELECT min(id) FROM infraction_type)
        FROM establishment e WHERE e.id IN (SELECT establishment_id FROM inspection) ORDER BY e.id LIMIT 2
        """)
      guard rows.count == 2, let establishment = rows[0][0].integer, let name = rows[0][1].string,
        let inspection = rows[0][2].integer, let type = rows[0][3].integer, let other = rows[1][0].integer
      else { throw SalvorError(.failed, "The demo's data has no inspections.") }
      self.establishment = establishment
      self.name = name
      self.inspection = inspection
      self.type = type
      self.other = other
    }
  }

  // MARK: - Chapters

  private mutating func tellStart() async throws {
    title("The office has a database, and starts a server on it")
    let rows = try data.load(into: fleet.serverDatabase)
    terminal.say("\(number(rows)) rows in \(DemoData.tables.count) tables, a plain SQLite file made by plain SQL.")
    try await fleet.startServer()
    command("salvor serve")
    terminal.say("listening on \(fleet.url); the rows were adopted as they are")
  }

  private mutating func tellFirstSync() async throws {
    title("Three inspectors' devices fetch everything, the third one from a file")
    let byRows = try await sync(DemoStory.anna)
    try await sync(DemoStory.ben)
    command("salvor server snapshots")
    let file = try await fleet.snapshot()
    terminal.say(
      "Since the first device has come the server has a file of the group \(file["group"]?.string ?? ""): "
        + "\(counted(file["rows"]?.integer ?? 0, "row")), \(number(file["bytes"]?.integer ?? 0)) bytes")
    let byFile = try await sync(DemoStory.chloe)
    guard byFile.number("snapshots") == 1 else {
      throw SalvorError(.failed, "The third device got its rows one by one; \(fleet.log) says why.")
    }
    terminal.say("By rows \(number(byRows.milliseconds)) ms, by the file \(number(byFile.milliseconds)) ms.")
    firstSyncs = ["byRows": .integer(byRows.milliseconds), "byFile": .integer(byFile.milliseconds)]
  }

  private mutating func tellOfflineEdits(_ subject: Subject) async throws {
    title("Offline: each device's application writes with \(plain.name), which knows nothing of Salvor")
    let new = 900_000_001 as Int64
    try await write(
      DemoStory.anna, "a new inspection of \(subject.name) with two infractions, in one transaction",
      [
        "INSERT INTO inspection VALUES (\(new), \(subject.establishment), '2026-03-02', 2)",
        "INSERT INTO infraction VALUES (\(new), 1, \(subject.type), 1, 1, NULL, NULL)",
        "INSERT INTO infraction VALUES (\(new), 2, \(subject.type), 2, 2, NULL, 250.5)",
      ])
    try await write(
      DemoStory.ben, "a corrected address, and an infraction struck off",
      [
        "UPDATE establishment_address SET address = address || ' (rear)' WHERE establishment_id = \(subject.other)",
        "DELETE FROM infraction WHERE (inspection_id, line) = "
          + "(SELECT inspection_id, line FROM infraction ORDER BY inspection_id, line LIMIT 1)",
      ])
    try await write(
      DemoStory.chloe, "a draft that never leaves the device, and a new establishment",
      [
        "INSERT INTO draft VALUES (1, 'smelled of gas, look again')",
        "INSERT INTO establishment VALUES (900000002, 'HARBOUR KITCHEN', 2, 2)",
        "INSERT INTO establishment_address VALUES (900000002, '1 QUEENS QUAY W', 43.6403, -79.3763)",
      ])
    try await plain.run(
      ["UPDATE severity SET name = 'C - Crucial (close at once)' WHERE name LIKE 'C - Crucial%'"],
      on: fleet.serverDatabase)
    terminal.say("office  renames a severity, in the server's own file, with the same plain client")
    terminal.say("")
    for device in fleet.devices + fleet.devices { try await sync(device) }
    try compare("All sides after it")
  }

  private mutating func tellConflict(_ subject: Subject) async throws {
    title("Anna and Ben edit the same establishment, offline of each other")
    try await write(
      DemoStory.anna, "its name, and how often it is inspected: 3",
      [
        "UPDATE establishment SET name = name || ' & GRILL', min_inspections_per_year = 3 WHERE id = \(subject.establishment)"
      ])
    try await write(
      DemoStory.ben, "how often it is inspected: 1; and another column, its type",
      [
        "UPDATE establishment SET min_inspections_per_year = 1, establishment_type_id = 3 WHERE id = \(subject.establishment)"
      ])
    for device in [DemoStory.anna, DemoStory.ben, DemoStory.anna, DemoStory.chloe] { try await sync(device) }
    let connection = try SQLiteConnection(fleet.serverDatabase, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    let row = try connection.rows(
      "SELECT name, min_inspections_per_year, establishment_type_id FROM establishment WHERE id = ?",
      .integer(subject.establishment))
    let values = row.first?.map(\.description) ?? []
    terminal.say(
      "On the server: \(values.joined(separator: " | ")). Anna's name and Ben's type are both kept; where both wrote the"
    )
    terminal.say("same column, the later upload stands (the policy client-wins; a table may choose another).")
    try compare("All sides after it")
  }

  private mutating func tellRefusal(_ subject: Subject) async throws {
    title("Chloe's application writes what it may not: the severities are the server's")
    try await write(
      DemoStory.chloe, "a severity of her own, and a new inspection",
      [
        "UPDATE severity SET name = 'not so bad' WHERE id = 1",
        "INSERT INTO inspection VALUES (900000003, 900000002, '2026-03-03', 1)",
      ])
    try await sync(DemoStory.chloe)
    command("salvor errors", on: DemoStory.chloe)
    let archive = try await fleet.json(DemoStory.chloe, ["errors"])
    for request in archive["requests"]?.array ?? [] {
      terminal.say(
        "refused: \(request["operation"]?.string ?? "") of \(request["table"]?.string ?? ""), "
          + "\(request["reason"]?.string ?? ""): \(request["message"]?.string ?? "")")
    }
    terminal.say(
      "The inspection went through all the same. Her row shows her value, marked as in error, until she acts.")
    for device in fleet.devices { try await sync(device) }
  }

  private mutating func tellEnd() async throws -> Bool {
    title("The rows of all sides, compared value by value")
    let comparison = try DemoComparison.compare(
      server: fleet.serverDatabase, devices: fleet.devices.map(fleet.database))
    let stopped = await fleet.stopServer()
    if !terminal.isQuiet {
      terminal.table(
        ["table", "server"] + fleet.devices + ["differing", "in error"],
        comparison.tables.map { table in
          [table.table] + table.counts.map(number) + [number(table.differing), number(table.inError)]
        })
    }
    let isEqual = comparison.isEqual && stopped
    terminal.say("")
    terminal.print(
      isEqual
        ? terminal.green("All sides are equal.") + (comparison.inError > 0 ? " \(refusedText(comparison.inError))" : "")
        : terminal.red("The sides differ."))
    terminal.json([
      "equal": .bool(isEqual),
      "devices": .array(fleet.devices.map(JSONValue.string)),
      "tables": .array(
        comparison.tables.map { table in
          [
            "table": .string(table.table), "rows": .array(table.counts.map(JSONValue.integer)),
            "differing": .integer(table.differing), "inError": .integer(table.inError),
          ]
        }),
      "firstSyncs": firstSyncs,
      "badDay": badDay,
      "syncs": .array(syncs),
    ])
    return isEqual
  }

  private func refusedText(_ count: Int64) -> String {
    "\(count == 1 ? "One row shows" : "\(count) rows show") a change that the server refused, and is marked so."
  }

  // MARK: - Telling

  mutating func title(_ text: String) {
    chapter += 1
    terminal.say("")
    terminal.say(terminal.bold("\(chapter). \(text)"))
  }

  func command(_ text: String, on device: String? = nil) {
    terminal.say("\(device.map { "\($0)$ " } ?? "$ ")\(text)")
  }

  @discardableResult
  mutating func sync(_ device: String) async throws -> DemoSync {
    terminal.progress("\(device) synchronizes")
    let sync = try await fleet.sync(device)
    syncs.append(sync.json)
    let refused = sync.number("refused")
    terminal.say(
      recovered(sync) + "\(padded(device))salvor sync: \(number(sync.number("uploaded"))) sent, "
        + "\(counted(sync.number("downloaded", "upserts"), "row")) and "
        + "\(counted(sync.number("downloaded", "deletes"), "delete")) fetched"
        + (refused > 0 ? ", \(terminal.red("\(refused) refused"))" : "")
        + " (\(number(sync.number("bytesSent") + sync.number("bytesReceived"))) bytes, "
        + "\(counted(sync.number("roundTrips"), "round trip")), "
        + "\(number(sync.milliseconds)) ms)")
    return sync
  }

  /// A line for a sync that had a recovery in it.
  private func recovered(_ sync: DemoSync) -> String {
    guard let recovery = sync.report["recovery"], !recovery.isNull else { return "" }
    return
      "\(padded(sync.device))\(recovery["reason"]?.string ?? ""), \(recovery["strategy"]?.string ?? ""): "
      + "\(counted(sync.number("recovery", "kept"), "request")) kept, "
      + "\(counted(sync.number("recovery", "lost"), "row")) that the server lost in the archive\n"
  }

  func write(_ device: String, _ what: String, _ statements: [String]) async throws {
    try await plain.run(statements, on: fleet.database(device))
    terminal.say("\(padded(device))\(what)")
  }

  func compare(_ what: String) throws {
    let comparison = try DemoComparison.compare(
      server: fleet.serverDatabase, devices: fleet.devices.map(fleet.database))
    let rows = comparison.tables.reduce(0) { $0 + ($1.counts.first ?? 0) }
    terminal.say(
      "\(what): \(number(rows)) rows, \(comparison.isEqual ? terminal.green("equal") : terminal.red("different"))")
    guard comparison.isEqual else {
      let names = comparison.tables.filter { $0.differing > 0 }.map(\.table).joined(separator: ", ")
      throw SalvorError(.failed, "The sides differ in: \(names).")
    }
  }

  func padded(_ device: String) -> String { Self.padded(device) }
  func counted(_ value: Int64, _ what: String) -> String { Self.counted(value, what) }
  func number(_ value: Int64) -> String { Self.number(value) }

  static func padded(_ device: String) -> String {
    device + String(repeating: " ", count: max(1, 8 - device.count))
  }

  static func counted(_ value: Int64, _ what: String) -> String {
    "\(number(value)) \(what)\(value == 1 ? "" : "s")"
  }

  static func number(_ value: Int64) -> String {
    var out = ""
    for (place, digit) in String(value.magnitude).reversed().enumerated() {
      if place > 0, place % 3 == 0 { out.append(",") }
      out.append(digit)
    }
    return (value < 0 ? "-" : "") + String(out.reversed())
  }
}
