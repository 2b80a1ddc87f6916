import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorWire

extension Command {
  static let serverRestores = Command(
    "server restores", "server: what each restore lost, what devices have given back since, and what is still missing",
    discussion: """
      A restore is written down by salvor server restore, and by a start that finds the database older than the file beside
      it remembers. Devices that return offer what was lost. `show ID` says of one restore which commits were lost, what came
      back into which table and from which remote, what became a conflict version, what waits, and what is still missing: the
      remotes that have not come since, and the commits that nobody has offered anything of. --url asks a server elsewhere.

      Offers wait where their row needs a parent that is not there; where server.recovery.heal, the table's heal or the
      device's says "review"; where they are a mass of deletes that the restore may have been meant to undo; and while healing
      is paused. `waiting ID` lists them, each beside the row as it is now. `accept ID` settles those that wait for consent by
      the rules of every offer, `reject ID` refuses what waits; --table and --remote choose among them. `pause` lets every offer
      wait, `resume` settles them, `rate N` lets N rows a second pass, over all devices (`rate off`: any number).

        salvor server restores show 1
        salvor server restores accept 1 --table site
        salvor server restores reject 1 --remote 7f0c…
        salvor server restores rate 500
      """, arguments: ["[ACTION]", "[ID]"],
    options: [
      Option("table", value: "TABLE", "only what is of this table"),
      Option("remote", value: "ID", "only what came from this remote"),
      Option("after", value: "PLACE", "of what waits, only what comes after this one"),
      Option("limit", value: "N", "of what waits, at most N (default 100)"), .url,
    ]
  ) { invocation in
    let words = invocation.arguments
    let usage = SalvorError(
      .usage,
      "Say salvor server restores, with show ID, waiting ID, accept ID, reject ID, pause, resume, rate N or rate off.")
    switch (words.first, words.count) {
    case (nil, _), ("show", 2): break
    case ("waiting", 2): return try await invocation.listWaiting(words[1])
    case ("accept", 2): return try await invocation.decideWaiting(words[1], accepts: true)
    case ("reject", 2): return try await invocation.decideWaiting(words[1], accepts: false)
    case ("pause", 1): return try await invocation.setHealPace(["paused": .bool(true)])
    case ("resume", 1): return try await invocation.setHealPace(["paused": .bool(false)])
    case ("rate", 2):
      guard words[1] == "off" || Int64(words[1]).map({ (1...HealPace.rateMax).contains($0) }) == true else {
        throw HealPace.badRate
      }
      return try await invocation.setHealPace(["rowsPerSecond": Int64(words[1]).map(JSONValue.integer) ?? .null])
    default: throw usage
    }
    var records: [JSONValue]
    var unnamed: Int64 = 0
    if let elsewhere = try invocation.administration() {
      let told = try await elsewhere.call("GET", "/admin/v1/restores")
      records = told["restores"]?.array ?? []
      unnamed = told["unnamedWaiting"]?.integer ?? 0
      await elsewhere.close()
    } else {
      let store = try invocation.makeServerStore() as? any RestoreReportingServerStore
      records = try await store?.restores(limit: RestoreRecord.listedMax).map(\.json) ?? []
      unnamed = try await store?.unnamedWaiting() ?? 0
    }
    let terminal = invocation.terminal
    guard let id = words.last else {
      terminal.json(["restores": .array(records), "unnamedWaiting": .integer(unnamed)])
      if unnamed > 0 {
        terminal.say(
          "\(unnamed == 1 ? "1 offer waits" : "\(grouped(unnamed)) offers wait") of a restore that nothing told of: salvor server restores waiting 0 lists \(unnamed == 1 ? "it" : "them"), accept 0 or reject 0 decides"
        )
        if records.isEmpty { return 0 }
      }
      guard !records.isEmpty else {
        terminal.say("the database was never restored")
        return 0
      }
      terminal.table(
        ["ID", "time", "back to commit", "commits lost", "came back", "conflicts", "waiting", "remotes missing"],
        records.map { record in
          [
            "\(record["id"]?.integer ?? 0)", record["time"]?.integer.map(moment) ?? "-",
            "\(record["parting"]?.array?.first?.integer ?? 0)", "\(record["lost"]?["commits"]?.integer ?? 0)",
            "\(record["healed"]?.integer ?? 0)", "\(record["conflicts"]?.integer ?? 0)",
            "\((record["waiting"]?.array ?? []).reduce(0) { $0 + ($1["count"]?.integer ?? 0) })",
            "\(missed(record).count)",
          ]
        })
      return 0
    }
    guard let record = records.first(where: { "\($0["id"]?.integer ?? 0)" == id }) else {
      throw RestoreRecord.notFound(id)
    }
    terminal.json(record)
    for line in story(of: record) { terminal.say(line) }
    return 0
  }

  /// The remotes that may hold what is lost, and have not come.
  private static func missed(_ record: JSONValue) -> [JSONValue] {
    (record["missing"]?["remotes"]?.array ?? []).filter { $0["commits"]?.integer != 0 }
  }

  private static func story(of record: JSONValue) -> [String] {
    func number(_ json: JSONValue?, _ name: String) -> String { grouped(json?[name]?.integer ?? 0) }
    let lost = record["lost"]
    var lines = [
      "The database went back to commit \(record["parting"]?.array?.first?.integer ?? 0) at \(record["time"]?.integer.map(moment) ?? "-")."
    ]
    if let first = lost?["first"]?.integer, let last = lost?["last"]?.integer {
      let source =
        lost?["exact"] == .bool(true)
        ? "as the database before had them" : "as far as the file beside the database remembers"
      lines.append(
        "Lost: \(first == last ? "commit \(first)" : "commits \(first) to \(last)") of \(lost?["incarnation"]?.string ?? ""), \(source)."
      )
      if let programs = lost?["ofPrograms"]?.integer, programs > 0 {
        lines.append(
          "\(programs == 1 ? "1 of them was" : "\(grouped(programs)) of them were") made by other programs: only a device with `heal: \"all\"` gives \(programs == 1 ? "it" : "these") back."
        )
      }
    } else {
      lines.append("No commit is known to be lost.")
    }
    lines.append(
      "Offers since: \(number(record, "healed")) brought something back, \(number(record, "superseded")) changed nothing, \(number(record, "conflicts")) are conflict versions, \(number(record, "refused")) were refused, \(number(record, "purged")) were of purged rows."
    )
    for offer in record["offers"]?.array ?? [] {
      lines.append(
        "  \(visible(offer["table"]?.string ?? "")) from \(offer["remote"]?.string ?? ""): \(number(offer, "healed")) back, \(number(offer, "superseded")) nothing, \(number(offer, "conflicts")) conflicts, \(number(offer, "refused")) refused, \(number(offer, "purged")) purged"
      )
    }
    let waiting = record["waiting"]?.array ?? []
    if !waiting.isEmpty {
      lines.append("Waiting (salvor server restores waiting \(record["id"]?.integer ?? 0) lists them):")
      lines += waiting.map { entry in
        let why =
          switch entry["reason"]?.string.flatMap(WaitingReason.init) {
          case .parent?: "a row that they reference is not there"
          case .review?: "your consent: salvor server restores accept \(record["id"]?.integer ?? 0)"
          case .paused?: "healing is paused: salvor server restores resume"
          case .rate?: "the rate of healing"
          case nil: "unknown"
          }
        return
          "  \(number(entry, "count")) \(entry["operation"]?.string ?? "")\(entry["count"]?.integer == 1 ? "" : "s") of \(visible(entry["table"]?.string ?? "")) from \(entry["remote"]?.string ?? "") (\(why))"
      }
    }
    let seen = record["seen"]?.array?.count ?? 0
    lines.append("Seen since: \(seen == 1 ? "1 remote" : "\(grouped(Int64(seen))) remotes").")
    let missing = missed(record)
    if missing.isEmpty {
      lines.append("Every remote that is known to hold something lost has come since.")
    } else {
      lines.append("Not seen since, and what they wrote at lost commits is still missing:")
      lines += missing.map { absent in
        let commits =
          absent["commits"]?.integer.map { ": \($0 == 1 ? "1 lost commit" : "\(grouped($0)) lost commits")" } ?? ""
        return "  \(absent["remote"]?.string ?? "")\(commits)"
      }
    }
    let ranges = (record["missing"]?["commits"]?.array ?? []).compactMap { range -> String? in
      guard let from = range.array?.first?.integer, let to = range.array?.last?.integer else { return nil }
      return from == to ? "\(from)" : "\(from)-\(to)"
    }
    if !ranges.isEmpty {
      let more = ranges.count > 20 ? " and \(ranges.count - 20) more ranges" : ""
      lines.append(
        "Nobody has offered anything of these lost commits: \(ranges.prefix(20).joined(separator: ", "))\(more).")
    }
    return lines
  }
}
