import SalvorModel
import SalvorStorage

/// Many offers of one upload: each is decided as it would be alone, whatever a store does to look at many at once.
extension ServerStoreContract {
  /// Of so many rows an upload is no small one.
  private static let manyRows = 600
  private static let text = String(repeating: "lost ", count: 40)

  private static func id(_ index: Int) -> String { "m" + String(10_000 + index) }

  private static func manyNotes(_ bench: inout ServerBench) async throws -> Int64 {
    for index in 0..<manyRows {
      try await bench.write(.insert("note", ["id": .text(id(index)), "title": "a", "body": "b"]))
    }
    return try await bench.store.sweep().number
  }

  private static func update(_ index: Int, _ title: String, _ version: LostVersion) -> Sent {
    .offer(version, .update("note", [.text(id(index))], [("title", "a", .text(title)), ("body", "b", .text(text))]))
  }

  private static func process(_ sent: [Sent], by device: inout Device) async throws -> UploadResults {
    let chunk = device.chunk(sent)
    return try await device.process([chunk], as: SequenceID(from: SystemRandom()))
  }

  /// The title and the beginning of the body of some rows.
  private static func expectNotes(
    _ bench: ServerBench, _ indexes: some Sequence<Int>, title: String, isLost: Bool = true, file: String = #fileID,
    line: Int = #line
  ) async throws {
    let rows = try await bench.store.rows(of: "note")
    for index in indexes {
      let row = rows.first { $0[0] == .text(id(index)) }
      try expectEqual(
        row, [.text(id(index)), .text(title), isLost ? .text(text) : "b"], "row \(index)", file: file, line: line)
    }
  }

  static let healingSets: [Case] = [
    healing("offers of one upload are decided by the state of each row, however much was written since") {
      bench, _ in
      let parting = try await manyNotes(&bench)
      let old = version(5, parting: parting), offered = version(7, parting: parting), new = version(9, parting: parting)
      var bert = try await device(bench, "bert")
      for (remainder, version) in [(1, old), (2, new), (3, offered)] {
        let offers = stride(from: remainder, to: manyRows, by: 6).map { update($0, "bert's", version) }
        try expectOffers(try await process(offers, by: &bert), accepted: 100, healed: 100)
      }
      // More entries than a store may care to read for the sake of some rows.
      for round in 0..<12 {
        for index in stride(from: 4, to: manyRows, by: 6) {
          try await bench.write(.update("note", [.text(id(index))], ["title": .text("written \(round)")]))
        }
      }
      var anna = try await device(bench)
      let offers = (0..<manyRows).map { update($0, "anna's", offered) } + [.offer(offered, note("m2", "made"))]
      // A sixth is conflicts of two claims to one version, and one of a title that was written.
      try expectOffers(
        try await process(offers, by: &anna), accepted: 601, conflicts: 200, healed: 401, superseded: 100)
      func every(_ remainder: Int) -> StrideTo<Int> { stride(from: remainder, to: manyRows, by: 6) }
      for remainder in [0, 1, 5] { try await expectNotes(bench, every(remainder), title: "anna's") }
      for remainder in [2, 3] { try await expectNotes(bench, every(remainder), title: "bert's") }
      try await expectNotes(bench, every(4), title: "written 11")
      // Once more by another device: nothing is new.
      var cleo = try await device(bench, "cleo")
      let again = every(0).map { update($0, "anna's", offered) }
      try expectOffers(try await process(again, by: &cleo), accepted: 100, superseded: 100)
      let older = every(5).map { update($0, "old", old) }
      try expectOffers(try await process(older, by: &cleo), accepted: 100, superseded: 100)
      try await expectNotes(bench, every(5), title: "anna's")
    },
    healing("versions of rows that were so already count for offers of many rows, too") { bench, _ in
      let parting = try await manyNotes(&bench)
      let old = version(5, parting: parting), middle = version(7, parting: parting), new = version(9, parting: parting)
      func same(_ index: Int, _ version: LostVersion) -> Sent {
        .offer(version, .update("note", [.text(id(index))], [("title", "a", "a"), ("body", "b", "b")]))
      }
      var bert = try await device(bench, "bert")
      for version in [old, middle] {
        let offers = (0..<manyRows).map { same($0, version) }
        try expectOffers(try await process(offers, by: &bert), accepted: 600, superseded: 600)
      }
      var anna = try await device(bench)
      let offers = (0..<manyRows).map { update($0, "anna's", $0 < 300 ? old : new) }
      try expectOffers(try await process(offers, by: &anna), accepted: 600, healed: 300, superseded: 300)
      try await expectNotes(bench, 0..<300, title: "a", isLost: false)
      try await expectNotes(bench, 300..<manyRows, title: "anna's")
    },
    healing("a row that one upload offers twice, among many others, ends as its newest version") { bench, _ in
      let parting = try await manyNotes(&bench)
      let old = version(5, parting: parting), new = version(9, parting: parting)
      var anna = try await device(bench)
      var offers = (0..<manyRows).map { update($0, "first", $0 % 2 == 0 ? old : new) }
      offers += (0..<manyRows).map { update($0, "second", $0 % 2 == 0 ? new : old) }
      try expectOffers(try await process(offers, by: &anna), accepted: 1200, healed: 900, superseded: 300)
      try await expectNotes(bench, stride(from: 0, to: manyRows, by: 2), title: "second")
      try await expectNotes(bench, stride(from: 1, to: manyRows, by: 2), title: "first")
      // What the rows are of now is known: neither the older version nor the same one changes them.
      var bert = try await device(bench, "bert")
      let again = (0..<manyRows).map { update($0, $0 % 2 == 0 ? "second" : "first", $0 % 3 == 0 ? old : new) }
      try expectOffers(try await process(again, by: &bert), accepted: 600, superseded: 600)
    },
    healing("a row that an upload brings back, changes and deletes leaves nothing of its version") { bench, parting in
      var anna = try await device(bench)
      let offer = Sent.offer(version(7, parting: parting), note("n2", "lost"))
      try expectOffers(try await anna.upload(offer, .delete("note", ["n2"])), accepted: 2, healed: 1)
      try await bench.expectRows("note", [["n1", "a", "b"]])
      // The numbers of its entries in the log may be another row's now.
      try await bench.write(.update("note", ["n1"], ["title": "written"]))
      _ = try await bench.store.sweep()
      var bert = try await device(bench, "bert")
      let results = try await bert.upload(
        .offer(version(5, parting: parting), .update("note", ["n1"], [("title", "a", "lost")])))
      try expectOffers(results, conflicts: 1)
      try await bench.expectRows("note", [["n1", "written", "b"]])
    },
  ]
}
