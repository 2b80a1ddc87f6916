import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorWire

/// What an operator does about offers that wait: `salvor server restores waiting`, `accept`, `reject`, `pause`, `resume`, `rate`.
extension Invocation {
  private func restoreID(_ text: String) throws -> Int64 {
    guard let id = Int64(text) else { throw RestoreRecord.notFound(text) }
    return id
  }

  private func waitingQuery(_ id: String) throws -> WaitingQuery {
    WaitingQuery(
      restore: try restoreID(id), table: options["table"],
      remote: try options["remote"].map { text in
        guard let remote = RemoteID(text) else { throw WaitingQuery.noRemote(text, .usage) }
        return remote
      })
  }

  /// Runs something in the database's store, and closes it.
  private func healing<Answer>(
    _ body: (any HealingServerStore, any ServerStore) async throws -> Answer
  ) async throws -> Answer {
    let store = try await patiently { try await openServerStore() }
    do {
      guard let healing = store as? any HealingServerStore else {
        throw SalvorError(
          .usage, "This server's storage module takes no offers of lost rows. Use the storage \"sqlite\".")
      }
      let answer = try await body(healing, store)
      await store.close()
      return answer
    } catch {
      await store.close()
      throw error
    }
  }

  /// Waits for a server that writes, an upload's transaction for instance, up to a minute.
  private func patiently<Answer>(_ body: () async throws -> Answer) async throws -> Answer {
    let end = ContinuousClock.now + .seconds(60)
    while true {
      do { return try await body() } catch let error as SalvorError
        where [.storageBusy, .overloaded].contains(error.code) && ContinuousClock.now < end
      {}
    }
  }

  func listWaiting(_ id: String) async throws -> Int32 {
    let query = try waitingQuery(id)
    let limit = try wholeNumber("limit", default: 100)
    let after = Int64(try wholeNumber("after", default: 0))
    let answer: JSONValue
    if let elsewhere = try administration() {
      var path = "/admin/v1/restores/\(id)/waiting?after=\(after)&limit=\(limit)"
      if let table = query.table { path += "&table=\(percentEncoded(table))" }
      if let remote = query.remote { path += "&remote=\(remote.text)" }
      answer = try await elsewhere.call("GET", path)
      await elsewhere.close()
    } else {
      let found = try await healing { store, _ in
        try await store.require(query, in: try readConfiguration([.server]).get().schema)
        return try await store.waitingOffers(query, after: after, limit: limit + 1)
      }
      answer = [
        "waiting": .array(found.prefix(limit).map(\.json)),
        "next": found.count > limit ? .integer(found[limit - 1].place) : .null,
      ]
    }
    terminal.json(answer)
    let entries = answer["waiting"]?.array ?? []
    guard !entries.isEmpty else {
      terminal.say("nothing waits")
      return 0
    }
    terminal.table(
      ["place", "table", "key", "operation", "offered", "now", "waits for", "remote"],
      entries.map { entry in
        let parent = entry["parent"]?["table"]?.string.map {
          "\($0) \(entry["parent"]?["key"]?.text ?? "")"
        }
        return [
          "\(entry["place"]?.integer ?? 0)", entry["table"]?.string ?? "", entry["key"]?.text ?? "",
          entry["operation"]?.string ?? "", shown(entry["offered"]), shown(entry["present"]),
          parent ?? entry["reason"]?.string ?? "", entry["remote"]?.string ?? "",
        ].map { visible($0) }
      })
    if let next = answer["next"]?.integer { terminal.say("there are more: --after \(next)") }
    return 0
  }

  private func shown(_ row: JSONValue?) -> String {
    (row?.members ?? []).map { "\($0.key)=\($0.value.string ?? $0.value.text)" }.joined(separator: ", ")
  }

  func decideWaiting(_ id: String, accepts: Bool) async throws -> Int32 {
    let query = try waitingQuery(id)
    let name = accepts ? "accepted" : "rejected"
    let done: JSONValue
    if let elsewhere = try administration() {
      var message: [JSONValue.Member] = []
      if let table = query.table { message.append(.init("table", .string(table))) }
      if let remote = query.remote { message.append(.init("remote", .string(remote.text))) }
      done = try await elsewhere.call(
        "POST", "/admin/v1/restores/\(id)/\(accepts ? "accept" : "reject")", body: .object(message))
      await elsewhere.close()
    } else {
      done = try await healing { healing, store in
        try await healing.require(query, in: try readConfiguration([.server]).get().schema)
        return try await audited(accepts ? "restores.accept" : "restores.reject", id, on: store) {
          accepts
            ? try await healing.accept(query).json : [name: .integer(try await healing.rejectOffers(query))]
        }
      }
    }
    terminal.json(done)
    let count = done[name]?.integer ?? 0
    terminal.say("\(name) \(count == 1 ? "1 offer" : "\(grouped(count)) offers") of restore \(id)")
    if let conflicts = done["conflicts"]?.integer, conflicts > 0 {
      terminal.say(
        "\(conflicts == 1 ? "1 of them is a conflict version" : "\(grouped(conflicts)) of them are conflict versions") now: another row needs its row, or somebody has written it since (salvor conflicts)"
      )
    }
    if let refused = done["refused"]?.integer, refused > 0 {
      terminal.say(
        "\(refused == 1 ? "1 of them was refused" : "\(grouped(refused)) of them were refused"), as any change of its device would be now (out of its scope, a constraint): the device has it in its archive"
      )
    }
    return 0
  }

  func setHealPace(_ change: JSONValue) async throws -> Int32 {
    let done: JSONValue
    if let elsewhere = try administration() {
      done = try await elsewhere.call("PUT", "/admin/v1/restores/pace", body: change)
      await elsewhere.close()
    } else {
      done = try await healing { healing, store in
        var pace = try await healing.healPace()
        if let paused = change["paused"]?.bool { pace.isPaused = paused }
        if let rate = change["rowsPerSecond"] { pace.rowsPerSecond = rate.integer }
        try await audited("restores.pace", "healing", on: store) {
          try await patiently { try await healing.setHealPace(pace) }
        }
        return pace.json
      }
    }
    terminal.json(done)
    let rate = done["rowsPerSecond"]?.integer.map { ", \(grouped($0)) rows a second at most" } ?? ""
    terminal.say(done["paused"]?.bool == true ? "healing is paused: offers wait\(rate)" : "healing is on\(rate)")
    return 0
  }
}
