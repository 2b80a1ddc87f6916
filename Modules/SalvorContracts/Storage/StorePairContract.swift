import SalvorModel
import SalvorStorage

/// The rules that a client's store and a server's keep together (semantics 2 to 8 and 11), driven without a transport.
public enum StorePairContract {
  /// One rule, for a client's stores and a server's.
  public typealias Case = ContractCase<StorePairSubject>

  /// One rule each. A case makes one server and its devices, and closes all of them, also where it fails.
  public static let cases: [Case] = converging + cutting + refusing + scoping + recovering + flags

  static func on(
    _ schema: Schema, clients: Int = 2, parameters: [[String: [Value]]] = [], _ name: String, rule: String,
    _ body: @escaping @Sendable (inout PairBench) async throws -> Void
  ) -> Case {
    Case(name, rule: rule) { subject in
      let principals = (0..<clients).map { index in
        Principal(name: "user \(index)", parameters: parameters.indices.contains(index) ? parameters[index] : [:])
      }
      var bench = try await PairBench(subject, schema, principals: principals)
      do {
        try await body(&bench)
      } catch {
        await bench.close()
        throw error
      }
      await bench.close()
    }
  }

  static let converging: [Case] = [
    on(ContractSchemas.notes(), "nothing on either side: nothing to do", rule: "semantics 11.4") { bench in
      let outcome = try await bench.sync(0)
      try expect(outcome.results == nil, "nothing is uploaded")
      try expectEqual(outcome.items, [], "what is fed")
      try await bench.expectConverged(0)
    },
    on(
      ContractSchemas.notes(), "what one device writes reaches the server and the other, in full",
      rule: "semantics 11.4"
    ) {
      bench in
      try await bench.server.write(.insert("note", ["id": "s1", "title": "server", "body": "x"]))
      try await bench.write(
        0, .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      try await bench.expectConverged(0)
      try await bench.expectConverged(1)
      try await bench.write(
        1, .update("note", ["n1"], ["title": "A"]), .delete("note", ["n2"]), .update("note", ["s1"], ["body": .null]))
      try await bench.expectConverged(1)
      try await bench.expectConverged(0)
      try await bench.server.expectRows("note", [["n1", "A", .null], ["s1", "server", .null]])
    },
    on(ContractSchemas.notes(), "a device is not fed what it sent", rule: "semantics 4") { bench in
      try await bench.sync(0)
      try await bench.write(0, .insert("note", ["id": "n1", "title": "a"]), .update("note", ["n1"], ["title": "b"]))
      let outcome = try await bench.sync(0)
      try expectEqual(outcome.items, [], "what is fed")
      try await bench.write(0, .delete("note", ["n1"]))
      try expectEqual(try await bench.sync(0).items, [], "what is fed after the delete")
      try await bench.expectConverged(0)
    },
    on(
      ContractSchemas.notes(), "what other programs write in the server's tables reaches the devices",
      rule: "semantics 4"
    ) {
      bench in
      try await bench.server.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      try await bench.expectConverged(0)
      try await bench.server.write(
        .update("note", ["n1"], ["title": "A"]), .delete("note", ["n2"]), .insert("note", ["id": "n3", "title": "c"]))
      try await bench.expectConverged(0)
      try await bench.expectConverged(1)
    },
    on(ContractSchemas.notes(), "client-wins: two devices change one row, field by field", rule: "semantics 7") {
      bench in
      try await bench.server.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .update("note", ["n1"], ["title": "zero", "body": "zero"]))
      try await bench.write(1, .update("note", ["n1"], ["title": "one"]))
      for index in [0, 1, 0] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("note", [["n1", "one", "zero"]])
    },
    on(
      ContractSchemas.notes(conflicts: ContractPolicies.serverWins),
      "server-wins: the second device's change is refused, and stays in its row until it is settled",
      rule: "semantics 7, 8"
    ) { bench in
      try await bench.server.write(.insert("note", ["id": "n1", "title": "a"]))
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .update("note", ["n1"], ["title": "zero"]))
      try await bench.write(1, .update("note", ["n1"], ["title": "one"]))
      try await bench.sync(0)
      let outcome = try await bench.sync(1)
      try expectEqual(outcome.results?.refused.map(\.reason), [.conflict], "the refusals")
      try expectEqual(try await bench.clients[1].store.rows(of: "note"), [["n1", "one", .null]], "the row in error")
      try await bench.write(1, .update("note", ["n1"], ["title": "both"]))
      for index in [1, 0] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("note", [["n1", "both", .null]])
      try expectEqual(try await bench.clients[1].store.status().inError, 0, "the requests in error")
    },
    on(
      ContractSchemas.notes(conflicts: ContractPolicies.keepVersions),
      "keep-versions: the server's row stands on every side", rule: "semantics 7"
    ) { bench in
      try await bench.server.write(.insert("note", ["id": "n1", "title": "a"]))
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .update("note", ["n1"], ["title": "zero"]))
      try await bench.write(1, .update("note", ["n1"], ["title": "one"]))
      try await bench.sync(0)
      try expectEqual(try await bench.sync(1).results?.conflicts, 1, "the conflicts")
      for index in [0, 1] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("note", [["n1", "zero", .null]])
    },
    on(ContractSchemas.notes(), "two devices make the same row", rule: "semantics 7") { bench in
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .insert("note", ["id": "n1", "title": "zero", "body": "z"]))
      try await bench.write(1, .insert("note", ["id": "n1", "title": "one"]))
      for index in [0, 1, 0] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("note", [["n1", "one", "z"]])
    },
    on(ContractSchemas.seats, "unique values swapped on a device", rule: "semantics 7") { bench in
      try await bench.server.write(.insert("seat", ["id": 1, "place": 7]), .insert("seat", ["id": 2, "place": 8]))
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(
        0, .update("seat", [1], ["place": .null]), .update("seat", [2], ["place": 7]),
        .update("seat", [1], ["place": 8]))
      for index in [0, 1] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("seat", [[1, 8, 1], [2, 7, 1]])
      try await bench.server.write(
        .update("seat", [1], ["place": .null]), .update("seat", [2], ["place": 8]), .update("seat", [1], ["place": 7]))
      for index in [0, 1] { try await bench.expectConverged(index) }
    },
    on(ContractSchemas.inspections, "cascades on a device and in the server's tables", rule: "semantics 3, 4") {
      bench in
      try await inspections(bench)
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .delete("establishment", ["e1"]))
      for index in [0, 1] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("infraction", [["i2", 1, 1, .null]])
      try await bench.server.write(.delete("establishment", ["e2"]))
      for index in [0, 1] { try await bench.expectConverged(index) }
      try expectEqual(try await bench.clients[1].store.rows(of: "infraction"), [], "the infractions")
    },
    on(ContractSchemas.tree, "rows that reference rows of their own table", rule: "semantics 7") { bench in
      try await bench.write(
        0, .insert("node", ["id": "c"]), .insert("node", ["id": "b", "parent": "c"]),
        .insert("node", ["id": "a", "parent": "b"]), .insert("leaf", ["id": "l", "node": "b", "kept": "c"]),
        .update("node", ["a"], ["parent": "c"]))
      for index in [0, 1] { try await bench.expectConverged(index) }
      try await bench.write(1, .delete("node", ["b"]))
      for index in [1, 0] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("leaf", [["l", .null, "c"]])
    },
    on(ContractSchemas.odd, "composite keys, odd names, and values of every kind", rule: "Value.swift") { bench in
      let table = bench.schema.tables[0]
      for row in bench.server.hardRows {
        let values = zip(table.columns, row).map { NamedValue($0.name, $1) }
        try await bench.clients[0].store.write([.insert(table: table.name, values: values)])
      }
      for index in [0, 1] { try await bench.expectConverged(index) }
      try expectEqual(
        Set(try await bench.clients[1].store.rows(of: table.name)), Set(bench.server.hardRows), "the rows")
      try await bench.write(
        1,
        .update(
          table.name, ["é", -1],
          ["select": bench.server.holds([.text([0xFE])]) ? .text([0xFE]) : "~", "ganz": .integer(Int64.max)]),
        .update(table.name, ["", 0], ["key a": 5]), .delete(table.name, ["k", .integer(Int64.max)]))
      for index in [1, 0] { try await bench.expectConverged(index) }
    },
    on(ContractSchemas.wide, "200 columns", rule: "Limits.swift, columnsMax") { bench in
      let table = bench.schema.tables[0]
      let values = table.columns.enumerated().map { NamedValue($1.name, $0 == 0 ? 1 : .text("v\($0)")) }
      try await bench.clients[0].store.write([.insert(table: "wide", values: values)])
      for index in [0, 1] { try await bench.expectConverged(index) }
      try await bench.write(1, .update("wide", [1], ["column_198": "last", "column_0": .null]))
      for index in [1, 0] { try await bench.expectConverged(index) }
    },
    on(ContractSchemas.groups, "groups one by one, with what they depend on", rule: "semantics 4") { bench in
      try await bench.server.write(.insert("a", ["id": "a1"]), .insert("b", ["id": "b1", "a_id": "a1"]))
      try await bench.sync(0, groups: ["first"])
      try expectEqual(try await bench.clients[0].store.rows(of: "b"), [], "the other group's rows")
      try await bench.write(
        0, .insert("a", ["id": "a2"]), .insert("b", ["id": "b2", "a_id": "a2"]), .insert("a", ["id": "a3"]))
      try await bench.sync(0, groups: ["second"])
      try await bench.server.expectRows("a", [["a1", .null], ["a2", .null]])
      try await bench.expectConverged(0)
      try await bench.expectConverged(1)
    },
    on(
      ContractSchemas.groups, "a parent that goes with one group brings the group of its children along",
      rule: "semantics 1, 2, 4, 11.5"
    ) { bench in
      try await bench.server.write(
        .insert("a", ["id": "a1"]), .insert("a", ["id": "a2"]), .insert("b", ["id": "b1", "a_id": "a1"]),
        .insert("b", ["id": "b2", "a_id": "a1"]))
      try await bench.sync(0)
      try await bench.server.write(
        .delete("b", ["b1"]), .update("b", ["b2"], ["a_id": "a2"]), .delete("a", ["a1"]))
      try await bench.sync(0, groups: ["first"])
      try expectEqual(try await bench.clients[0].store.rows(of: "a"), [["a2", .null]], "the parents")
      try expectEqual(try await bench.clients[0].store.rows(of: "b"), [["b2", "a2", .null]], "the children")
      try await bench.expectConverged(0)
    },
    on(
      ContractSchemas.groupsBelow, "a parent that goes with one group: rows below its children stay",
      rule: "semantics 1, 2, 4, 11.5"
    ) { bench in
      try await bench.server.write(
        .insert("a", ["id": "a1"]), .insert("a", ["id": "a2"]), .insert("b", ["id": "b1", "a_id": "a1"]),
        .insert("b", ["id": "b2", "a_id": "a1"]), .insert("c", ["id": "c1", "b_id": "b1"]),
        .insert("c", ["id": "c2", "b_id": "b2"]))
      try await bench.sync(0)
      try await bench.write(0, .update("c", ["c2"], ["b_id": "b1"]))
      try await bench.server.write(
        .update("b", ["b1"], ["a_id": .null]), .update("b", ["b2"], ["a_id": "a2"]), .delete("a", ["a1"]))
      try await bench.sync(0, groups: ["first"])
      try expectEqual(try await bench.clients[0].store.rows(of: "b"), [["b1", .null], ["b2", "a2"]], "the children")
      try expectEqual(try await bench.clients[0].store.rows(of: "c"), [["c1", "b1"], ["c2", "b1"]], "the rows below")
      for index in [0, 1] { try await bench.expectConverged(index) }
    },
    on(ContractSchemas.notes(), "a change made between upload and download", rule: "semantics 2") { bench in
      try await bench.server.write(.insert("note", ["id": "n1", "title": "a", "body": "x"]))
      try await bench.sync(0)
      try await bench.write(0, .update("note", ["n1"], ["title": "b"]))
      try await bench.sync(0, cut: .afterSettle)
      try await bench.write(0, .update("note", ["n1"], ["body": "mine"]))
      try await bench.server.write(.update("note", ["n1"], ["title": "server"]))
      for index in [0, 1] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("note", [["n1", "server", "mine"]])
    },
  ]

  static let cutting: [Case] = [
    on(
      ContractSchemas.notes(), "an acknowledgement is lost: nothing is applied twice, nothing is lost",
      rule: "semantics 5"
    ) {
      bench in
      try await bench.write(0, .insert("note", ["id": "n1", "title": "a"]))
      try await bench.sync(0, cut: .acknowledgementLost)
      try await bench.server.write(.delete("note", ["n1"]))
      try await bench.write(0, .insert("note", ["id": "n2", "title": "b"]))
      try await bench.restart(0)
      let outcome = try await bench.sync(0)
      try expect(outcome.isResend, "the upload must be offered again")
      try await bench.expectConverged(0)
      try await bench.server.expectRows("note", [["n2", "b", .null]])
    },
    on(ContractSchemas.notes(), "a sync cut at any point goes on at the next", rule: "semantics 4, 5") { bench in
      bench.driver.uploadBytesTarget = 60
      bench.driver.downloadBytesTarget = 60
      let cuts: [SyncCut] = [
        .beforeUpload, .duringUpload, .acknowledgementLost, .afterSettle, .afterPages(1), .afterPages(3), .beforeApply,
      ]
      for (round, cut) in cuts.enumerated() {
        for number in 0..<4 {
          try await bench.server.write(.insert("note", ["id": .text("s\(round)-\(number)"), "title": "server"]))
          try await bench.write(0, .insert("note", ["id": .text("c\(round)-\(number)"), "title": "client"]))
        }
        if round > 0 {
          try await bench.server.write(
            .update("note", [.text("c\(round - 1)-0")], ["title": "changed"]),
            .delete("note", [.text("s\(round - 1)-1")]))
          try await bench.write(
            0, .update("note", [.text("s\(round - 1)-0")], ["body": "changed"]),
            .delete("note", [.text("c\(round - 1)-1")]))
        }
        try await bench.sync(0, cut: cut)
        try await bench.restart(0)
        try await bench.restartServer()
        try await bench.write(0, .update("note", [.text("c\(round)-2")], ["body": "after the cut"]))
        try await bench.server.write(.update("note", [.text("s\(round)-2")], ["body": "after the cut"]))
        try await bench.expectConverged(0)
      }
      try await bench.expectConverged(1)
    },
    on(
      ContractSchemas.notes(), "a staged download that is gone on with in the middle is whole at the end",
      rule: "semantics 4"
    ) {
      bench in
      bench.driver.downloadBytesTarget = 80
      for number in 10..<40 {
        try await bench.server.write(.insert("note", ["id": .text("n\(number)"), "title": "t"]))
      }
      try await bench.sync(0, cut: .afterPages(4))
      try expectEqual(try await bench.clients[0].store.rows(of: "note"), [], "nothing is read before it is applied")
      let staged = try await bench.clients[0].store.status().state.stagedPosition
      try expect(staged != nil, "what was staged must be kept")
      try await bench.server.write(
        .update("note", ["n10"], ["title": "early"]), .delete("note", ["n11"]),
        .update("note", ["n39"], ["title": "late"]),
        .insert("note", ["id": "n00", "title": "before"]))
      let outcome = try await bench.sync(0)
      try expect(outcome.pages.flatMap(\.full).isEmpty, "the download must go on, not start again")
      try await bench.expectConverged(0)
    },
    on(ContractSchemas.notes(), "uploads go through staging in many chunks", rule: "semantics 4") { bench in
      bench.driver.stagesUpload = true
      bench.driver.uploadBytesTarget = 1
      try await bench.write(0, .beginRequest(tag: "t"))
      for number in 0..<12 { try await bench.write(0, .insert("note", ["id": .text("n\(number)"), "title": "t"])) }
      try await bench.write(0, .endRequest, .insert("note", ["id": "last", "title": "t"]))
      let outcome = try await bench.sync(0)
      try expectEqual(outcome.results?.acceptedRequests, 2, "the accepted requests")
      for index in [0, 1] { try await bench.expectConverged(index) }
    },
    on(ContractSchemas.seats, "a resend carries what was sent, though the base changed meanwhile", rule: "semantics 5")
    { bench in
      try await bench.server.write(.insert("seat", ["id": 1, "place": 7]))
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .update("seat", [1], ["seats": 5]))
      try await bench.sync(0, cut: .beforeUpload)
      try await bench.write(0, .update("seat", [1], ["seats": 6, "place": 9]))
      try await bench.write(1, .update("seat", [1], ["seats": 50]))
      try await bench.sync(1)
      for index in [0, 1] { try await bench.expectConverged(index) }
      try await bench.server.expectRows("seat", [[1, 9, 6]])
    },
  ]

  static let refusing: [Case] = [
    on(
      ContractSchemas.inspections, "a write to a server-maintained table is refused and stays in error",
      rule: "semantics 1, 7"
    ) { bench in
      try await inspections(bench)
      try await bench.sync(0)
      try await bench.write(0, .update("severity", [1], ["name": "mine"]), .insert("severity", ["id": 9, "name": "x"]))
      let outcome = try await bench.sync(0)
      try expectEqual(outcome.results?.refused.map(\.reason), [.serverMaintained, .serverMaintained], "the refusals")
      try await bench.server.expectRows("severity", [[1, "low"]])
      try expectEqual(try await bench.clients[0].store.status().inError, 2, "the requests in error")
      try expectEqual(try await bench.clients[0].store.rows(of: "severity"), [[1, "mine"], [9, "x"]], "the rows")
      try await bench.expectConverged(0)
    },
    on(ContractSchemas.seats, "dependents of a refused request are blocked; others go through", rule: "semantics 7, 8")
    { bench in
      try await bench.server.write(.insert("seat", ["id": 1, "place": 7]))
      try await bench.write(
        0, .insert("seat", ["id": 2, "place": 7]), .update("seat", [2], ["seats": 3]),
        .insert("seat", ["id": 3, "place": 9]))
      let outcome = try await bench.sync(0, cut: .afterSettle)
      try expectEqual(outcome.results?.refused.map(\.reason), [.constraint, .blocked], "the refusals")
      try expectEqual(
        try await bench.clients[0].store.rows(of: "seat"), [[2, 7, 3], [3, 9, 1]], "the rows after the refusal")
      try await bench.sync(0)
      try expectEqual(
        try await bench.clients[0].store.rows(of: "seat"), [[1, 7, 1], [3, 9, 1]], "the rows when the base is there")
      try expectEqual(try await bench.clients[0].store.status().displaced, 2, "the requests displaced")
      try await bench.expectConverged(0)
    },
    on(
      ContractSchemas.notes(), "an update of a row that was deleted is refused; both sides have no row",
      rule: "semantics 7"
    ) {
      bench in
      try await bench.server.write(.insert("note", ["id": "n1", "title": "a"]))
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .delete("note", ["n1"]))
      try await bench.write(1, .update("note", ["n1"], ["title": "b"]))
      try await bench.sync(0)
      try expectEqual(try await bench.sync(1).results?.refused.map(\.reason), [.rowDeleted], "the refusals")
      try expectEqual(try await bench.clients[1].store.rows(of: "note"), [], "the rows")
      try expectEqual(try await bench.clients[1].store.status().displaced, 1, "the requests displaced")
      for index in [0, 1] { try await bench.expectConverged(index) }
    },
    on(ContractSchemas.seats, "two devices take one unique value: the base stands", rule: "semantics 2") { bench in
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(0, .insert("seat", ["id": 1, "place": 7]))
      try await bench.write(1, .insert("seat", ["id": 2, "place": 7]))
      for index in [0, 1] { try await bench.expectConverged(index) }
      try expectEqual(try await bench.clients[1].store.rows(of: "seat"), [[1, 7, 1]], "the second device's rows")
      try await bench.write(0, .update("seat", [1], ["place": 8]))
      for index in [0, 1] { try await bench.sync(index) }
      try expectEqual(
        try await bench.clients[1].store.rows(of: "seat"), [[1, 8, 1], [2, 7, 1]], "the rows when the value is free")
    },
  ]

  static let scoping: [Case] = [
    on(
      ContractSchemas.places, clients: 1,
      "a row that was dropped while its change waited stays, where the change brings it into the subscriptions",
      rule: "semantics 11.4"
    ) { bench in
      let wanted = Subscription(target: "site", parameters: ["region": .value("EU")])
      try await bench.clients[0].store.setDeviceSettings(DeviceSettings(subscriptions: [wanted]))
      bench.clients[0].hasChosen = true
      try await bench.expectConverged(0)
      try await bench.write(0, .insert("site", ["id": "s1", "region": "US", "size": 1, "name": "a"]))
      try await bench.sync(0, cut: .acknowledgementLost)
      try await bench.write(0, .update("site", ["s1"], ["region": "EU"]))
      try await bench.sync(0)
      try await bench.expectConverged(0)
      try expectEqual(try await bench.clients[0].store.rows(of: "site"), [["s1", "EU", 1, "a"]], "the device's rows")
    },
    on(
      ContractSchemas.inspections, parameters: [["region": ["EU"]], ["region": ["US"]]],
      "rows follow their scope, and what is outside stays unknown", rule: "semantics 4, 7"
    ) { bench in
      try await inspections(bench)
      for index in 0..<2 { try await bench.expectConverged(index) }
      try await bench.write(0, .update("infraction", ["i1", 1], ["note": "mine"]))
      try await bench.server.write(.update("establishment", ["e1"], ["region": "US"]))
      try await bench.sync(0)
      for table in ["establishment", "inspection", "infraction"] {
        try expectEqual(try await bench.clients[0].store.rows(of: table), [], "what is left of \(table)")
      }
      for index in 0..<2 { try await bench.expectConverged(index) }
      try await bench.server.expectRows("infraction", [["i1", 1, 1, .null], ["i2", 1, 1, .null]])
    },
    on(
      ContractSchemas.inspections(handover: true), parameters: [["region": ["EU"]], ["region": ["US"]]],
      "a row handed over leaves one device and reaches the other", rule: "semantics 7"
    ) { bench in
      try await inspections(bench)
      for index in 0..<2 { try await bench.sync(index) }
      try await bench.write(
        0, .update("establishment", ["e1"], ["region": "US"]),
        .insert("establishment", ["id": "e3", "name": "n", "region": "EU"]))
      for index in [0, 1] { try await bench.expectConverged(index) }
      try expectEqual(
        try await bench.clients[0].store.rows(of: "establishment"), [["e3", "n", "EU"]], "the sender's rows")
      try expectEqual(try await bench.clients[1].store.rows(of: "inspection").count, 2, "the receiver's inspections")
    },
    on(
      ContractSchemas.inspections, parameters: [["region": ["EU"]]],
      "another scope for the principal: its rows come, the old ones leave, unsent changes are not lost",
      rule: "semantics 4"
    ) { bench in
      try await inspections(bench)
      try await bench.expectConverged(0)
      try await bench.write(0, .update("establishment", ["e1"], ["name": "mine"]))
      try await bench.sync(0, cut: .afterSettle)
      try await bench.write(0, .update("inspection", ["i1"], ["date": "late"]))
      bench.clients[0].principal.parameters = ["region": ["US"]]
      try await bench.sync(0)
      try expectEqual(try await bench.clients[0].store.rows(of: "establishment"), [["e2", "e", "US"]], "the rows")
      let status = try await bench.clients[0].store.status()
      try expectEqual(status.inError + status.displaced, 1, "the unsent change is in the archive")
      try await bench.expectConverged(0)
      try await bench.server.expectRows("establishment", [["e1", "mine", "EU"], ["e2", "e", "US"]])
    },
  ]

  /// An establishment in each of two regions, with an inspection and an infraction.
  private static func inspections(_ bench: PairBench) async throws {
    try await bench.server.write(.insert("severity", ["id": 1, "name": "low"]))
    for (number, region) in [(1, "EU"), (2, "US")] {
      try await bench.server.write(
        .insert("establishment", ["id": .text("e\(number)"), "name": "e", "region": .text(region)]),
        .insert("inspection", ["id": .text("i\(number)"), "establishment_id": .text("e\(number)"), "date": "d"]),
        .insert("infraction", ["inspection_id": .text("i\(number)"), "line": 1, "severity_id": 1]))
    }
  }
}
