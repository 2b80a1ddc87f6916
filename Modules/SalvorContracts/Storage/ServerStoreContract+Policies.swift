import SalvorModel
import SalvorStorage

/// How a server's store asks a conflict policy, and does what it says (ConflictPolicy.swift).
extension ServerStoreContract {
  private static let asked = ContractSchemas.notes(conflicts: ContractPolicies.asked)

  static let policies: [Case] = [
    on(asked, "a policy is asked about conflicts, and told everything", rule: "ConflictPolicy.swift, Conflict") {
      bench in
      var device = try await stale(bench)
      let made = device.groups[0].cursor?.number ?? 0
      try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "tell")])), 1, conflicts: 1)
      let told = "update note [n1] title a>tell on \(made); id n1, title server, body server; anna"
      try await bench.expectRows("note", [["n1", "told", .text(told)]])
    },
    on(asked, "a policy is asked about nothing but conflicts", rule: "ConflictPolicy.swift, ConflictPolicy") { bench in
      var device = try await stale(bench)
      // Not newer; newer, but not the same column; newer and already so; a key that nobody has; a row that is gone.
      try await bench.write(.insert("note", ["id": "n2", "title": "a"]), .insert("note", ["id": "n3", "title": "a"]))
      try await device.download()
      try await bench.write(.update("note", ["n3"], ["body": "server"]), .delete("note", ["n1"]))
      let results = try await device.upload(
        .update("note", ["n2"], [("title", "a", "throws")]), .update("note", ["n3"], [("title", "a", "throws")]),
        .update("note", ["n3"], [("body", "x", "server")]),
        .insert("note", ["id": "n4", "title": "throws", "body": .null]),
        .update("note", ["n1"], [("title", "server", "throws")]))
      try expectRefused(results, [5: .rowDeleted], accepted: 4)
      try await bench.expectRows(
        "note", [["n2", "throws", .null], ["n3", "throws", "server"], ["n4", "throws", .null]])
    },
    on(asked, "client, server and both are done as asked, request by request", rule: "semantics 7") { bench in
      for key in ["n2", "n3"] { try await bench.write(.insert("note", ["id": .text(key), "title": "a"])) }
      var device = try await stale(bench)
      for key in ["n2", "n3"] { try await bench.write(.update("note", [.text(key)], ["title": "theirs"])) }
      let results = try await device.upload(
        .update("note", ["n1"], [("title", "a", "client")]), .update("note", ["n2"], [("title", "a", "server")]),
        .update("note", ["n3"], [("title", "a", "both")]))
      try expectRefused(results, [2: .conflict], accepted: 2)
      try expectEqual(results.conflicts, 2, "the conflicts")
      try await bench.expectRows(
        "note", [["n1", "client", "server"], ["n2", "theirs", .null], ["n3", "theirs", .null]])
      let kept = try await bench.store.conflicts(after: 0, limit: 10, state: .open)
      try expectEqual(kept.map(\.key), [["n3"]], "the rows of the conflict versions")
      let settled = try await bench.store.conflicts(after: 0, limit: 10, state: .settled)
      try expectEqual(settled.map(\.key), [["n1"]], "the rows of the settled conflicts")
    },
    on(asked, "merged values are written, and reach the sender and the others", rule: "ConflictPolicy.swift, merged") {
      bench in
      var device = try await stale(bench)
      var other = try await bench.device("bert")
      let results = try await device.upload(
        .update("note", ["n1"], [("title", "a", "merged"), ("body", "x", "client")]))
      try expectAccepted(results, 1, conflicts: 1)
      try expect(results.commit != nil, "a merged row is a change")
      try await bench.expectRows("note", [["n1", "merged", "server"]])
      try await device.download()
      try device.expectReplica("note", [["n1", "merged", "server"]])
      try await other.download()
      try other.expectReplica("note", [["n1", "merged", "server"]])
    },
    on(asked, "merging nothing leaves the server's row, and accepts the request", rule: "ConflictPolicy.swift, merged")
    {
      bench in
      var device = try await stale(bench)
      try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "nothing")])), 1, conflicts: 1)
      try await bench.expectRows("note", [["n1", "server", "server"]])
      try await device.download()
      try device.expectReplica("note", [["n1", "server", "server"]])
    },
    on(asked, "a delete and an insert of a held key are asked about, too", rule: "semantics 7") { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "a"]))
      var device = try await bench.device()
      let made = device.groups[0].cursor?.number ?? 0
      try await bench.write(
        .update("note", ["n1"], ["title": "stays"]), .update("note", ["n2"], ["title": "goes"]),
        .insert("note", ["id": "n3", "title": "server"]))
      let results = try await device.upload(
        .delete("note", ["n1"]), .delete("note", ["n2"]),
        .insert("note", ["id": "n3", "title": "tell", "body": .null]))
      try expectAccepted(results, 3, conflicts: 3)
      let insert =
        "insert note [n3] id ->n3, title ->tell on \(made); id n3, title server, body null; anna"
      let delete = "delete note [n1]  on \(made); id n1, title stays, body null; anna"
      let rows: [Row] = [["n1", "stays", .text(delete)], ["n3", "told", .text(insert)]]
      try await bench.expectRows("note", rows)
      try await device.download()
      try device.expectReplica("note", rows)
    },
    on(asked, "a policy that fails refuses the request by name, and nothing else", rule: "ConflictPolicy.swift, settle")
    { bench in
      let wrong = ["throws", "other column", "key", "other type", "no value", "twice"]
      try await bench.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      var device = try await bench.device()
      try await bench.write(.update("note", ["n1"], ["title": "server"]))
      for title in wrong {
        let first = device.counter + 1
        let results = try await device.upload(
          .update("note", ["n1"], [("title", "a", .text(title))]), .update("note", ["n1"], [("body", "x", "y")]),
          .insert("note", ["id": .text(title), "title": "b", "body": .null]))
        try expectRefused(results, [first: .conflictPolicy, first + 1: .blocked], accepted: 1)
        let message = results.refused[0].message
        try expect(message.contains(ContractPolicies.asked), "\(title): the refusal must name the policy: \(message)")
        try expect(message.contains("note"), "\(title): the refusal must name the table: \(message)")
      }
      let rows = try await bench.store.rows(of: "note")
      let wanted: [Row] = [["n1", "server", "x"]] + wrong.map { [.text($0), "b", .null] }
      try expectEqual(Set(rows), Set(wanted), "the rows")
    },
    on(
      ContractSchemas.notes(conflicts: ContractPolicies.asked, unique: [["title"]]),
      "merged values that break a constraint refuse the request as constraint", rule: "semantics 7"
    ) { bench in
      var device = try await stale(bench)
      try await bench.write(.insert("note", ["id": "n2", "title": "taken"]))
      let results = try await device.upload(.update("note", ["n1"], [("title", "a", "taken")]))
      try expectRefused(results, [1: .constraint], accepted: 0)
      try await bench.expectRows("note", [["n1", "server", "server"], ["n2", "taken", .null]])
    },
    on(asked, "a group stands or falls with the answers to all of its rows", rule: "semantics 1, 7") { bench in
      try await bench.write(.insert("note", ["id": "n2", "title": "a"]))
      var device = try await stale(bench)
      try await bench.write(.update("note", ["n2"], ["title": "server"]))
      let refused = try await device.upload(
        .group([
          .update("note", ["n1"], [("title", "a", "merged")]), .update("note", ["n2"], [("title", "a", "throws")]),
        ]))
      try expectRefused(refused, [1: .conflictPolicy], accepted: 0)
      let kept = try await device.upload(
        .group([
          .update("note", ["n1"], [("title", "a", "merged")]), .update("note", ["n2"], [("title", "a", "both")]),
        ]))
      try expectAccepted(kept, 1, conflicts: 1)
      try await bench.expectRows("note", [["n1", "server", "server"], ["n2", "server", .null]])
      let versions = try await bench.store.conflicts(after: 0, limit: 10, state: .open)
      try expectEqual(versions.map(\.key), [["n1"], ["n2"]], "the rows of the conflict versions")
    },
    on(
      ContractSchemas.notes(), "a policy that was not brought is named when the database is opened", rule: "ServerSetup"
    ) { bench in
      let schema = ContractSchemas.notes(conflicts: "nobody-has-it")
      let store = try await bench.database()
      await bench.close()
      let error = try await expectError(.configuration, "opening without the policy") {
        _ = try await store.open(ServerSetup(schema: schema))
      }
      await store.close()
      try expect(error.message.contains("nobody-has-it"), "the policy must be named")
      try expect(error.message.contains("note"), "the table must be named")
      try await bench.restart()
    },
  ]
}
