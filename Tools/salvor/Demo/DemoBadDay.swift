import SQLiteSupport
import SalvorHost
import SalvorModel
import SalvorWire

/// The bad day: a backup, a day's work after it, the server's disk lost, and what each strategy makes of one device.
extension DemoStory {
  private static let strategies = [
    "recover-unsynced-changes", "recover-or-discard-unsynced-changes", "discard-unsynced-changes",
    "upload-then-recreate", "copy-and-resubscribe", "recreate", "manual",
  ]
  private static let visit = 900_000_011 as Int64
  private static let nextVisit = 900_000_012 as Int64

  mutating func tellBadDay(_ subject: Subject) async throws {
    let night = "\(fleet.directory)/night.db"
    title("In the night the office makes a backup, while the server runs")
    command("salvor server backup night.db")
    let backup = try await fleet.operate(["server", "backup", night])
    terminal.say("\(number(backup["bytes"]?.integer ?? 0)) bytes, one moment of the database, checked")
    try await tellNextDay(subject)
    try await tellErasure(night)
    try await tellOffline(subject)
    let before = try DemoSums(fleet.serverDatabase, without: DemoSums.offline(subject, Self.visit, Self.nextVisit))
    try await tellLoss(night)
    let outcomes = try await tellStrategies()
    try await tellReturn(outcomes, subject, before)
  }

  /// What is synchronized here is what the server will lose; what Anna writes after it is what no one else has.
  private mutating func tellNextDay(_ subject: Subject) async throws {
    title("The next day: more work, synchronized, and some that is not yet")
    try await write(
      DemoStory.anna,
      "a new inspection of \(subject.name) with an infraction, and another place to be visited more often",
      [
        "INSERT INTO inspection VALUES (\(Self.visit), \(subject.establishment), '2026-03-04', 2)",
        "INSERT INTO infraction VALUES (\(Self.visit), 1, \(subject.type), 1, 1, NULL, NULL)",
        "UPDATE establishment SET min_inspections_per_year = min_inspections_per_year % 3 + 1 WHERE id = \(subject.other)",
      ])
    try await write(
      fleet.devices[1], "a corrected address",
      [
        "UPDATE establishment_address SET address = address || ' (2nd floor)' WHERE establishment_id = \(subject.establishment)"
      ])
    for device in fleet.devices + fleet.devices { try await sync(device) }
    try compare("All sides after it")
  }

  /// The backup of the night has the row.
  private mutating func tellErasure(_ night: String) async throws {
    title("A person's right to be forgotten: the office erases an address for good")
    command("salvor server purge establishment_address \(Self.erased)")
    _ = try await fleet.operate(["server", "purge", "establishment_address", "\(Self.erased)"])
    for device in fleet.devices { try await sync(device) }
    try compare("All sides after it")
    terminal.say(
      "The backup of the night has \(counted(try addresses(night), "such row")); the ledger beside the database remembers."
    )
  }

  private static let erased = 900_000_002 as Int64

  private func addresses(_ database: String) throws -> Int64 {
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    defer { connection.close() }
    return try connection.integer(
      "SELECT count(*) FROM establishment_address WHERE establishment_id = \(Self.erased)") ?? 0
  }

  /// What Anna writes after it, no one else has.
  private mutating func tellOffline(_ subject: Subject) async throws {
    terminal.say("")
    try await write(
      DemoStory.anna, "offline: a second infraction of that inspection, a name, an inspection elsewhere, two drafts",
      [
        "INSERT INTO infraction VALUES (\(Self.visit), 2, \(subject.type), 2, 2, NULL, 120.0)",
        "UPDATE establishment SET name = name || ' & BAR' WHERE id = \(subject.establishment)",
        "INSERT INTO inspection VALUES (\(Self.nextVisit), \(subject.other), '2026-03-05', 1)",
        "INSERT INTO draft VALUES (10, 'ask about the freezer'), (11, 'back door was locked')",
      ])
  }

  private mutating func tellLoss(_ night: String) async throws {
    title("The server's disk is gone; the office restores the backup of the night")
    guard await fleet.stopServer() else { throw SalvorError(.failed, "The server did not end in order.") }
    command("salvor server restore night.db")
    let restored = try await fleet.operate(["server", "restore", night])
    let lost = (restored["remembered"]?.integer ?? 0) - (restored["head"]?.integer ?? 0)
    terminal.say("\(counted(lost, "commit")) not in it: what Anna and Ben synchronized today")
    try fleet.keepServer()
  }

  // MARK: - Strategies

  /// What one strategy made of the device.
  private struct Outcome {
    var strategy: String
    var sync: DemoSync
    /// Rows that the device has otherwise than the server, or that only one of them has.
    var differing: Int64
    var drafts: Int64
    /// Entries of its archive.
    var archived: Int64

    /// Requests in the queue after the recovery, before what waits is sent.
    var kept: Int64 { isWaiting ? queued : sync.number("recovery", "kept") }
    /// Requests that wait now.
    var queued: Int64

    var isWaiting: Bool { sync.report["outcome"]?.string == "recovery-required" }
    var bytes: Int64 { sync.number("bytesSent") + sync.number("bytesReceived") }

    var json: JSONValue {
      [
        "strategy": .string(strategy), "outcome": sync.report["outcome"] ?? .null,
        "reason": sync.report["recovery"]?["reason"] ?? .null, "kept": .integer(kept),
        "sent": .integer(sync.number("uploaded")), "discarded": .integer(sync.number("recovery", "discarded")),
        "lost": .integer(sync.number("recovery", "lost")), "archived": .integer(archived),
        "differing": .integer(differing), "clientOnlyRows": .integer(drafts), "bytes": .integer(bytes),
        "milliseconds": .integer(sync.milliseconds),
      ]
    }
  }

  /// The same device and the same server, once for each strategy.
  private mutating func tellStrategies() async throws -> [JSONValue] {
    title("Anna's device, copied aside: what each strategy makes of it")
    let drafts = try count("draft", DemoStory.anna)
    let waiting = try await fleet.json(DemoStory.anna, ["queue"])["requests"]?.array?.count ?? 0
    terminal.say("It has \(counted(Int64(waiting), "unsynced request")) and \(counted(drafts, "draft")) of its own.")
    var outcomes: [Outcome] = []
    for strategy in Self.strategies {
      terminal.progress(strategy)
      let device = try fleet.copyDevice(DemoStory.anna, strategy: strategy)
      try fleet.putBackServer()
      try await fleet.startServer()
      let sync = try await fleet.sync(device, expecting: [0, 5, 6])
      guard await fleet.stopServer() else { throw SalvorError(.failed, "The server did not end in order.") }
      let compared = try DemoComparison.compare(server: fleet.serverDatabase, devices: [fleet.database(device)])
      outcomes.append(
        Outcome(
          strategy: strategy, sync: sync, differing: compared.tables.reduce(0) { $0 + $1.differing },
          drafts: try count("draft", device), archived: try count("salvor_error_archive", device),
          queued: try count("salvor_queue", device)))
    }
    show(outcomes, drafts: drafts)
    let wrong = outcomes.filter { $0.differing > 0 && !$0.isWaiting }.map(\.strategy)
    guard wrong.isEmpty else {
      throw SalvorError(.failed, "Server and device differ after \(wrong.joined(separator: ", ")).")
    }
    return outcomes.map(\.json)
  }

  private func show(_ outcomes: [Outcome], drafts: Int64) {
    if !terminal.isQuiet {
      terminal.table(
        ["strategy", "reason", "kept", "sent", "archive", "rows equal", "drafts", "bytes", "time"],
        outcomes.map { outcome in
          [
            outcome.strategy, outcome.sync.report["recovery"]?["reason"]?.string ?? "-",
            number(outcome.kept), number(outcome.sync.number("uploaded")),
            number(outcome.archived),
            outcome.isWaiting ? "waits" : outcome.differing == 0 ? "yes" : "\(number(outcome.differing)) differ",
            "\(outcome.drafts) of \(drafts)", number(outcome.bytes), "\(number(outcome.sync.milliseconds)) ms",
          ]
        })
    }
    terminal.say(
      """
      kept: unsynced requests that are still in the queue after the strategy's transaction; sent: what went up with it,
      lost rows that they need included; archive: requests and rows that the server lost, with all their values, to be
      offered again. manual touches nothing and gives the token that salvor recover asks for.
      """)
  }

  private func count(_ table: String, _ device: String) throws -> Int64 {
    let connection = try SQLiteConnection(
      fleet.database(device), mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    defer { connection.close() }
    return try connection.integer("SELECT count(*) FROM \(table)") ?? 0
  }

  // MARK: - Together again

  private mutating func tellReturn(_ outcomes: [JSONValue], _ subject: Subject, _ before: DemoSums) async throws {
    title("All three synchronize, as on any day")
    try fleet.putBackServer()
    try await fleet.startServer()
    for device in fleet.devices + fleet.devices { try await sync(device) }
    terminal.say("Chloe had sent nothing since the backup: her device goes back inside a normal sync.")
    command("salvor recover --list", on: DemoStory.anna)
    let recoveries = try await fleet.json(DemoStory.anna, ["recover", "--list"])["recoveries"]?.array ?? []
    for recovery in recoveries {
      terminal.say(
        "\(recovery["id"]?.string ?? ""): \(recovery["reason"]?.string ?? ""), \(recovery["strategy"]?.string ?? "")")
    }
    let report = try await tellRestore()
    let after = try DemoSums(fleet.serverDatabase, without: DemoSums.offline(subject, Self.visit, Self.nextVisit))
    try tell(before, after)
    let erased = try ([fleet.serverDatabase] + fleet.devices.map(fleet.database)).map(addresses)
    guard erased.allSatisfy({ $0 == 0 }) else { throw SalvorError(.failed, "An erased row is there again.") }
    terminal.say("The erased address is nowhere, though the backup had it.")
    badDay = [
      "strategies": .array(outcomes), "recoveries": .array(recoveries), "restore": report,
      "erased": .array(erased.map(JSONValue.integer)),
      "sums": .array(
        DemoData.tables.map { table in
          [
            "table": .string(table), "before": .string(before.tables[table] ?? ""),
            "after": .string(after.tables[table] ?? ""),
          ]
        }),
    ]
  }

  private func tellRestore() async throws -> JSONValue {
    command("salvor server restores show 1")
    let report = try await fleet.operate(["server", "restores", "show", "1"])
    func amount(_ name: String) -> Int64 { report[name]?.integer ?? 0 }
    terminal.say(
      "\(counted(report["lost"]?["commits"]?.integer ?? 0, "commit")) lost; \(counted(amount("healed"), "offer")) brought something back, "
        + "\(number(amount("superseded"))) changed nothing, \(number(amount("conflicts"))) became conflict versions")
    let absent = (report["missing"]?["remotes"]?.array ?? []).filter { $0["commits"]?.integer != 0 }
    terminal.say(
      absent.isEmpty ? "Every device that had made lost commits has come." : "\(absent.count) devices are missing.")
    guard absent.isEmpty, amount("healed") > 0 else {
      throw SalvorError(.failed, "What the server lost did not come back.")
    }
    return report
  }

  /// The server's rows before its disk was lost and now, without what Anna had not synchronized.
  private func tell(_ before: DemoSums, _ after: DemoSums) throws {
    if !terminal.isQuiet {
      terminal.table(
        ["table", "before the disk was lost", "now"],
        DemoData.tables.map { [$0, before.tables[$0] ?? "", after.tables[$0] ?? ""] })
    }
    guard before.tables == after.tables else { throw SalvorError(.failed, "The server's rows are not what they were.") }
    terminal.say("The sums of all rows, but for what Anna had not synchronized then, are equal.")
  }
}

/// A sum of each table's rows: how many there are, and a hash of all their values in the order of their keys.
struct DemoSums {
  var tables: [String: String] = [:]

  /// - Parameter without: conditions of rows that are left out, by table.
  init(_ database: String, without: [String: String]) throws {
    let connection = try SQLiteConnection(database, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    defer { connection.close() }
    for table in DemoData.tables {
      let columns = try connection.rows("SELECT name, pk FROM pragma_table_info('\(table)') ORDER BY cid")
      let key = columns.filter { $0[1] != 0 }.compactMap(\.[0].string).joined(separator: ", ")
      let values = columns.compactMap(\.[0].string).map { "quote(\($0))" }.joined(separator: " || ',' || ")
      var hash: UInt64 = 14_695_981_039_346_656_037
      var count: Int64 = 0
      try connection.query("SELECT \(values) FROM \(table) WHERE NOT (\(without[table] ?? "0")) ORDER BY \(key)") {
        row in
        count += 1
        for byte in row.string(0).utf8 + [0] { hash = (hash ^ UInt64(byte)) &* 1_099_511_628_211 }
        return true
      }
      let text = String(hash, radix: 16)
      tables[table] = "\(count) rows, \(String(repeating: "0", count: 16 - text.count))\(text)"
    }
  }

  /// The rows that Anna changed before the disk was lost and sent after it.
  static func offline(_ subject: DemoStory.Subject, _ visit: Int64, _ nextVisit: Int64) -> [String: String] {
    [
      "infraction": "inspection_id = \(visit) AND line = 2", "establishment": "id = \(subject.establishment)",
      "inspection": "id = \(nextVisit)",
    ]
  }
}
