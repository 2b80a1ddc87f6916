import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorWire

extension Command {
  static let verify = Command(
    "verify", "compares this device with the server by digest, names the rows that differ",
    discussion: """
      Synchronizes first, so that both sides should hold the same. Then each computes digests of its tables and of ranges of
      keys within them, of every row as it stands in the table: a row that was altered while Salvor's triggers were away is
      found, too. Rows that change on the server meanwhile are no difference.

      Rows with requests that wait or are in error are dirty: it is the row under the requests that is compared, and it is
      never repaired. --repair brings the other rows that differ to the server's state, in one transaction. What it changes
      is kept: salvor backups lists it, salvor backups restore ID takes it back, salvor recover --report ID names it.

        salvor verify --group visits
        salvor verify --table site --values
        salvor verify --repair

      Exit code 0: all is equal, or was repaired; 1: rows differ, some of them after a repair, too, or it failed inside; the
      others as of sync.
      """,
    options: [
      Option("group", value: "G", "only this synchronization group (default: all that were synchronized)"),
      Option("table", value: "T", "only this table"),
      Option("repair", "bring the rows that differ to the server's state, dirty ones excepted"),
      Option("values", "show the values that differ, not only the columns"),
    ]
  ) { invocation in
    let client = try await invocation.makeClient()
    let terminal = invocation.terminal
    let report = try await client.verify(
      groups: invocation.options["group"].map { [$0] }, tables: invocation.options["table"].map { [$0] },
      repair: invocation.flags.contains("repair")
    ) { terminal.show($0) }
    await client.close()
    terminal.endProgress()
    let values = invocation.flags.contains("values")
    terminal.json(report.json(values: values))
    describe(report, values: values, on: terminal)
    return report.remaining == 0 ? 0 : 1
  }
}

private func describe(_ report: VerificationReport, values: Bool, on terminal: Terminal) {
  for notice in report.sync.notices + report.notices { terminal.say("note: \(notice)") }
  terminal.table(
    ["group", "table", "rows", "on the server", "dirty", "different"],
    report.tables.map { table in
      [
        table.group, table.name, grouped(table.rows), grouped(table.serverRows), grouped(table.dirty),
        table.differing == 0 ? "equal" : grouped(table.differing),
      ]
    })
  if !report.differences.isEmpty {
    terminal.print("")
    terminal.table(
      ["table", "key", "how", values ? "here → on the server" : "columns"],
      report.differences.map { difference in
        [
          difference.table, difference.key.map(\.description).joined(separator: ", "),
          difference.text + (difference.isDirty ? ", dirty" : ""),
          values
            ? difference.valuesText : difference.kind == .changed ? difference.columns.joined(separator: ", ") : "",
        ]
      })
  }
  if let repair = report.repair {
    terminal.say(
      "\(terminal.green("repaired")): \(grouped(repair.counts.upserts)) rows written, \(grouped(repair.counts.deletes)) removed"
        + (repair.backup.map { "; salvor backups restore \($0) takes it back" } ?? ""))
    if !report.leftOut.isEmpty {
      let rows = report.leftOut.count == 1 ? "1 row stays" : "\(grouped(Int64(report.leftOut.count))) rows stay"
      terminal.error(
        "\(terminal.red("\(rows) different")): \(names(report.leftOut)). A row that each references did not come: it is larger than devices take (server.limits.rowBytesMax or blobBytesMax), or the server does not have it; or this device's table does not take the row. salvor status says which it is. When that is mended, the next synchronization brings them."
      )
    }
  } else if report.remaining > 0 {
    let rows = report.remaining == 1 ? "1 row differs" : "\(grouped(Int64(report.remaining))) rows differ"
    terminal.error("\(terminal.red(rows)) from the server's: salvor verify --repair brings them to its state")
  } else {
    terminal.say(terminal.green("equal"))
  }
}

/// The first of them.
private func names(_ differences: [RowDifference]) -> String {
  let named = differences.prefix(10).map { "\($0.table) [\($0.key.map(\.description).joined(separator: ", "))]" }
  return named.joined(separator: ", ") + (differences.count > named.count ? ", …" : "")
}

extension RowDifference {
  fileprivate var text: String {
    switch kind {
    case .missing: "missing here"
    case .extra: "only here"
    case .changed: "different"
    }
  }

  fileprivate var valuesText: String {
    columns.map { name in
      func value(_ values: [NamedValue]) -> String { values.first { $0.name == name }.map { "\($0.value)" } ?? "-" }
      return "\(name): \(value(here)) → \(value(there))"
    }.joined(separator: "; ")
  }
}
