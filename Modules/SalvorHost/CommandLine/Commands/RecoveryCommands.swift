import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorWire

extension Command {
  static let recover = Command(
    "recover", "what a recovery would do (--plan), or does it",
    discussion: """
      A device whose history and the server's have parted recovers with its next sync, by the strategy that the
      configuration names for the reason. This command is for what waits for a person: `status` shows the reason and the
      token. --plan asks the server what would happen, and writes nothing. It also says where the guard against mass deletion
      would stop the next sync ("guard" with --json). That guard holds for automatic recoveries: a recovery that you start with
      this command may remove more rows than half of a table. A strategy that makes a new database may fetch whole groups as
      files. --plan names those groups ("files" with --json, each with its rows and its bytes); the other groups come row by row.

        salvor recover --plan --strategy discard-unsynced-changes
        salvor recover --token 0123456789abcdef --strategy recover-unsynced-changes

      `salvor modules` lists the strategies with what they guarantee. --list shows the recoveries of this database, and
      --report ID one of them with each request and row.
      """,
    options: [
      Option("plan", "say what would happen; write nothing"),
      Option(
        "strategy", value: "S", "the strategy (default: the configuration's for the reason)", module: .recoveryStrategy),
      Option("token", value: "T", "of the recovery that is required"),
      Option("list", "the recoveries of this database"),
      Option("report", value: "ID", "one recovery, with each request and row"),
    ]
  ) { invocation in
    let client = try await invocation.makeClient()
    let code: Int32
    if let id = invocation.options["report"] {
      code = try await showRecovery(id, client, invocation.terminal)
    } else if invocation.flags.contains("list") {
      code = try await listRecoveries(client, invocation.terminal)
    } else if invocation.flags.contains("plan") {
      code = try await showPlan(client, invocation)
    } else {
      code = try await recoverByHand(client, invocation)
    }
    await client.close()
    return code
  }

  static let backups = Command(
    "backups", "the copies that recoveries keep, newest first",
    discussion: """
      A recovery keeps a checked copy of the database, or the before-images of what it changed. As many as
      client.recovery.backups.keep says are kept; older ones go after the next recovery. They are listed where the database
      is damaged, too.
      """
  ) { invocation in
    let client = try await invocation.makeClient()
    let backups = try await client.backups()
    await client.close()
    let terminal = invocation.terminal
    terminal.json(["backups": .array(backups.map(\.json))])
    if backups.isEmpty {
      terminal.say("there are no backups")
    } else {
      terminal.table(
        ["id", "made", "content", "size", "why"],
        backups.map { [$0.id, moment($0.time), $0.content.rawValue, bytes($0.bytes), $0.reason] })
    }
    return 0
  }

  static let backupsRestore = Command(
    "backups restore", "puts the database back to what a backup holds",
    discussion: """
      Other programs may have the database open: they see one change. The next sync finds the database rewound and
      recovers it; what the backup has not uploaded is not lost. A copy is put back over everything that the database
      holds, and so that is copied first, with its queue and its archive: the answer names it. Where before-images are
      put back, what was changed since is in the error archive. A database that is damaged is set aside, and a copy takes
      its place: programs that have the damaged one open must open it again.
      """,
    arguments: ["ID"]
  ) { invocation in
    let client = try await invocation.makeClient()
    let known = try await client.backups().map(\.id)
    guard known.contains(invocation.arguments[0]) else {
      throw SalvorError(.notFound, "There is no backup \(invocation.arguments[0]). salvor backups lists them.")
    }
    let before = try await client.restoreBackup(invocation.arguments[0])
    let left = Set(try await client.backups().map(\.id))
    let used = known.filter { !left.contains($0) }
    await client.close()
    let terminal = invocation.terminal
    terminal.json([
      "restored": .string(invocation.arguments[0]), "copy": before.map { .string($0.id) } ?? .null,
      "used": .array(used.map(JSONValue.string)),
    ])
    terminal.say("restored \(invocation.arguments[0]); the next sync finds the database rewound")
    terminal.say(
      before.map { "what was there before is the backup \($0.id)" }
        ?? "what was changed since the backup is in the error archive: salvor errors")
    if !used.isEmpty { terminal.say("used up, with the recoveries that they undo: \(used.joined(separator: ", "))") }
    return 0
  }

  static let backupsDelete = Command("backups delete", "removes a backup", arguments: ["ID"]) { invocation in
    let client = try await invocation.makeClient()
    let isDeleted = try await client.deleteBackup(invocation.arguments[0])
    await client.close()
    guard isDeleted else {
      throw SalvorError(.notFound, "There is no backup \(invocation.arguments[0]). salvor backups lists them.")
    }
    invocation.terminal.json(["deleted": .string(invocation.arguments[0])])
    invocation.terminal.say("deleted \(invocation.arguments[0])")
    return 0
  }
}

private func recoverByHand(_ client: SalvorClient, _ invocation: Invocation) async throws -> Int32 {
  let terminal = invocation.terminal
  // A person at the device need not copy the token; one that is given must be right. A damaged file has no status.
  var token = invocation.options["token"]
  let status = try? await client.status()
  if token == nil { token = status?.recovery.token }
  let report = await client.recover(strategy: invocation.options["strategy"], token: token) { progress in
    terminal.show(progress)
  }
  terminal.endProgress()
  terminal.json(report.json)
  describe(report, on: terminal)
  return report.exitCode
}

private func showPlan(_ client: SalvorClient, _ invocation: Invocation) async throws -> Int32 {
  let terminal = invocation.terminal
  let plan = try await client.recoveryPlan(strategy: invocation.options["strategy"])
  terminal.json(plan.json)
  if let waits = plan.waits { terminal.print("waits: \(waits)") }
  guard plan.reason != nil || !plan.strategy.isEmpty else {
    if plan.waits != nil { return 0 }
    terminal.print("There is nothing to recover from: the server accepts this database as it is.")
    return 0
  }
  for note in plan.notes {
    let isFall = plan.fellBackFrom.contains { note.hasPrefix("\($0): ") }
    terminal.print("\(isFall ? "falls through" : "note"): \(note)")
  }
  terminal.table(
    ["what", "value"],
    [
      ["reason", plan.reason?.rawValue ?? "none; by hand"], ["strategy", plan.strategy],
      ["steps", plan.steps.joined(separator: ", ")],
      ["requests kept", grouped(plan.counts.kept + plan.counts.merged)],
      ["… of these on another base", grouped(plan.counts.merged)], ["requests uploaded first", grouped(plan.sent)],
      ["requests to the archive", grouped(plan.counts.discarded)],
      ["requests that could not stand", grouped(plan.counts.displaced)], ["rows to fetch", grouped(plan.rowsToFetch)],
      ["… of these by files", describe(plan.files)],
      ["rows to remove", grouped(plan.counts.deletes)], ["rows the server lost", grouped(plan.counts.lost)],
      ["… of these offered to it again", grouped(plan.counts.offered)],
    ]
      + Unoffered.allCases.compactMap { why in
        plan.counts.unoffered[why].map { ["… not offered: \(describe(why))", grouped($0)] }
      } + [
        ["payload", plan.bytes.map { bytes($0) } ?? "not known before it comes"]
      ])
  return 0
}

private func describe(_ files: [RecoveryFacts.File]) -> String {
  if files.isEmpty { return "none" }
  let (rows, size) = files.reduce((Int64(0), Int64(0))) { ($0.0 + $1.rows, $0.1 + $1.bytes) }
  let groups = files.map(\.group).joined(separator: ", ")
  return "\(grouped(rows)) in \(files.count == 1 ? "1 file" : "\(files.count) files") (\(groups)), \(bytes(size))"
}

private func listRecoveries(_ client: SalvorClient, _ terminal: Terminal) async throws -> Int32 {
  let recoveries = try await client.recoveries()
  terminal.json(["recoveries": .array(recoveries.map(\.json))])
  if recoveries.isEmpty {
    terminal.say("this database was never recovered")
  } else {
    terminal.table(
      ["id", "when", "reason", "strategy", "kept", "discarded", "displaced", "lost", "backup"],
      recoveries.map { recovery in
        [
          recovery.id, moment(recovery.time), recovery.reason.rawValue, recovery.strategy,
          grouped(recovery.counts.kept + recovery.counts.merged), grouped(recovery.counts.discarded),
          grouped(recovery.counts.displaced), grouped(recovery.counts.lost), recovery.backup ?? "-",
        ]
      })
  }
  return 0
}

private func describe(_ why: Unoffered) -> String {
  switch why {
  case .off: "heal is \"off\" on this device"
  case .tableOff: "heal is \"off\" for the table"
  case .notOwn: "not written by this device"
  case .serverMaintained: "the server alone writes the table"
  case .unproven: "written while Salvor's triggers were away"
  case .outOfScope: "they are out of this device's scope now"
  case .changedHere: "changes that wait here have another row"
  case .unknownVersion: "nobody knows by which commit it was written"
  case .otherColumns: "the table has other columns now"
  case .notTaken: "the server takes no offers"
  case .otherServer: "it is another server"
  }
}

private func showRecovery(_ id: String, _ client: SalvorClient, _ terminal: Terminal) async throws -> Int32 {
  guard let recovery = try await client.recovery(id) else {
    throw SalvorError(.notFound, "There is no recovery \(id). salvor recover --list lists them.")
  }
  let items = try await client.recoveryItems(id)
  terminal.json(.object((recovery.json.members ?? []) + [.init("items", .array(items.map(\.json)))]))
  terminal.print("\(recovery.reason.rawValue), \(recovery.strategy), \(moment(recovery.time))")
  terminal.table(
    ["fate", "request", "operation", "table", "key", "why", "values"],
    items.map { item in
      [
        item.fate.rawValue, item.request?.description ?? "-", item.operation?.rawValue ?? "-", item.table,
        item.key.map(\.description).joined(separator: ", "), item.reason ?? "",
        item.after.map { "\($0.name): \($0.value)" }.joined(separator: "; "),
      ]
    })
  return 0
}

/// What a recovery did, or why it waits, for people.
func describe(_ recovery: RecoverySummary, outcome: SyncReport.Outcome?, on terminal: Terminal) {
  let fell = recovery.fellBackFrom.isEmpty ? "" : " (fell back from \(recovery.fellBackFrom.joined(separator: ", ")))"
  guard let report = recovery.report else {
    terminal.error("recovery required: \(recovery.reason.rawValue), strategy \(recovery.strategy)\(fell)")
    if let backup = recovery.backup { terminal.error("a copy of the database was made: salvor backups, \(backup)") }
    return
  }
  terminal.say(
    "\(terminal.green(outcome == .recovered ? "recovered" : "rewound")): \(recovery.reason.rawValue), strategy \(recovery.strategy)\(fell): "
      + "\(grouped(report.counts.kept + report.counts.merged)) requests kept, \(grouped(report.counts.discarded + report.counts.displaced)) in the archive, "
      + "\(grouped(report.counts.upserts)) rows written, \(grouped(report.counts.deletes)) removed, "
      + "\(grouped(report.counts.lost)) that the server lost"
      + (report.counts.offered > 0 ? ", \(grouped(report.counts.offered)) offered to it again" : "")
      + (report.counts.givenUp > 0
        ? ", \(grouped(report.counts.givenUp)) client-only rows, subscriptions and settings given up" : "")
      + "; salvor recover --report \(report.id) names each")
}

extension Terminal {
  func show(_ progress: SyncProgress) {
    switch progress {
    case .uploading(let changes, let share):
      if let share, share < 1 {
        self.progress("sending", share: share, rest: "\(grouped(changes)) changes")
      } else {
        self.progress("sending: \(grouped(changes)) changes")
      }
    case .receiving(let rows, let share):
      if let share {
        self.progress("receiving", share: share, rest: "\(grouped(rows)) rows")
      } else {
        self.progress("receiving: \(grouped(rows)) rows")
      }
    case .downloading(let count): self.progress("receiving: \(bytes(count))")
    case .fetching(let rows, let all):
      self.progress(
        "receiving", share: Double(rows) / Double(max(all, 1)),
        rest: "\(grouped(rows)) of \(grouped(all)) rows\(pace.timeLeft(rows, of: all).map { ", \($0) left" } ?? "")")
    case .comparing(let table, let rows, let all):
      self.progress("comparing \(table)", share: Double(rows) / Double(max(all, 1)))
    case .applying: self.progress("applying")
    case .waiting(let code, let message, let milliseconds):
      if milliseconds < 500 { return }
      say("waiting \(Double(milliseconds / 100) / 10) s, then trying again (\(code.rawValue)): \(message)")
    }
  }
}
