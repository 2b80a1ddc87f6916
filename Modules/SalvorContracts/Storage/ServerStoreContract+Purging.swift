import SalvorModel
import SalvorStorage

extension ServerStoreContract {
  private static func purging(_ bench: ServerBench) throws -> any PurgingServerStore {
    try expectSome(bench.store as? any PurgingServerStore, "a store that purges")
  }

  static let purges: [Case] = [
    on(
      ContractSchemas.notes(), "a purged row is gone, its devices are told, and its key is refused as purged",
      rule: "semantics 10, purge is stronger"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      var device = try await bench.device()
      let store = try purging(bench)
      let report = try await store.purge([["n1"], ["n9"]], of: "note")
      try expectEqual(report, PurgeReport(rows: 1, conflicts: 0, keys: 2), "what was purged")
      try await bench.expectRows("note", [["n2", "b", .null]])
      try await device.download()
      try device.expectReplica("note", [["n2", "b", .null]])
      let results = try await device.upload(
        .update("note", ["n1"], [("title", "a", "A")]), .insert("note", ["id": "n9", "title": "x", "body": .null]),
        .insert("note", ["id": "n3", "title": "c", "body": .null]))
      try expectRefused(results, [1: .purged, 2: .purged], accepted: 1)
      try await bench.expectRows("note", [["n2", "b", .null], ["n3", "c", .null]])
      // A delete of what is gone asks for nothing that is not so.
      try expectAccepted(try await device.upload(.delete("note", ["n1"])), 1)
      let again = try await store.purge([["n1"]], of: "note")
      try expectEqual(again, PurgeReport(), "the same purge once more")
    },
    on(ContractSchemas.notes(), "a purge outlives a restart; a released key may be used again", rule: "semantics 10") {
      bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      _ = try await purging(bench).purge([["n1"]], of: "note")
      try await bench.restart()
      var device = try await bench.device()
      let refused = try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null]))
      try expectRefused(refused, [1: .purged], accepted: 0)
      let released = try await purging(bench).releasePurged([["n1"], ["n2"]], of: "note")
      try expectEqual(released, 1, "the keys that were purged")
      try await bench.restart()
      device = try await bench.device()
      try expectAccepted(
        try await device.upload(.insert("note", ["id": "n1", "title": "again", "body": .null])), 1)
      try await bench.expectRows("note", [["n1", "again", .null]])
    },
    on(ContractSchemas.notes(), "a restore does not bring a purged row back", rule: "semantics 10") { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      var device = try await bench.device()
      try await bench.copy(to: 0)
      _ = try await purging(bench).purge([["n1"]], of: "note")
      try await bench.putBack(from: 0)
      try await bench.expectRows("note", [["n2", "b", .null]])
      device = try await bench.device()
      try device.expectReplica("note", [["n2", "b", .null]])
      let results = try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null]))
      try expectRefused(results, [1: .purged], accepted: 0)
      // And once more, from the same copy, with an act that followed.
      _ = try await purging(bench).releasePurged([["n1"]], of: "note")
      _ = try await purging(bench).purge([["n2"]], of: "note")
      try await bench.putBack(from: 0)
      // What the copy has under the released key was erased, too, and the key is free.
      try await bench.expectRows("note", [])
      device = try await bench.device()
      try expectAccepted(try await device.upload(.insert("note", ["id": "n1", "title": "new", "body": .null])), 1)
      try await bench.expectRows("note", [["n1", "new", .null]])
    },
    on(
      ContractSchemas.inspections, "rows that come back with a purged row and need it stand without it, or go",
      rule: "semantics 10"
    ) {
      bench in
      try await bench.write(
        .insert("severity", ["id": 1, "name": "low"]), .insert("severity", ["id": 2, "name": "high"]),
        .insert("establishment", ["id": "e1", "name": "e", "region": "EU"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]),
        .insert("infraction", ["inspection_id": "i1", "line": 1, "severity_id": 1]),
        .insert("infraction", ["inspection_id": "i1", "line": 2, "severity_id": 2]))
      var device = try await bench.device(parameters: ["region": ["EU"]])
      try await bench.copy(to: 0)
      try await bench.write(.delete("infraction", ["i1", 1]))
      _ = try await purging(bench).purge([[1]], of: "severity")
      try await bench.putBack(from: 0)
      try await bench.expectRows("severity", [[2, "high"]])
      try await bench.expectRows("infraction", [["i1", 1, .null, .null], ["i1", 2, 2, .null]])
      device = try await bench.device(parameters: ["region": ["EU"]])
      try device.expectReplica("infraction", [["i1", 1, .null, .null], ["i1", 2, 2, .null]])
    },
    on(
      ContractSchemas.marked, "rows below a purged row that come back with it go where they cannot stand",
      rule: "semantics 10"
    ) {
      bench in
      try await bench.write(
        .insert("form", ["id": "f1"]), .insert("form", ["id": "f2"]),
        .insert("section", ["id": "s1", "form_id": "f1"]), .insert("section", ["id": "s2", "form_id": "f2"]))
      try await bench.copy(to: 0)
      try await bench.write(.delete("section", ["s1"]))
      _ = try await purging(bench).purge([["f1"]], of: "form")
      try await bench.putBack(from: 0)
      let forms = try await bench.store.rows(of: "form").map(\.[0]),
        sections = try await bench.store.rows(of: "section")
      try expectEqual(forms, ["f2"], "the forms")
      try expectEqual(sections.map(\.[0]), ["s2"], "the sections")
    },
    on(ContractSchemas.notes(), "an unknown table cannot be purged", rule: "semantics 11.7") { bench in
      try await expectError(.notFound, "a table that is not there") {
        _ = try await purging(bench).purge([["n1"]], of: "nothing")
      }
    },
    on(
      ContractSchemas.inspections,
      "a row that others need is not purged before them; what depends on a purged row is blocked",
      rule: "semantics 7, 10"
    ) { bench in
      try await bench.write(
        .insert("severity", ["id": 1, "name": "low"]),
        .insert("establishment", ["id": "e1", "name": "e", "region": "EU"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]),
        .insert("infraction", ["inspection_id": "i1", "line": 1, "severity_id": 1]))
      let store = try purging(bench)
      try await expectError(.cannotStand, "a row that another table needs") {
        _ = try await store.purge([[1]], of: "severity")
      }
      try await bench.expectRows("severity", [[1, "low"]])
      // What goes with a row in the database's own words goes with it here.
      let report = try await store.purge([["e1"]], of: "establishment")
      try expectEqual(report, PurgeReport(rows: 3, along: 2, keys: 3), "what was purged")
      try await bench.expectRows("establishment", [])
      try await bench.expectRows("infraction", [])
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .insert("establishment", ["id": "e1", "name": "e", "region": "EU"]),
        .insert("inspection", ["id": "i2", "establishment_id": "e1", "date": "d", "inspector": .null]))
      try expectRefused(results, [1: .purged, 2: .blocked], accepted: 0)
    },

    on(
      ContractSchemas.inspections, "what goes with a purged row by a foreign key is purged as well",
      rule: "semantics 10"
    ) { bench in
      try await bench.write(
        .insert("establishment", ["id": "e1", "name": "e", "region": "EU"]),
        .insert("establishment", ["id": "e2", "name": "e", "region": "EU"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e2", "date": "d"]),
        .insert("infraction", ["inspection_id": "i1", "line": 1, "note": "personal"]))
      try await bench.copy(to: 0)
      // In the copy they hang on another row.
      try await bench.write(.update("inspection", ["i1"], ["establishment_id": "e1"]))
      let report = try await purging(bench).purge([["e1"]], of: "establishment")
      try expectEqual(report, PurgeReport(rows: 3, along: 2, keys: 3), "what was purged")
      try await bench.putBack(from: 0)
      try await bench.expectRows("establishment", [["e2", "e", "EU"]])
      try await bench.expectRows("inspection", [])
      try await bench.expectRows("infraction", [])
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .insert("inspection", ["id": "i1", "establishment_id": "e2", "date": "d", "inspector": .null]))
      try expectRefused(results, [1: .purged], accepted: 0)
      let released = try await purging(bench).releasePurged([["i1"]], of: "inspection")
      try expectEqual(released, 1, "the keys that may be used again")
    },
    on(
      ContractSchemas.inspections, "a purged row below a purged one is refused as purged, too: its device erases it",
      rule: "semantics 10"
    ) { bench in
      let store = try purging(bench)
      _ = try await store.purge([["i1"], ["i2"]], of: "inspection")
      _ = try await store.purge([["e1"]], of: "establishment")
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .insert("establishment", ["id": "e1", "name": "e", "region": "EU"]),
        .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d", "inspector": .null]),
        .insert("inspection", ["id": "i2", "establishment_id": "e1", "date": "d", "inspector": .null]),
        .insert("inspection", ["id": "i3", "establishment_id": "e1", "date": "d", "inspector": .null]))
      try expectRefused(results, [1: .purged, 2: .purged, 3: .purged, 4: .blocked], accepted: 0)
    },
  ]
}
