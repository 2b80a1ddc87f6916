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
    try await tellLoss(night)
    let outcomes = try await tellStrategies()
    try await tellReturn(outcomes)
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

  private mutating func tellReturn(_ outcomes: [JSONValue]) async throws {
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
    badDay = ["strategies": .array(outcomes), "recoveries": .array(recoveries)]
  }
}
