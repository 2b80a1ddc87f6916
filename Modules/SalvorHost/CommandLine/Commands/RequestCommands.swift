import SalvorClientEngine
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// The request queue and the error archive (semantics 8).
extension Command {
  static let queue = Command(
    "queue", "the requests that wait to be sent, in order",
    discussion: """
      Each line is one change: what it does, its request, and what the request waits for. `salvor queue show ID` shows one
      request with its values and what depends on it, `salvor queue withdraw ID` takes it back.
      """,
    options: listOptions
  ) { invocation in
    try await list(invocation, empty: "the queue is empty") { client, after, limit in
      try await client.queue(after: after, limit: limit)
    }
  }

  static let queueShow = Command(
    "queue show", "one request: its values, what it needs, what depends on it", arguments: ["ID"]
  ) { invocation in try await show(invocation) }

  static let queueWithdraw = Command(
    "queue withdraw", "takes a request back that is not sent yet, and what depends on it",
    discussion: """
      The rows are as if the request had never been made. What depends on it goes along and is named: later changes of the
      same row, rows that reference one that it made. --plan says what would go, and writes nothing. A request of an upload
      whose outcome is not known cannot be taken back: sync first.
      """,
    arguments: ["ID"], options: [planOption]
  ) { invocation in
    let id = try requestID(invocation.arguments[0])
    return try await remove(invocation) { _ in .withdraw(id) }
  }

  static let errors = Command(
    "errors", "the error archive: what the server refused, and what cannot stand",
    discussion: """
      refused and blocked requests show in their rows until they are dealt with; displaced ones are not shown and come back by
      themselves when nothing is in their way; kept ones were put here by a recovery. The way out of each:

        edit the row again, and sync        the failed request and the edit are sent as one
        salvor errors retry ID              sends it again as it is (retry --all: all); of a kept one: does it again
        salvor errors delete ID             takes it back (--plan says what goes along)
      """,
    options: listOptions
  ) { invocation in
    try await list(invocation, empty: "the error archive is empty") { client, after, limit in
      try await client.errorArchive(after: after, limit: limit)
    }
  }

  static let errorsShow = Command(
    "errors show", "one entry: its values, the server's row, the reason, what depends on it", arguments: ["ID"]
  ) { invocation in try await show(invocation) }

  static let errorsDelete = Command(
    "errors delete", "takes failed requests back: their rows are as if they had never been made",
    discussion: """
      Deleting any refused entry empties the archive of refused, blocked and displaced requests; what was queued since stays,
      unless it cannot stand without what went. With client.errorArchive.individualDeletion: true only the entry and what
      depends on it go, sent or not. An entry that a recovery kept goes alone, --kept takes all of those. Nothing needs to be
      uploaded. --plan says what would go, with its values, and writes nothing.
      """,
    arguments: ["[ID]"],
    options: [
      Option("all", "all that is refused, blocked or displaced"), Option("kept", "all that recoveries have kept"),
      planOption,
    ]
  ) { invocation in
    let id = try invocation.arguments.first.map(requestID)
    switch (id, invocation.flags.contains("all"), invocation.flags.contains("kept")) {
    case (let id?, false, false): return try await remove(invocation) { try await $0.deletion(of: id) }
    case (nil, true, false): return try await remove(invocation) { _ in .archive(nil) }
    case (nil, false, true): return try await remove(invocation) { _ in .allKept }
    default:
      throw SalvorError(.usage, "Name an entry, or give --all or --kept: one of the three. salvor errors lists them.")
    }
  }

  static let errorsRetry = Command(
    "errors retry", "makes failed requests wait to be sent again",
    discussion: """
      A failed request, with later edits of its rows, is sent by the next sync as one request under a new ID. What was blocked
      by it follows when it succeeds. A displaced request stands again where it can. A kept one is done again as a new
      request on the rows as they are now. --all: all but the kept ones.
      """,
    arguments: ["[ID]"], options: [Option("all", "all that is refused, blocked or displaced")]
  ) { invocation in
    let id = try invocation.arguments.first.map(requestID)
    guard (id == nil) == invocation.flags.contains("all") else {
      throw SalvorError(.usage, "Name an entry, or give --all: one of the two. salvor errors lists them.")
    }
    return try await retry(id, invocation)
  }
}

private let listOptions = [
  Command.Option("limit", value: "N", "at most N changes, but no request is cut (default 1000)"),
  Command.Option("after", value: "ID", "those after this one"),
]
private let planOption = Command.Option("plan", "say what would go; write nothing")

private func requestID(_ text: String) throws -> RequestID {
  guard let id = RequestID(text) else {
    throw SalvorError(.usage, "\"\(text)\" is not a request's ID. salvor queue and salvor errors list them.")
  }
  return id
}

private func list(
  _ invocation: Invocation, empty: String,
  _ requests: (SalvorClient, RequestID?, Int) async throws -> [QueuedRequest]
) async throws -> Int32 {
  let limit = try invocation.wholeNumber("limit", default: 1000)
  let after = try invocation.options["after"].map(requestID)
  let client = try await invocation.makeClient()
  let found = try await requests(client, after, limit)
  var next: RequestID?
  if found.count >= limit, let last = found.last?.id, try await !requests(client, last, 1).isEmpty { next = last }
  await client.close()
  let terminal = invocation.terminal
  terminal.json(["requests": .array(found.map(\.json)), "next": next.map { .string("\($0)") } ?? .null])
  if found.isEmpty {
    terminal.say(empty)
  } else {
    terminal.table(
      ["id", "state", "operation", "table", "key", "what"],
      found.map { [$0.id.description, $0.state.rawValue, $0.operation.rawValue, $0.table, keyText($0.key), what($0)] })
    if let next { terminal.say("there are more: --after \(next), or a larger --limit than \(limit)") }
  }
  return 0
}

private func keyText(_ key: Key) -> String { key.map(\.word).joined(separator: ", ") }

/// Why it is in the archive, else what it changes.
private func what(_ request: QueuedRequest) -> String {
  if let message = request.message { return message }
  switch request.operation {
  case .update:
    return request.after.map { change in
      let before = request.before.first { $0.name == change.name }?.value ?? .null
      return "\(change.name): \(shortened(before)) → \(shortened(change.value))"
    }.joined(separator: "; ")
  case .insert: return request.after.map { "\($0.name): \(shortened($0.value))" }.joined(separator: "; ")
  case .delete: return ""
  }
}

/// For a list; `queue show` and `errors show` have the whole value.
private func shortened(_ value: Value) -> String {
  let text = "\(value)"
  return text.count > 60 ? text.prefix(57) + "…" : text
}

// MARK: One request

private func show(_ invocation: Invocation) async throws -> Int32 {
  let id = try requestID(invocation.arguments[0])
  let client = try await invocation.makeClient()
  let changes = try await client.request(id)
  await client.close()
  guard let first = changes.first else {
    throw SalvorError(.notFound, "There is no request \(id). salvor queue and salvor errors list them.")
  }
  let terminal = invocation.terminal
  terminal.json(["requests": .array(changes.map(\.json))])
  var facts = [["request", "\(id)"], ["state", first.state.rawValue], ["waits for", waiting(first)]]
  if let tag = first.tag { facts.append(["tag", tag]) }
  if let reason = first.reason {
    facts.append(["reason", first.status.map { "\(reason) (\($0))" } ?? reason])
  }
  if let message = first.message { facts.append(["message", message]) }
  if let blocker = first.blockedBy { facts.append(["blocked by", "\(blocker)"]) }
  if let since = first.since { facts.append(["since", moment(since)]) }
  facts.append([
    "attempts", first.lastAttempt.map { "\(first.attempts), last \(moment($0))" } ?? "\(first.attempts)",
  ])
  if let next = first.nextAttempt { facts.append(["next attempt", moment(next)]) }
  for (name, ids) in [("needs", first.needs), ("dependents", first.dependents), ("was before", first.history)]
  where !ids.isEmpty {
    facts.append([name, ids.map(\.description).joined(separator: ", ")])
  }
  let width = facts.map { $0[0].count }.max() ?? 0
  for fact in facts {
    terminal.print(fact[0] + String(repeating: " ", count: width - fact[0].count + 2) + visible(fact[1]))
  }
  for change in changes {
    terminal.print(
      "\n\(terminal.bold("\(change.operation.rawValue) \(visible("\(change.table) \(keyText(change.key))"))"))")
    terminal.table(["column", "before", "after", "server"], valueRows(change))
  }
  return 0
}

private func waiting(_ request: QueuedRequest) -> String {
  switch request.waitsFor {
  case .nextSync: "the next sync"
  case .answer: "the server's answer; the next sync asks for it"
  case .stalledUpload: "the server's answer, for too long: salvor status says why"
  case .request: "another request"
  case .room: "what is in its way to go"
  case .server: "the server, which holds it: for its operator, for the row that it needs, or until healing goes on"
  case .person: "you: edit the row again, salvor errors retry, or salvor errors delete"
  }
}

/// A line for each column that any side has.
private func valueRows(_ change: QueuedRequest) -> [[String]] {
  var names: [String] = []
  for value in change.before + change.after where !names.contains(value.name) { names.append(value.name) }
  func text(_ values: [NamedValue]?, _ name: String) -> String {
    values?.first { $0.name == name }.map { "\($0.value)" } ?? "-"
  }
  return names.map { [$0, text(change.before, $0), text(change.after, $0), text(change.serverRow, $0)] }
}

// MARK: Taking back, sending again

private func remove(
  _ invocation: Invocation, _ removal: (SalvorClient) async throws -> RequestRemoval
) async throws -> Int32 {
  let isPlan = invocation.flags.contains("plan")
  let client = try await invocation.makeClient()
  let wanted = try await removal(client)
  let report = try await isPlan ? client.plan(wanted) : client.remove(wanted)
  await client.close()
  let terminal = invocation.terminal
  terminal.json(report.json(isPlan: isPlan))
  if report.requests.isEmpty {
    terminal.say("there is nothing to delete")
    return 0
  }
  terminal.table(
    ["id", "was", "operation", "table", "key", "why it goes"],
    report.requests.flatMap { request in
      request.changes.map {
        ["\(request.id)", $0.state.rawValue, $0.operation.rawValue, $0.table, keyText($0.key), why(request.cause)]
      }
    })
  let count = report.requests.count
  terminal.say(
    "\n\(count) \(count == 1 ? "request" : "requests") \(isPlan ? "would go" : "gone"), \(report.rows.count) "
      + "\(report.rows.count == 1 ? "row" : "rows") \(isPlan ? "would be " : "")made anew")
  for id in report.returned { terminal.say("\(id) stands again: what was in its way is gone") }
  for id in report.displaced { terminal.say("\(id) cannot stand any more: it is in the archive, displaced") }
  return 0
}

private func why(_ cause: RemovalCause) -> String {
  switch cause {
  case .askedFor: "asked for"
  case .archived: "the archive is emptied"
  case .dependsOn(let id): "depends on \(id)"
  case .cannotStand(let id): "cannot stand without \(id)"
  }
}

private func retry(_ id: RequestID?, _ invocation: Invocation) async throws -> Int32 {
  let client = try await invocation.makeClient()
  let report: RetryReport
  if let id, try await client.request(id).first?.state == .kept {
    let new = try await client.reapply(id)
    report = RetryReport(requests: [RetriedRequest(id: id, outcome: new.map { .queued($0) } ?? .nothingLeft)])
  } else {
    report = try await client.retry(id.map { [$0] })
  }
  await client.close()
  let terminal = invocation.terminal
  terminal.json(["requests": .array(report.requests.map(\.json))])
  if report.requests.isEmpty { terminal.say("there is nothing to send again") }
  for request in report.requests {
    switch request.outcome {
    case .queued(let now): terminal.print("\(request.id) waits as \(now): salvor sync sends it")
    case .nothingLeft: terminal.print("\(request.id) has nothing left to send: its rows are as the server has them")
    case .stands: terminal.print("\(request.id) stands again and is in the queue")
    case .displaced: terminal.print("\(request.id) cannot stand yet: something is still in its way")
    }
  }
  return 0
}
