import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorWire

extension Command {
  static let sync = Command(
    "sync", "one synchronization of this device's database",
    discussion: """
      Sends the queued requests, fetches what has changed and applies it in one transaction. A cut sync loses nothing:
      the next one goes on where it stopped. Exit code 6 says that some requests were refused; `queue` and the view
      salvor_error_archive name them. Exit code 5 says that a recovery is required, and why.

      With --watch it stays, until SIGINT or SIGTERM or until nobody reads its output (exit code 0): it synchronizes what applications write here, and what
      the server says has changed in groups with serverInitiated; others, and all of them while the server cannot be
      reached, at intervals. Each synchronization is a line, with --json an object. What needs a person ends it with its exit
      code (2, 4 or 5); so does `salvor detach` (2). The table salvor_setting says what is done for a group:
      salvor.serverInitiated.GROUP (on or off), salvor.interval.GROUP (seconds; 0: never).
      """,
    options: [
      Option("group", value: "G", "only this synchronization group, and those its rows reference"),
      Option("watch", "stay, and synchronize when either side changes"),
    ]
  ) { invocation in
    let client = try await invocation.makeClient()
    let terminal = invocation.terminal
    do {
      describe(try await client.open(reattaching: true), on: terminal)
    } catch let error as SalvorError where error.code == .storageCorrupt {
      // The synchronization recovers from it, or says what is required.
    }
    if invocation.flags.contains("watch") { return await watch(client, invocation) }
    let report = await client.attemptSync(groups: invocation.options["group"].map { [$0] }) { progress in
      terminal.show(progress)
    }
    await client.close()
    terminal.endProgress()
    terminal.json(report.json)
    describe(report, on: terminal)
    return report.exitCode
  }
}

/// Until a signal, or until something needs a person.
private func watch(_ client: SalvorClient, _ invocation: Invocation) async -> Int32 {
  let terminal = invocation.terminal
  let signals = TerminationSignals()
  let events = client.events
  let groups = invocation.options["group"].map { Set([$0]) }
  let telling = Task { for await event in events { describe(event, on: terminal) } }
  let watching = Task {
    await client.watch(groups: groups) { report in
      terminal.json(report.json)
      describe(report, on: terminal)
      if terminal.isAbandoned { signals.end() }
    }
  }
  let ending = Task {
    await signals.wait()
    watching.cancel()
  }
  let code = await watching.value?.exitCode ?? 0
  ending.cancel()
  await client.close()
  await telling.value
  return code
}

private func describe(_ event: SyncEvent, on terminal: Terminal) {
  switch event {
  case .listening(let groups): terminal.say("listening for changes of \(groups.sorted().joined(separator: ", "))")
  case .notListening(let error): terminal.say("not listening: \(error?.message ?? "the server ended the stream")")
  case .changed, .captured, .noted, .rowsChanged, .synchronized, .failed: break
  }
}

private func describe(_ opening: ClientOpening, on terminal: Terminal) {
  if !opening.createdTables.isEmpty { terminal.say("made tables: \(opening.createdTables.joined(separator: ", "))") }
  if !opening.addedColumns.isEmpty { terminal.say("added columns: \(opening.addedColumns.joined(separator: ", "))") }
  if opening.adoptedRows > 0 { terminal.say("adopted \(grouped(opening.adoptedRows)) rows: they wait to be sent") }
}

func describe(_ report: SyncReport, on terminal: Terminal) {
  for notice in report.notices { terminal.say("note: \(notice)") }
  if let error = report.error { terminal.error("\(terminal.red("error:")) \(error.message)") }
  if let recovery = report.recovery { describe(recovery, outcome: report.outcome, on: terminal) }
  guard report.error == nil else { return }
  terminal.say(
    "\(terminal.green("synchronized")): \(grouped(report.uploaded)) sent, \(grouped(report.upserts)) rows received, "
      + "\(grouped(report.deletes)) removed (\(bytes(report.bytesSent)) out, \(bytes(report.bytesReceived)) in, "
      + "\(report.roundTrips) round trip\(report.roundTrips == 1 ? "" : "s"))")
  if report.queued > 0 {
    let wait = report.queued == 1 ? "1 request waits" : "\(grouped(report.queued)) requests wait"
    switch report.queuedReason {
    case .otherGroups: terminal.say("\(wait) still; a sync without --group sends what is of other groups")
    case .waiting: terminal.say("\(wait) still; salvor queue lists what")
    default: terminal.say("\(wait) still, for the next sync; salvor queue lists what")
    }
  }
  if report.waiting > 0 {
    terminal.say(
      "\(report.waiting == 1 ? "1 row" : "\(grouped(report.waiting)) rows") that the server had lost \(report.waiting == 1 ? "waits" : "wait") there: for its operator, or for another row"
    )
  }
  if report.healed + report.superseded > 0 {
    terminal.say(
      "\(grouped(report.healed)) of the rows that the server had lost are there again"
        + (report.superseded > 0 ? "; \(grouped(report.superseded)) it had already, or newer ones" : ""))
  }
  if report.conflicts > 0 {
    let were = report.conflicts == 1 ? "1 conflict was" : "\(grouped(report.conflicts)) conflicts were"
    terminal.say("\(were) found on the server; its operator sees them with salvor conflicts")
  }
  if report.displaced > 0 {
    let requests = report.displaced == 1 ? "1 request" : "\(grouped(report.displaced)) requests"
    terminal.say("\(requests) could not stand on the new rows; salvor errors lists them")
  }
  if report.refused > 0 {
    let were = report.refused == 1 ? "1 request was" : "\(grouped(report.refused)) requests were"
    terminal.error("\(were) refused; salvor errors lists them with the reasons")
  }
}
