import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorWire

extension Command {
  static let status = Command(
    "status", "this device: remote ID, groups and cursors, queue, archive, recovery state",
    discussion: """
      Reads the device's database, and asks the server whether it is there (without a credential, for at most three
      seconds; --offline leaves that out). Exit code 0 whether it is or not.
      """,
    options: [Option("offline", "do not ask the server")]
  ) { invocation in
    let client = try await invocation.makeClient()
    let status = try await client.status()
    let notes = try await client.notes()
    let refusal = try await client.lastRefusal(of: status)
    let isAsked = !invocation.flags.contains("offline")
    let unreachable = isAsked ? await client.reach() : nil
    let terminal = invocation.terminal
    terminal.json(
      .object(
        (status.json(notes).members ?? []) + [
          .init("lastRefusal", refusal.map(\.shortJSON) ?? .null),
          .init(
            "server",
            isAsked
              ? [
                "reachable": .bool(unreachable == nil), "error": unreachable.map { .string($0.code.rawValue) } ?? .null,
              ]
              : .null),
        ]))
    let state = status.state
    terminal.print("remote ID  \(state.remoteID)")
    terminal.print("principal  \(state.principal.isEmpty ? "(the server has not said yet)" : state.principal)")
    terminal.print("schema     version \(state.schemaVersion)")
    terminal.print(
      "queue      \(grouped(status.queued)) waiting, \(grouped(status.inError)) in error, "
        + "\(grouped(status.displaced)) displaced, \(grouped(status.kept)) kept")
    if status.waiting > 0 {
      terminal.print(
        "waiting    \(grouped(status.waiting)) offers or deletes that the server had lost wait there: for its operator, or for another row"
      )
    }
    if let refusal { terminal.print("refused    \(refusalText(refusal))") }
    if isAsked {
      let answer = unreachable.map { "\(terminal.red("not reachable")) (\($0.code.rawValue)): \($0.message)" }
      terminal.print("server     \(answer ?? terminal.green("reachable"))")
    }
    if let upload = status.upload { terminal.print("upload     \(uploadText(upload, on: terminal))") }
    if let since = status.capturePausedSince {
      terminal.print(
        "capture    \(terminal.red("paused")) since \(moment(since)); salvor capture resume ends it")
    }
    for (table, count) in status.rowsWithoutKey.sorted(by: { $0.key < $1.key }) {
      terminal.print(
        "no key     \(grouped(count)) rows of \(table) have no key and are not synchronized: give them one")
    }
    terminal.print("recovery   \(recoveryText(status, on: terminal))")
    for note in notes { terminal.print("note       \(moment(note.time)): \(note.text)") }
    terminal.print("")
    terminal.table(
      ["group", "synchronized", "cursor", "last sync"],
      state.groups.map { group in
        [
          group.name, group.isSynchronized ? "yes" : "never", group.cursor.map { String($0.number) } ?? "-",
          group.lastSync.map(moment) ?? "-",
        ]
      })
    try await client.forgetNotes(notes)
    await client.close()
    return 0
  }
}

private func refusalText(_ refusal: QueuedRequest) -> String {
  let time = refusal.lastAttempt.map { "\(moment($0)): " } ?? ""
  return
    "\(time)\(refusal.operation.rawValue) of \(refusal.table), \(refusal.reason ?? "refused"); salvor errors show \(refusal.id)"
}

extension QueuedRequest {
  fileprivate var shortJSON: JSONValue {
    [
      "id": .string(id.description), "table": .string(table), "operation": .string(operation.rawValue),
      "reason": reason.map(JSONValue.string) ?? .null, "message": message.map(JSONValue.string) ?? .null,
      "time": lastAttempt.map(JSONValue.integer) ?? .null,
    ]
  }
}

private func uploadText(_ upload: UploadStatus, on terminal: Terminal) -> String {
  let last = upload.lastFailure.map { ", the last time at \(moment($0.time)) (\($0.error))" } ?? ""
  let failures =
    switch upload.failures {
    case 0: ""
    case 1: "; 1 session has failed\(last)"
    default: "; \(upload.failures) sessions have failed\(last)"
    }
  let text = "the outcome of one is not known since \(moment(upload.since))\(failures)"
  guard let stall = upload.stall(now: SystemClock().now()) else { return "\(text); the next sync asks for it" }
  return
    "\(terminal.red("stalled")) (\(stall.rawValue)): \(text). Look into the error; nothing is lost, the next sync asks again"
}

private func recoveryText(_ status: ClientStatus, on terminal: Terminal) -> String {
  let recovery = status.recovery
  let reason = (recovery.reason ?? status.state.recoveryRequired)?.rawValue ?? ""
  switch recovery.state {
  case .none:
    return status.state.recoveryRequired == nil
      ? "none needed" : "\(terminal.red("required")): \(reason). \(status.state.recoveryMessage ?? "")"
  case .unfinished:
    return
      "\(terminal.red("unfinished")): \(reason), strategy \(recovery.strategy ?? "-"), step \(recovery.step ?? "-"); "
      + (status.state.recoveryMessage ?? "the next sync goes on")
  case .required:
    return
      "\(terminal.red("required")): \(reason). \(status.state.recoveryMessage ?? "") Token \(recovery.token ?? "-"), "
      + "copy \(recovery.backup ?? "-"); salvor recover --plan --strategy S shows what a strategy would do"
  }
}

extension Invocation {
  func wholeNumber(_ option: String, default fallback: Int) throws -> Int {
    guard let text = options[option] else { return fallback }
    guard let number = Int(text), number > 0 else {
      throw SalvorError(.usage, "--\(option) takes a whole number above 0.")
    }
    return number
  }
}
