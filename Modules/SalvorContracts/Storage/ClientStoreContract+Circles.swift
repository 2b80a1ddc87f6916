import SalvorModel
import SalvorStorage

/// Requests that depend on one another, or are right only together (semantics 2), as deferred foreign keys allow.
extension ClientStoreContract {
  static let circles: [Case] = [
    on(
      ContractSchemas.circles, "displaced requests that reference each other return together",
      rule: "semantics 2"
    ) { bench in
      try await bench.write(
        .deferReferences, .insert("node", ["id": "a", "above": "b", "label": "x"]),
        .insert("node", ["id": "b", "above": "a"]))
      try await bench.download(rows: [("node", ["s", .null, "x"])])
      try expectEqual(try await bench.store.rows(of: "node"), [["s", .null, "x"]], "the rows beside the server's")
      try expectEqual(try await bench.store.status().displaced, 2, "the displaced requests")
      try await bench.download(departed: [("node", .deleted, ["s"])])
      try expectEqual(
        try await bench.store.rows(of: "node"), [["a", "b", "x"], ["b", "a", .null]], "the rows, back again")
      try expectEqual(try await bench.store.status().displaced, 0, "the displaced requests")
      try expectEqual(try await bench.upload().count, 2, "the changes sent")
    },
    on(
      ContractSchemas.circles, "a displaced request that is right only with the next one returns with it",
      rule: "semantics 2"
    ) { bench in
      try await bench.write(
        .deferReferences, .insert("node", ["id": "a", "above": "nowhere", "label": "x"]),
        .update("node", ["a"], ["above": .null]))
      try await bench.download(rows: [("node", ["s", .null, "x"])])
      try expectEqual(try await bench.store.status().displaced, 2, "the displaced requests")
      try await bench.download(departed: [("node", .deleted, ["s"])])
      try expectEqual(try await bench.store.rows(of: "node"), [["a", .null, "x"]], "the rows, back again")
      try expectEqual(try await bench.store.status().displaced, 0, "the displaced requests")
    },
  ]
}
