import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

// The functions of include/salvor.h, which says what each does.

/// `const char *`: UTF-8, or null where the caller has none to give.
public typealias Text = UnsafePointer<CChar>?

// MARK: Opening and closing

/// `salvor_open` of include/salvor.h.
@_cdecl("salvor_open")
public func salvorOpen(_ options: Text, _ number: UnsafeMutablePointer<UInt64>?, _ result: Result_) -> Int32 {
  number?.pointee = 0
  result?.pointee = nil
  do {
    try Process.check()
    guard let number else { throw SalvorError(.usage, "salvor_open has no place for the client.") }
    let options = try Options(options, knows: ["configurationFile", "configuration", "directory", "token"])
    let made = try makeClient(options)
    let reply = wait(for: { await open(made) }, otherwise: Reply(SalvorError(.failed, "Nothing was opened.")))
    if reply.code == 0 {
      made.startTelling()
      number.pointee = Clients.add(made)
    }
    return reply.give(to: result)
  } catch {
    return Process.isForked ? Reply(error).code : Reply(error).give(to: result)
  }
}

private func makeClient(_ options: Options) throws -> OpenClient {
  let token = try options.string("token").map { Token($0) }
  func adjust(_ configuration: inout SalvorClient.Configuration) {
    guard let token else { return }
    configuration.credentialsProvider = { Credentials(token: token.text) }
  }
  switch (try options.string("configurationFile"), try options.text("configuration")) {
  case (let path?, nil):
    guard try options.string("directory") == nil else {
      throw SalvorError(.usage, "A configuration file has its own directory: leave the option \"directory\" out.")
    }
    return OpenClient(try SalvorClient(configurationFile: path, adjust: adjust), token: token)
  case (nil, let text?):
    let directory = try options.string("directory") ?? "."
    return OpenClient(try SalvorClient(configuration: text, directory: directory, adjust: adjust), token: token)
  default:
    throw SalvorError(.usage, "Name a \"configurationFile\", or give a \"configuration\": one of the two.")
  }
}

private func open(_ made: OpenClient) async -> Reply {
  do {
    let opening = try await made.client.open(reattaching: true)
    return Reply([
      "createdTables": .array(opening.createdTables.map(JSONValue.string)),
      "addedColumns": .array(opening.addedColumns.map(JSONValue.string)),
      "adoptedRows": .integer(opening.adoptedRows),
      "notices": .array(opening.notices.map(JSONValue.string)),
    ])
  } catch let error as SalvorError where error.code == .storageCorrupt {
    // A synchronization recovers from it, or says what is required.
    return Reply([
      "createdTables": [], "addedColumns": [], "adoptedRows": 0, "notices": [.string(error.message)],
    ])
  } catch {
    await made.client.close()
    return Reply(error)
  }
}

/// `salvor_close` of include/salvor.h.
@_cdecl("salvor_close")
public func salvorClose(_ number: UInt64, _ result: Result_) -> Int32 {
  answer(result) {
    guard let client = Clients.present(number) else {
      guard Clients.wasGiven(number) else { _ = try Clients.find(number); return .null }
      return .null
    }
    wait(for: { await client.close() }, otherwise: ())
    client.teller.settle()
    client.teller.finish()
    Clients.remove(number)
    return .null
  }
}

/// `salvor_set_token` of include/salvor.h.
@_cdecl("salvor_set_token")
public func salvorSetToken(_ number: UInt64, _ token: Text, _ result: Result_) -> Int32 {
  answer(result) {
    guard let token = try validText(token, "The token") else { throw SalvorError(.usage, "There is no token.") }
    try Clients.find(number).give(token)
    return .null
  }
}

/// `salvor_switch` of include/salvor.h.
@_cdecl("salvor_switch")
public func salvorSwitch(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["database", "principal", "token"], result,
    json: { open, options in
      guard let database = try options.string("database"), !database.isEmpty else {
        throw SalvorError(.usage, "Give the other user's \"database\": the path of a file of his own.")
      }
      let principal = try options.string("principal") ?? ""
      let token = try options.string("token").map { Token($0) }
      guard token != nil || !principal.isEmpty else {
        throw SalvorError(.usage, "Say who the other user is: a \"token\", a \"principal\", or both.")
      }
      try await open.change(to: principal, database: database, token: token)
      return ["principal": .string(try await open.client.status().state.principal)]
    })
}

// MARK: Synchronizing

/// `salvor_register` of include/salvor.h.
@_cdecl("salvor_register")
public func salvorRegister(_ number: UInt64, _ result: Result_) -> Int32 {
  call(number, nil, result) { open, _ -> Reply in
    let report = await open.client.attemptSync(groups: [])
    guard report.error == nil else { return Reply(report) }
    return Reply(["remoteID": .string(try await open.client.status().state.remoteID.text)])
  }
}

/// `salvor_synchronize` of include/salvor.h.
@_cdecl("salvor_synchronize")
public func salvorSynchronize(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(number, options, knows: ["groups", "withinMilliseconds"], result) { open, options -> Reply in
    let groups = try options.strings("groups")
    guard let budget = try options.number("withinMilliseconds") else {
      return Reply(await open.client.attemptSync(groups: groups))
    }
    let done = try await open.client.synchronize(within: .milliseconds(budget), groups: groups)
    return Reply(done?.report.json ?? ["outcome": "unfinished"])
  }
}

/// `salvor_cancel` of include/salvor.h.
@_cdecl("salvor_cancel")
public func salvorCancel(_ number: UInt64, _ result: Result_) -> Int32 {
  answer(result) {
    try Clients.find(number).cancel()
    return .null
  }
}

/// `salvor_subscribe` of include/salvor.h.
@_cdecl("salvor_subscribe")
public func salvorSubscribe(
  _ number: UInt64, _ callback: Callback?, _ context: UnsafeMutableRawPointer?,
  _ subscription: UnsafeMutablePointer<UInt64>?, _ result: Result_
) -> Int32 {
  answer(result) {
    subscription?.pointee = 0
    guard let callback else { throw SalvorError(.usage, "There is no callback.") }
    let made = try Clients.find(number).teller.add(callback, context)
    subscription?.pointee = made
    return .null
  }
}

/// `salvor_unsubscribe` of include/salvor.h.
@_cdecl("salvor_unsubscribe")
public func salvorUnsubscribe(_ number: UInt64, _ subscription: UInt64, _ result: Result_) -> Int32 {
  answer(result) {
    // With a client its subscriptions have ended.
    if Clients.present(number) == nil, Clients.wasGiven(number) { return .null }
    try Clients.find(number).teller.remove(subscription)
    return .null
  }
}

/// `salvor_watch` of include/salvor.h.
@_cdecl("salvor_watch")
public func salvorWatch(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  answer(result) {
    let options = try Options(options, knows: ["groups"])
    try Clients.find(number).watch(try options.strings("groups"))
    return .null
  }
}

/// `salvor_unwatch` of include/salvor.h.
@_cdecl("salvor_unwatch")
public func salvorUnwatch(_ number: UInt64, _ result: Result_) -> Int32 {
  answer(result) {
    let open = try Clients.find(number)
    wait(for: { await open.unwatch() }, otherwise: ())
    return .null
  }
}

// MARK: Where things stand

/// `salvor_state` of include/salvor.h.
@_cdecl("salvor_state")
public func salvorState(_ number: UInt64, _ result: Result_) -> Int32 {
  answer(result) { try Clients.find(number).client.state.json }
}

/// `salvor_status` of include/salvor.h.
@_cdecl("salvor_status")
public func salvorStatus(_ number: UInt64, _ result: Result_) -> Int32 {
  call(
    number, nil, result,
    json: { open, _ in
      let notes = try await open.client.notes()
      let status = try await open.client.status()
      return status.json(notes)
    })
}

// MARK: The queue and the error archive

/// `salvor_queue` of include/salvor.h.
@_cdecl("salvor_queue")
public func salvorQueue(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  list(number, options, result) { try await $0.queue(after: $1, limit: $2) }
}

/// `salvor_errors` of include/salvor.h.
@_cdecl("salvor_errors")
public func salvorErrors(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  list(number, options, result) { try await $0.errorArchive(after: $1, limit: $2) }
}

private func list(
  _ number: UInt64, _ options: Text, _ result: Result_,
  _ requests: @escaping @Sendable (SalvorClient, RequestID?, Int) async throws -> [QueuedRequest]
) -> Int32 {
  call(
    number, options, knows: ["after", "limit"], result,
    json: { open, options in
      let limit = Int(clamping: try options.number("limit") ?? 1000)
      let found = try await requests(open.client, try options.requestID("after"), limit)
      var next: RequestID?
      if found.count >= limit, let last = found.last?.id, try await !requests(open.client, last, 1).isEmpty {
        next = last
      }
      return ["requests": .array(found.map(\.json)), "next": next.map { .string("\($0)") } ?? .null]
    })
}

/// `salvor_request` of include/salvor.h.
@_cdecl("salvor_request")
public func salvorRequest(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["id"], result,
    json: { open, options in
      let id = try need(try options.requestID("id"))
      let changes = try await open.client.request(id)
      guard !changes.isEmpty else { throw SalvorError(.notFound, "There is no request \(id).") }
      return ["requests": .array(changes.map(\.json)), "next": .null]
    })
}

/// `salvor_withdraw` of include/salvor.h.
@_cdecl("salvor_withdraw")
public func salvorWithdraw(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["id", "plan"], result,
    json: { open, options in
      try await remove(.withdraw(try need(try options.requestID("id"))), open, try options.bool("plan"))
    })
}

/// `salvor_errors_delete` of include/salvor.h.
@_cdecl("salvor_errors_delete")
public func salvorErrorsDelete(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["id", "all", "kept", "plan"], result,
    json: { open, options in
      let plan = try options.bool("plan")
      switch (try options.requestID("id"), try options.bool("all"), try options.bool("kept")) {
      case (let id?, false, false): return try await remove(open.client.deletion(of: id), open, plan)
      case (nil, true, false): return try await remove(.archive(nil), open, plan)
      case (nil, false, true): return try await remove(.allKept, open, plan)
      default: throw SalvorError(.usage, "Give an \"id\", \"all\" or \"kept\": one of the three.")
      }
    })
}

private func remove(_ removal: RequestRemoval, _ open: OpenClient, _ isPlan: Bool) async throws -> JSONValue {
  let report = try await isPlan ? open.client.plan(removal) : open.client.remove(removal)
  return report.json(isPlan: isPlan)
}

/// `salvor_errors_retry` of include/salvor.h.
@_cdecl("salvor_errors_retry")
public func salvorErrorsRetry(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["id", "all"], result,
    json: { open, options in
      let id = try options.requestID("id")
      guard (id == nil) == (try options.bool("all")) else {
        throw SalvorError(.usage, "Give an \"id\" or \"all\": one of the two.")
      }
      let report = try await open.client.retry(id.map { [$0] })
      return ["requests": .array(report.requests.map(\.json))]
    })
}

/// `salvor_errors_reapply` of include/salvor.h.
@_cdecl("salvor_errors_reapply")
public func salvorErrorsReapply(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["id"], result,
    json: { open, options in
      let now = try await open.client.reapply(try need(try options.requestID("id")))
      return ["now": now.map { .string("\($0)") } ?? .null]
    })
}

private func need(_ id: RequestID?) throws -> RequestID {
  guard let id else { throw SalvorError(.usage, "Give the request's \"id\".") }
  return id
}

// MARK: Recovery

/// `salvor_recovery_plan` of include/salvor.h.
@_cdecl("salvor_recovery_plan")
public func salvorRecoveryPlan(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["strategy"], result,
    json: { open, options in
      try await open.client.recoveryPlan(strategy: try options.string("strategy")).json
    })
}

/// `salvor_recover` of include/salvor.h.
@_cdecl("salvor_recover")
public func salvorRecover(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(number, options, knows: ["strategy", "token"], result) { open, options -> Reply in
    Reply(
      await open.client.recover(strategy: try options.string("strategy"), token: try options.string("token")))
  }
}

/// `salvor_recoveries` of include/salvor.h.
@_cdecl("salvor_recoveries")
public func salvorRecoveries(_ number: UInt64, _ options: Text, _ result: Result_) -> Int32 {
  call(
    number, options, knows: ["id", "limit"], result,
    json: { open, options in
      let limit = Int(clamping: try options.number("limit") ?? 100)
      guard let id = try options.string("id") else {
        return ["recoveries": .array(try await open.client.recoveries(limit: limit).map(\.json))]
      }
      guard let found = try await open.client.recovery(id) else {
        throw SalvorError(.notFound, "There is no recovery \(id).")
      }
      let items = try await open.client.recoveryItems(id)
      return .object((found.json.members ?? []) + [.init("items", .array(items.map(\.json)))])
    })
}

// MARK: Migrations

/// `salvor_capture_pause` of include/salvor.h.
@_cdecl("salvor_capture_pause")
public func salvorCapturePause(_ number: UInt64, _ result: Result_) -> Int32 {
  call(number, nil, result, json: { open, _ in ["since": .integer(try await open.client.pauseCapture())] })
}

/// `salvor_capture_resume` of include/salvor.h.
@_cdecl("salvor_capture_resume")
public func salvorCaptureResume(_ number: UInt64, _ result: Result_) -> Int32 {
  call(
    number, nil, result,
    json: { open, _ in
      let done = try await open.client.resumeCapture()
      return [
        "inserts": .integer(done.inserts), "updates": .integer(done.updates), "deletes": .integer(done.deletes),
        "added": .array(done.added.map(JSONValue.string)),
      ]
    })
}
