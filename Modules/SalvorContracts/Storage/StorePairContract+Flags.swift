import SalvorModel
import SalvorStorage

/// A deleted mark on one device, the server, and another device (semantics 3).
extension StorePairContract {
  static let flags: [Case] = [
    on(
      ContractSchemas.marked, "a marked row is deleted on the server, and physically on every device",
      rule: "semantics 3"
    ) { bench in
      try await bench.plant()
      try await bench.write(0, .update("form", ["f"], ["IsDeleted": 1]))
      try expectEqual(
        try await bench.clients[0].store.rows(of: "form"), [["f", "a", 1, 1]], "the form before the sync")
      try await bench.expectConverged(0)
      try await bench.expectConverged(1)
      for table in bench.schema.synchronized {
        try await bench.server.expectRows(table.name, [])
        for client in bench.clients {
          try expectEqual(try await client.store.rows(of: table.name), [], "the rows of \(table.name)")
        }
      }
    },
    on(
      ContractSchemas.marked, "a mark that is taken back reaches nobody; one that was sent is followed by inserts",
      rule: "semantics 3"
    ) { bench in
      try await bench.plant()
      try await bench.write(0, .update("form", ["f"], ["IsDeleted": 1]))
      try await bench.write(0, .update("form", ["f"], ["IsDeleted": 0]))
      let outcome = try await bench.sync(0)
      try expect(outcome.results == nil, "nothing is uploaded")
      try await bench.write(0, .update("section", ["s"], ["IsDeleted": 1]))
      try await bench.sync(0, cut: .acknowledgementLost)
      try await bench.write(0, .update("section", ["s"], ["IsDeleted": 0]))
      try await bench.expectConverged(0)
      try await bench.expectConverged(1)
      try await bench.server.expectRows("remark", [["r", "s", "t"]])
      try expectEqual(
        try await bench.clients[1].store.rows(of: "section"), [["s", "f", .null, 0, 0]], "the other's section")
    },
    on(
      ContractSchemas.marked, "a delete that the server refuses keeps its mark, whatever was added below it meanwhile",
      rule: "semantics 3, 7"
    ) { bench in
      try await bench.plant()
      try await bench.write(1, .insert("answer", ["section_id": "s", "line": 7, "note": "new"]))
      try await bench.expectConverged(1)
      try await bench.write(0, .update("section", ["s"], ["IsDeleted": 1]))
      try await bench.sync(0)
      let client = bench.clients[0].store
      try expectEqual(try await client.status().inError, 1, "in error")
      try expectEqual(
        try await client.rows(of: "answer"), [["s", 1, "x", 1], ["s", 7, "new", .null]], "the answers")
      _ = try await client.remove(.archive(nil))
      try await bench.expectConverged(0)
      try expectEqual(try await client.rows(of: "section"), [["s", "f", .null, 0, 0]], "the section")
    },
  ]
}

extension PairBench {
  /// A form with a section, an answer, a remark and a photo, on both devices.
  fileprivate mutating func plant() async throws {
    try await write(
      0, .insert("form", ["id": "f", "title": "a"]), .insert("section", ["id": "s", "form_id": "f"]),
      .insert("answer", ["section_id": "s", "line": 1, "note": "x"]),
      .insert("remark", ["id": "r", "section_id": "s", "text": "t"]), .insert("photo", ["id": "p", "remark_id": "r"]))
    try await expectConverged(0)
    try await expectConverged(1)
  }
}
