import SalvorModel
import SalvorStorage

/// Parts of rows: the columns that the server has changed (decision 103).
extension ClientStoreContract {
  static let parts: [Case] = [
    on(
      ContractSchemas.notes(), "a part of a row leaves its other columns as they are",
      rule: "ClientStore.swift, ClientSession"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"]), ("note", ["n2", "b", "y"])])
      let report = try await bench.download(parts: [
        Part("note", ("id", "n1"), ("title", "A")), Part("note", ("id", "n2"), ("body", .null)),
        Part("note", ("id", "n1"), ("body", "X")),
      ])
      try await bench.expectRows("note", [["n1", "A", "X"], ["n2", "b", .null]])
      // A row that comes twice may count once.
      try expect((2...3).contains(report.upserts) && report.deletes == 0, "the report says \(report)")
      try expectEqual(try await bench.store.status().queued, 0, "the queue")
    },
    on(ContractSchemas.notes(), "an unsent change stays over a part of its row", rule: "semantics 2") { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.update("note", ["n1"], ["title": "mine"]))
      try await bench.download(parts: [Part("note", ("id", "n1"), ("body", "theirs"))])
      try await bench.expectRows("note", [["n1", "mine", "theirs"]])
      try await bench.download(parts: [
        Part("note", ("id", "n1"), ("title", "theirs")), Part("note", ("id", "n1"), ("body", "newer")),
      ])
      try await bench.expectRows("note", [["n1", "mine", "newer"]])
      let changes = try await bench.upload { _ in .conflict }
      try expectEqual(changes.map(\.columns), [["title"]], "the columns sent")
      _ = try await bench.store.remove(.archive(nil))
      try await bench.expectRows("note", [["n1", "theirs", "newer"]])
    },
    on(ContractSchemas.notes(), "a part of a row that was deleted here is in the row that returns", rule: "semantics 2")
    { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.write(.delete("note", ["n1"]))
      try await bench.download(parts: [Part("note", ("id", "n1"), ("body", "theirs"))])
      try await bench.expectRows("note", [])
      _ = try await bench.upload { _ in .conflict }
      _ = try await bench.store.remove(.archive(nil))
      try await bench.expectRows("note", [["n1", "a", "theirs"]])
    },
    on(
      ContractSchemas.notes(),
      "a part of a row that is not here is nothing, where the row comes whole or goes after it",
      rule: "ClientStore.swift, ClientSession"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.stage(
        parts: [Part("note", ("id", "n2"), ("body", "early")), Part("note", ("id", "n3"), ("body", "early"))],
        download: "d")
      try await bench.stage(
        rows: [("note", ["n2", "b", "late"])], departed: [("note", .deleted, ["n3"])], download: "d")
      try await bench.stage(parts: [Part("note", ("id", "n2"), ("body", "later"))], download: "d")
      _ = try await bench.apply()
      try await bench.expectRows("note", [["n1", "a", "x"], ["n2", "b", "later"]])
    },
    on(
      ContractSchemas.notes(), "a part of a row that is not here is refused, and changes nothing",
      rule: "ClientStore.swift, ClientSession"
    ) { bench in
      try await bench.download(full: ["note"], rows: [("note", ["n1", "a", "x"])])
      try await bench.stage(parts: [
        Part("note", ("id", "n1"), ("body", "y")), Part("note", ("id", "n2"), ("body", "y")),
      ])
      let current = bench
      try await expectError(.inconsistentDownload, "a part of a row that is not here") {
        var bench = current
        _ = try await bench.apply()
      }
      try await bench.expectRows("note", [["n1", "a", "x"]])
      try expectEqual(try await bench.store.status().state.groups[0].cursor?.number, 1, "the cursor")
      try await bench.store.discardStaged()
      try await bench.download(rows: [("note", ["n1", "a", "y"]), ("note", ["n2", "b", "y"])])
      try await bench.expectRows("note", [["n1", "a", "y"], ["n2", "b", "y"]])
    },
    on(ContractSchemas.seats, "unique values swapped on the server arrive in parts", rule: "semantics 2") { bench in
      try await bench.download(
        full: ["seat"], rows: [("seat", [1, 7, 1]), ("seat", [2, 8, 2]), ("seat", [3, 9, 3])])
      try await bench.download(parts: [
        Part("seat", ("id", 1), ("place", 8)), Part("seat", ("id", 2), ("place", 9)),
        Part("seat", ("id", 3), ("place", 7)),
      ])
      try await bench.expectRows("seat", [[1, 8, 1], [2, 9, 2], [3, 7, 3]])
    },
  ]
}
