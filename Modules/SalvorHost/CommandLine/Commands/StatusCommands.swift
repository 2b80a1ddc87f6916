import SalvorClient
import SalvorModel
import SalvorStorage
import SalvorWire

extension Command {
  static let status = Command(
    "status", "this device: remote ID, groups and cursors, queue, archive, recovery state",
    discussion: "Reads the device's database only; the server is not asked."
  ) { invocation in
    let client = try await invocation.makeClient()
    let status = try await client.status()
    await client.close()
    let terminal = invocation.terminal
    terminal.json(status.json)
    let state = status.state
    terminal.print("remote ID  \(state.remoteID)")
    terminal.print("principal  \(state.principal.isEmpty ? "(the server has not said yet)" : state.principal)")
    terminal.print("schema     version \(state.schemaVersion)")
    terminal.print(
      "queue      \(grouped(status.queued)) waiting, \(grouped(status.inError)) in error, "
        + "\(grouped(status.displaced)) displaced, \(grouped(status.kept)) kept")
    terminal.print("recovery   \(recoveryText(status, on: terminal))")
    terminal.print("")
    terminal.table(
      ["group", "synchronized", "cursor", "last sync"],
      state.groups.map { group in
        [
          group.name, group.isSynchronized ? "yes" : "never", group.cursor.map { String($0.number) } ?? "-",
          group.lastSync.map(timestamp) ?? "-",
        ]
      })
    return 0
  }

  static let queue = Command(
    "queue", "the requests that wait to be sent, in order",
    discussion: """
      Each line is one request: what it changes, and its state. With --errors the error archive: what the server refused,
      with the reason. The rows keep showing the refused values until the request is dealt with.
      """,
    options: [
      Option("errors", "the error archive instead of the queue"),
      Option("limit", value: "N", "at most N requests (default 1000)"),
    ]
  ) { invocation in
    let limit = try invocation.wholeNumber("limit", default: 1000)
    let client = try await invocation.makeClient()
    let requests =
      try await invocation.flags.contains("errors")
      ? client.errorArchive(limit: limit) : client.queue(limit: limit)
    await client.close()
    let terminal = invocation.terminal
    terminal.json(["requests": .array(requests.map(\.json))])
    if requests.isEmpty {
      terminal.say(invocation.flags.contains("errors") ? "the error archive is empty" : "the queue is empty")
    } else {
      terminal.table(
        ["id", "state", "operation", "table", "key", "what"],
        requests.map { request in
          [
            request.id.description, request.state.rawValue, request.operation.rawValue, request.table,
            request.key.map(\.description).joined(separator: ", "), request.message ?? changedText(request),
          ]
        })
    }
    return 0
  }
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

private func changedText(_ request: QueuedRequest) -> String {
  switch request.operation {
  case .update:
    request.after.map { change in
      let before = request.before.first { $0.name == change.name }?.value ?? .null
      return "\(change.name): \(before) → \(change.value)"
    }.joined(separator: "; ")
  case .insert: request.after.map { "\($0.name): \($0.value)" }.joined(separator: "; ")
  case .delete: ""
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

extension ClientStatus {
  /// `status --json` (interfaces.md).
  public var json: JSONValue {
    [
      "remoteID": .string(state.remoteID.text),
      "principal": .string(state.principal),
      "serverID": state.serverID.map { .string($0.text) } ?? .null,
      "schemaVersion": .integer(state.schemaVersion),
      "queued": .integer(queued),
      "inError": .integer(inError),
      "displaced": .integer(displaced),
      "kept": .integer(kept),
      "groups": .array(
        state.groups.map { group in
          [
            "name": .string(group.name),
            "synchronized": .bool(group.isSynchronized),
            "cursor": group.cursor.map { .integer($0.number) } ?? .null,
            "lastSync": group.lastSync.map(JSONValue.integer) ?? .null,
          ]
        }),
      "recovery": [
        "state": .string(
          recovery.state == .none && state.recoveryRequired != nil ? "required" : recovery.state.rawValue),
        "reason": (recovery.reason ?? state.recoveryRequired).map { .string($0.rawValue) } ?? .null,
        "strategy": recovery.strategy.map(JSONValue.string) ?? .null,
        "step": recovery.step.map(JSONValue.string) ?? .null,
        "token": recovery.token.map(JSONValue.string) ?? .null,
        "backup": recovery.backup.map(JSONValue.string) ?? .null,
      ],
    ]
  }
}

extension QueuedRequest {
  /// One of `requests` of `queue --json` (interfaces.md).
  public var json: JSONValue {
    func object(_ values: [NamedValue]) -> JSONValue {
      values.isEmpty ? .null : .object(values.map { JSONValue.Member($0.name, JSONValue($0.value)) })
    }
    return [
      "id": .string(id.description),
      "table": .string(table),
      "key": .array(key.map { JSONValue($0) }),
      "operation": .string(operation.rawValue),
      "before": object(before),
      "after": object(after),
      "state": .string(state.rawValue),
      "reason": reason.map(JSONValue.string) ?? .null,
      "status": status.map { .integer(Int64($0)) } ?? .null,
      "message": message.map(JSONValue.string) ?? .null,
      "dependents": .array(dependents.map { .string($0.description) }),
      "tag": tag.map(JSONValue.string) ?? .null,
    ]
  }
}

/// Milliseconds since 1970 as `2026-11-21 04:05:06` in UTC.
func timestamp(_ milliseconds: Int64) -> String {
  var seconds = milliseconds / 1000
  let time = seconds % 86_400
  seconds /= 86_400
  // Days to a date of the Gregorian calendar, by eras of 400 years counted from 0000-03-01.
  let days = seconds + 719_468
  let era = days / 146_097
  let dayOfEra = days % 146_097
  let yearOfEra = (dayOfEra - dayOfEra / 1460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
  let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
  let monthFromMarch = (5 * dayOfYear + 2) / 153
  let day = dayOfYear - (153 * monthFromMarch + 2) / 5 + 1
  let month = monthFromMarch < 10 ? monthFromMarch + 3 : monthFromMarch - 9
  let year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0)
  func two(_ number: Int64) -> String { number < 10 ? "0\(number)" : "\(number)" }
  return "\(year)-\(two(month))-\(two(day)) \(two(time / 3600)):\(two(time / 60 % 60)):\(two(time % 60))"
}
