import SalvorModel
import SalvorStorage
import SalvorWire

/// Rows that no subscription covers any more go, but not from under changes that wait
/// (docs/decisions/0009-subscriptions.md).
extension ClientStoreContract {
  static let dropping: [Case] = [
    on(ContractSchemas.inspections, "dropped rows without changes go at once", rule: "semantics 4") { bench in
      try await two(&bench)
      let report = try await bench.download(departed: first)
      try expectEqual([report.upserts, report.deletes], [0, 3], "the report")
      try await bench.expectRows("establishment", [["e2", "e", "US"]])
      try await bench.expectRows("infraction", [["i2", 1, .null, .null]])
      try await bench.download(departed: first)
      try await bench.expectRows("inspection", [["i2", "e2", "d", .null]])
    },
    on(
      ContractSchemas.inspections, "a dropped row with a change that waits stays until it is sent", rule: "semantics 4"
    ) {
      bench in
      try await two(&bench)
      try await bench.write(.update("establishment", ["e1"], ["name": "mine"]))
      let report = try await bench.download(departed: first)
      try expectEqual(report.displaced, [], "the requests displaced")
      try await bench.expectRows("establishment", [["e1", "mine", "EU"], ["e2", "e", "US"]])
      try await bench.expectRows("inspection", [["i2", "e2", "d", .null]])
      try await bench.restart()
      try expectEqual(try await bench.store.status().queued, 1, "the queue")
      try expectChanges(try await bench.commitUpload(), [#"update establishment ["name"] [e1, e, mine]"#])
      try await bench.expectRows("establishment", [["e1", "mine", "EU"], ["e2", "e", "US"]])
      let after = try await bench.download()
      try expectEqual(after.deletes, 1, "the rows that go now")
      try await bench.expectRows("establishment", [["e2", "e", "US"]])
    },
    on(ContractSchemas.inspections, "it goes without a download, too, before the next session", rule: "semantics 4") {
      bench in
      try await two(&bench)
      try await bench.write(.update("establishment", ["e1"], ["name": "mine"]))
      try await bench.download(departed: first)
      try await bench.upload()
      try await bench.upload()
      try await bench.expectRows("establishment", [["e2", "e", "US"]])
      try expectEqual(try await bench.store.status().queued, 0, "the queue")
    },
    on(
      ContractSchemas.inspections, "dropped parents stay as long as a child has a change that waits",
      rule: "semantics 4"
    ) { bench in
      try await two(&bench)
      try await bench.write(
        .update("infraction", ["i1", 1], ["note": "mine"]),
        .insert("infraction", ["inspection_id": "i1", "line": 2]))
      let report = try await bench.download(departed: first)
      try expectEqual(report.displaced, [], "the requests displaced")
      try await bench.expectRows("establishment", [["e1", "e", "EU"], ["e2", "e", "US"]])
      try await bench.expectRows(
        "infraction", [["i1", 1, .null, "mine"], ["i1", 2, .null, .null], ["i2", 1, .null, .null]])
      try expectEqual(try await bench.commitUpload().count, 2, "the changes sent")
      try await bench.download(departed: [("infraction", .dropped, ["i1", 2])])
      try await bench.expectRows("establishment", [["e2", "e", "US"]])
      try await bench.expectRows("inspection", [["i2", "e2", "d", .null]])
      try await bench.expectRows("infraction", [["i2", 1, .null, .null]])
    },
    on(
      ContractSchemas.inspections, "a row made outside of the subscriptions is sent before it goes", rule: "semantics 4"
    ) {
      bench in
      try await two(&bench)
      try await bench.write(.insert("establishment", ["id": "e9", "name": "mine", "region": "CA"]))
      try await bench.download(departed: first)
      try await bench.expectRows("establishment", [["e2", "e", "US"], ["e9", "mine", "CA"]])
      try expectEqual(try await bench.commitUpload().map(\.table), ["establishment"], "what is sent")
      try await bench.write(.update("establishment", ["e9"], ["name": "again"]))
      try await bench.download(departed: [("establishment", .dropped, ["e9"])])
      try await bench.expectRows("establishment", [["e2", "e", "US"], ["e9", "again", "CA"]])
      try await bench.commitUpload()
      try await bench.download()
      try await bench.expectRows("establishment", [["e2", "e", "US"]])
    },
    on(
      ContractSchemas.inspections,
      "a row made outside of the subscriptions before the first download stays until its changes are sent",
      rule: "semantics 4"
    ) {
      bench in
      let chosen = Subscription(target: "establishment", parameters: ["region": .value("EU")])
      try await bench.store.setDeviceSettings(DeviceSettings(subscriptions: [chosen]))
      try await bench.write(
        .insert("establishment", ["id": "e9", "name": "mine", "region": "CA"]),
        .insert("inspection", ["id": "i9", "establishment_id": "e9", "date": "d"]),
        .insert("establishment", ["id": "e8", "name": "mine", "region": "CA"]))
      try expectEqual(try await bench.commitUpload().count, 3, "what is sent")
      try await bench.write(.update("inspection", ["i9"], ["date": "later"]))
      let report = try await bench.download(
        full: ["establishment", "inspection", "infraction", "severity"], rows: [("establishment", ["e1", "e", "EU"])])
      try expectEqual(report.displaced, [], "the requests displaced")
      try expectEqual(report.deletes, 1, "the rows that go at once")
      try await bench.expectRows("establishment", [["e1", "e", "EU"], ["e9", "mine", "CA"]])
      try await bench.expectRows("inspection", [["i9", "e9", "later", .null]])
      try await bench.restart()
      try expectChanges(
        try await bench.commitUpload(), [#"update inspection ["date"] [i9, d, later]"#])
      let after = try await bench.download(departed: [("inspection", .dropped, ["i9"])])
      try expectEqual(after.deletes, 2, "the rows that go now")
      try await bench.expectRows("establishment", [["e1", "e", "EU"]])
      try await bench.expectRows("inspection", [])
    },
    on(
      ContractSchemas.inspections, "a change that was refused keeps its dropped row until it is dealt with",
      rule: "semantics 8"
    ) { bench in
      try await two(&bench)
      try await bench.write(.update("establishment", ["e1"], ["name": "mine"]))
      try await bench.download(departed: first)
      try await bench.commitUpload { _ in .validator }
      try await bench.download()
      try await bench.expectRows("establishment", [["e1", "mine", "EU"], ["e2", "e", "US"]])
      _ = try await bench.store.remove(.archive(nil))
      try await bench.download()
      try await bench.expectRows("establishment", [["e2", "e", "US"]])
    },
    on(
      ContractSchemas.inspections, "a dropped row that stays is fed no more: its changes are made on what it was",
      rule: "semantics 7"
    ) { bench in
      try await two(&bench)
      try await bench.write(.update("establishment", ["e1"], ["name": "mine"]))
      try await bench.download(departed: first)
      try await bench.commitUpload { _ in .validator }
      try await bench.download()
      try await bench.write(
        .update("establishment", ["e1"], ["region": "CA"]), .update("establishment", ["e2"], ["region": "CA"]))
      let made = try await bench.begin().changes
      let stood = try expectSome(made.first { $0.values.first == "e1" }?.made, "the change of the dropped row")
      let cursor = try expectSome(made.first { $0.values.first == "e2" }?.made, "the change of the other")
      try expectEqual(stood, 1, "the commit that the dropped row stood at")
      try expect(cursor > stood, "the other row is as of the group's cursor, \(cursor)")
    },
    on(
      ContractSchemas.inspections, "a row that is covered again stays, one that is deleted meanwhile goes",
      rule: "semantics 2"
    ) { bench in
      try await two(&bench)
      try await bench.write(
        .update("establishment", ["e1"], ["name": "mine"]), .update("establishment", ["e2"], ["name": "mine"]))
      try await bench.download(departed: first + second)
      try await bench.download(
        rows: [("establishment", ["e1", "theirs", "EU"])], departed: [("establishment", .deleted, ["e2"])])
      try await bench.expectRows("establishment", [["e1", "mine", "EU"]])
      try expectEqual(try await bench.store.status().displaced, 1, "the requests displaced")
      try await bench.commitUpload()
      try await bench.download()
      try await bench.expectRows("establishment", [["e1", "mine", "EU"]])
    },
    on(ContractSchemas.inspections, "a deleted row that is dropped stays deleted", rule: "semantics 2") { bench in
      try await two(&bench)
      try await bench.write(.delete("infraction", ["i1", 1]))
      try await bench.download(departed: first)
      try await bench.expectRows("infraction", [["i2", 1, .null, .null]])
      try expectChanges(try await bench.commitUpload(), ["delete infraction [i1, 1]"])
      try await bench.download()
      try await bench.expectRows("establishment", [["e2", "e", "US"]])
      try await bench.expectRows("inspection", [["i2", "e2", "d", .null]])
    },
    recovering(
      ContractSchemas.inspections, "dropped rows that stay are not compared, and an answer about one leaves it",
      rule: "docs/architecture/comparison.md"
    ) { bench in
      try await two(&bench)
      try await bench.write(.update("establishment", ["e1"], ["name": "mine"]))
      try await bench.download(departed: first)
      try await bench.expectDigest("establishment", [["e2", "e", "US"]])
      let all = RangePage(
        columns: ["id", "name", "region"], ranges: [RangeDigest(last: nil, count: -1, digest: "")], isLast: true)
      let asked = try await bench.recovering.differences(from: all, after: nil, of: "establishment")
      try expectEqual(asked.flatMap(\.keys), [["e2"]], "the keys that are asked for")
      let answer = try bench.payload(departed: [("establishment", .dropped, ["e1"])], version: nil)
      try await bench.store.stage(StagedChunk(download: "compared", bytes: answer, position: "p"))
      _ = try await bench.apply()
      try await bench.expectRows("establishment", [["e1", "mine", "EU"], ["e2", "e", "US"]])
      try await bench.commitUpload()
      try await bench.download()
      try await bench.expectDigest("establishment", [["e2", "e", "US"]])
    },
    on(
      ContractSchemas.notes(), "what was subscribed to goes along with a renamed table", rule: "decision 9, renames"
    ) { bench in
      func settings(_ name: String) -> DeviceSettings {
        DeviceSettings(
          subscriptions: [
            Subscription(target: name, parameters: ["size": .value(1)]), Subscription(target: name),
            Subscription(target: "default"),
          ], subscribed: ["gone"])
      }
      try await bench.store.setDeviceSettings(settings("note"))
      var group = GroupState(
        name: "default", cursor: bench.nextCommit(), scopeDigest: "x",
        subscriptions: ResolvedSubscriptions(["note": [["size": 1], [:]], "default": [[:]]]))
      _ = try await bench.store.apply(DownloadEnd(groups: [group]))
      try await bench.store.adopt(SyncConfig(ContractSchemas.memos))
      bench.adopt(ContractSchemas.memos)
      try await bench.restart()
      try expectEqual(try await bench.store.deviceSettings(), settings("memo"), "what is subscribed to")
      group.subscriptions = ResolvedSubscriptions(["memo": [["size": 1], [:]], "default": [[:]]])
      try expectEqual(try await bench.store.status().state.groups, [group], "what the cursor was made with")
    },
    on(
      ContractSchemas.notes(), "a group remembers the subscriptions that its cursor was made with", rule: "semantics 1"
    ) {
      bench in
      var group = GroupState(
        name: "default", cursor: bench.nextCommit(), scopeDigest: "x",
        subscriptions: ResolvedSubscriptions(["note": [["size": 1, "raw": .blob([0, 255])], [:]], "default": []]))
      _ = try await bench.store.apply(DownloadEnd(groups: [group]))
      try await bench.restart()
      try expectEqual(try await bench.store.status().state.groups, [group], "the group")
      group.subscriptions = ResolvedSubscriptions()
      group.scopeDigest = "y"
      _ = try await bench.store.apply(DownloadEnd(groups: [group]))
      try expectEqual(try await bench.store.status().state.groups, [group], "the group without subscriptions")
    },
  ]

  private static let first: [(String, Departure, Key)] = [
    ("establishment", .dropped, ["e1"]), ("inspection", .dropped, ["i1"]), ("infraction", .dropped, ["i1", 1]),
  ]
  private static let second: [(String, Departure, Key)] = [
    ("establishment", .dropped, ["e2"]), ("inspection", .dropped, ["i2"]), ("infraction", .dropped, ["i2", 1]),
  ]

  /// Two establishments with an inspection and an infraction each.
  private static func two(_ bench: inout ClientBench) async throws {
    try await bench.download(
      full: ["establishment", "inspection", "infraction", "severity"],
      rows: [
        ("establishment", ["e1", "e", "EU"]), ("establishment", ["e2", "e", "US"]),
        ("inspection", ["i1", "e1", "d", .null]), ("inspection", ["i2", "e2", "d", .null]),
        ("infraction", ["i1", 1, .null, .null]), ("infraction", ["i2", 1, .null, .null]),
      ])
  }
}
