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
      back into which table and from which remote, what became a conflict version, and what is still missing: the remotes
      that have not come since, and the commits that nobody has offered anything of. --url asks a server elsewhere.
      """, arguments: ["[show]", "[ID]"], options: [.url]
  ) { invocation in
    let words = invocation.arguments
    guard words.isEmpty || (words.count == 2 && words[0] == "show") else {
      throw SalvorError(.usage, "Say salvor server restores, or salvor server restores show ID.")
    }
    var records: [JSONValue]
    if let elsewhere = try invocation.administration() {
      records = try await elsewhere.call("GET", "/admin/v1/restores")["restores"]?.array ?? []
      await elsewhere.close()
    } else {
      let store = try invocation.makeServerStore() as? any RestoreReportingServerStore
      records = try await store?.restores(limit: RestoreRecord.listedMax).map(\.json) ?? []
    }
    let terminal = invocation.terminal
    guard let id = words.last else {
      terminal.json(["restores": .array(records)])
      guard !records.isEmpty else {
        terminal.say("the database was never restored")
        return 0
      }
      terminal.table(
        ["ID", "time", "back to commit", "commits lost", "came back", "conflicts", "remotes missing"],
        records.map { record in
          [
            "\(record["id"]?.integer ?? 0)", record["time"]?.integer.map(timestamp) ?? "-",
            "\(record["parting"]?.array?.first?.integer ?? 0)", "\(record["lost"]?["commits"]?.integer ?? 0)",
            "\(record["healed"]?.integer ?? 0)", "\(record["conflicts"]?.integer ?? 0)",
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
      "The database went back to commit \(record["parting"]?.array?.first?.integer ?? 0) at \(record["time"]?.integer.map(timestamp) ?? "-")."
    ]
    if let first = lost?["first"]?.integer, let last = lost?["last"]?.integer {
      let source =
        lost?["exact"] == .bool(true)
        ? "as the database before had them" : "as far as the file beside the database remembers"
      lines.append("Lost: commits \(first) to \(last) of \(lost?["incarnation"]?.string ?? ""), \(source).")
      if let programs = lost?["ofPrograms"]?.integer, programs > 0 {
        lines.append(
          "\(grouped(programs)) of them were made by other programs: only a device with `heal: \"all\"` gives these back."
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
    lines.append("Seen since: \(grouped(Int64(record["seen"]?.array?.count ?? 0))) remotes.")
    let missing = missed(record)
    if missing.isEmpty {
      lines.append("Every remote that is known to hold something lost has come since.")
    } else {
      lines.append("Not seen since, and what they wrote at lost commits is still missing:")
      lines += missing.map { absent in
        let commits = absent["commits"]?.integer.map { ": \(grouped($0)) lost commits" } ?? ""
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
