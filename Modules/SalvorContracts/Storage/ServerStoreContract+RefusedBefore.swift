import SalvorModel
import SalvorStorage

extension ServerStoreContract {
  /// What a validator refused, and what goes with every refusal.
  static let refusedBefore: [Case] = [
    on(
      ContractSchemas.notes(),
      "what a validator refused is refused so, what depends on it is blocked by it, the others go through",
      rule: "semantics 7"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      // Alone, in a small upload and in a large one, which a store may look at in parts.
      for others in [0, 300] {
        var device = try await bench.device()
        var sent: [Sent] = [.update("note", ["n1"], [("title", "a", "refused")])]
        for other in 0..<others {
          let long = Value.text(String(repeating: "x", count: 400))
          sent.append(.insert("note", ["id": .text("\(others)-\(other)"), "title": "b", "body": long]))
        }
        sent.append(.update("note", ["n1"], [("body", .null, "built on it")]))
        sent.append(.insert("note", ["id": .text("last \(others)"), "title": "c", "body": .null]))
        let results = try await device.upload(sent, refusing: [1: 451])
        try expectRefused(
          results, [1: .validator, Int64(others) + 2: .blocked], accepted: Int64(others) + 1)
        let refusal = results.refused[0]
        try expectEqual(refusal.status, 451, "the validator's status")
        try expectEqual(refusal.message, "not wanted 1", "the validator's message")
        try expectEqual(results.refused[1].status, 424, "the status of a blocked request")
        try expectEqual(results.refused[1].blockedBy, refusal.id, "what blocks it")
      }
      try expectEqual(
        try await bench.store.rows(of: "note").first { $0[0] == "n1" }, ["n1", "a", .null], "the row")
    },
    on(ContractSchemas.notes(), "a group that a validator refused is refused as a whole", rule: "semantics 7") {
      bench in
      var device = try await bench.device()
      let group = Sent.group([
        .insert("note", ["id": "n1", "title": "a", "body": .null]),
        .insert("note", ["id": "n2", "title": "b", "body": .null]),
      ])
      let results = try await device.upload(
        [group, .insert("note", ["id": "n3", "title": "c", "body": .null])], refusing: [1: nil])
      try expectRefused(results, [1: .validator], accepted: 1)
      try expectEqual(results.refused[0].status, 422, "the status where the validator gave none")
      try await bench.expectRows("note", [["n3", "c", .null]])
    },
    on(
      ContractSchemas.notes(), "a request that depends on a refused one is blocked, whatever a validator says of it",
      rule: "semantics 7"
    ) { bench in
      var device = try await bench.device()
      let results = try await device.upload(
        [
          .insert("note", ["id": "n1", "title": .integer(1), "body": .null]),
          .update("note", ["n1"], [("body", .null, "x")]),
        ], refusing: [2: 451])
      try expectRefused(results, [1: .notStorable, 2: .blocked], accepted: 0)
    },
    on(ContractSchemas.notes(), "what was settled before stays so, whatever a validator says now", rule: "semantics 5")
    { bench in
      var device = try await bench.device()
      let chunk = device.chunk([
        .insert("note", ["id": "n1", "title": "a", "body": .null]),
        .insert("note", ["id": "n2", "title": .integer(1), "body": .null]),
      ])
      let stamp = device.stamp
      try expectRefused(
        try await device.process([chunk], as: SequenceID(from: SystemRandom())), [2: .notStorable], accepted: 1)
      let again = try await bench.store.process(
        ProcessRequest(
          remote: device.remote, sequence: SequenceID(from: SystemRandom()), principal: device.principal,
          chunks: [chunk],
          refused: [1, 2].map { Refusal(counter: $0, stamp: stamp, reason: .validator, message: "not wanted") }))
      try expectRefused(again, [2: .notStorable], accepted: 1)
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    on(
      ContractSchemas.notes(), "recorded results say again what was refused, with status and the server's row",
      rule: "semantics 5"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var device = try await bench.device()
      let sequence = SequenceID(from: SystemRandom())
      let chunk = device.chunk([.update("note", ["n1"], [("title", "a", "b")])])
      let refused = [Refusal(counter: 1, stamp: device.stamp, reason: .validator, message: "no", status: 409)]
      let results = try await bench.store.process(
        ProcessRequest(
          remote: device.remote, sequence: sequence, principal: device.principal, chunks: [chunk], refused: refused))
      try expectRefused(results, [1: .validator], accepted: 0)
      try expectEqual(
        results.refused[0].serverRow,
        [NamedValue("id", "n1"), NamedValue("title", "a"), NamedValue("body", .null)], "the server's row")
      let again = try await bench.store.process(
        ProcessRequest(remote: device.remote, sequence: sequence, principal: device.principal, chunks: [chunk]))
      try expectEqual(again, results, "the results given again")
      try expectEqual(
        try await bench.store.results(device.remote, sequence: sequence), results, "the recorded results")
    },
    on(
      ContractSchemas.inspections,
      "the server's row goes with a refusal, as it is after the upload, where it is in scope", rule: "semantics 8"
    ) { bench in
      try await bench.write(
        .insert("severity", ["id": 1, "name": "low"]),
        .insert("establishment", ["id": "eu", "name": "e", "region": "EU"]),
        .insert("establishment", ["id": "us", "name": "u", "region": "US"]))
      var device = try await bench.device(parameters: ["region": ["EU"]])
      let results = try await device.upload(
        .update("severity", [1], [("name", "low", "high")]), .update("establishment", ["us"], [("name", "u", "x")]),
        .update("establishment", ["eu"], [("name", "e", "f")]),
        .update("establishment", ["gone"], [("name", "e", "f")]),
        .group([
          .update("establishment", ["eu"], [("region", "EU", "EU")]),
          .update("establishment", ["eu"], [("region", "EU", "US")]),
        ]))
      try expectRefused(
        results, [1: .serverMaintained, 2: .rowDeleted, 4: .rowDeleted, 5: .outOfScope], accepted: 1)
      let rows = Dictionary(uniqueKeysWithValues: results.refused.map { ($0.counter, $0.serverRows) })
      let eu = [NamedValue("id", "eu"), NamedValue("name", "f"), NamedValue("region", "EU")]
      try expectEqual(
        rows,
        [
          1: [ServerRow(counter: 1, values: [NamedValue("id", 1), NamedValue("name", "low")])], 2: [], 4: [],
          5: [ServerRow(counter: 5, values: eu), ServerRow(counter: 6, values: eu)],
        ], "the server's rows")
      try expectEqual(results.refused.last?.serverRow(of: 6), eu, "the row of the group's second change")
    },
    on(ContractSchemas.notes(), "the server's rows that go with refusals are bounded", rule: "Refusal.swift") { bench in
      let row = Value.text(String(repeating: "x", count: 15_000))
      for number in 0..<80 {
        try await bench.write(.insert("note", ["id": .text("n\(number)"), "title": "a", "body": row]))
      }
      let large = Value.text(String(repeating: "x", count: ServerRowBudget.rowBytesMax))
      try await bench.write(.insert("note", ["id": "large", "title": "a", "body": large]))
      var device = try await bench.device()
      var sent: [Sent] = [.update("note", ["large"], [("title", "a", .integer(1))])]
      for number in 0..<80 { sent.append(.update("note", [.text("n\(number)")], [("title", "a", .integer(1))])) }
      let results = try await device.process([device.chunk(sent)], as: SequenceID(from: SystemRandom()))
      try expectEqual(results.refused.count, 81, "the refusals")
      try expectEqual(results.refused[0].serverRow, nil, "a row that is too large")
      let with = results.refused.count { !$0.serverRows.isEmpty }
      try expectEqual(
        with, ServerRowBudget.uploadBytesMax / (15_000 + "idtitlebody".count + 4), "the refusals with a row")
    },
    on(ContractSchemas.notes(), "a staged chunk can be read as it came", rule: "ServerStore.swift, stagedChunk") {
      bench in
      var device = try await bench.device()
      let first = device.chunk([.insert("note", ["id": "n1", "title": "a", "body": .null])], isLast: false)
      let second = device.chunk([.insert("note", ["id": "n2", "title": "b", "body": .null])])
      let sequence = SequenceID(from: SystemRandom())
      try await bench.store.stage(first, index: 0, remote: device.remote, sequence: sequence)
      try expect(
        try await !bench.store.staged(device.remote, sequence: sequence).isWhole,
        "an upload without its end is not whole")
      try await bench.store.stage(second, index: 1, remote: device.remote, sequence: sequence)
      try expect(try await bench.store.staged(device.remote, sequence: sequence).isWhole, "the upload is whole")
      for (index, bytes) in [first.bytes, second.bytes, nil].enumerated() {
        try expectEqual(
          try await bench.store.stagedChunk(index, remote: device.remote, sequence: sequence), bytes, "chunk \(index)")
      }
      try expectEqual(
        try await bench.store.stagedChunk(0, remote: device.remote, sequence: SequenceID(from: SystemRandom())), nil,
        "a chunk of another upload")
    },
  ]
}

extension Device {
  /// Uploads in one chunk; a validator has refused those whose counter within this upload is named, with this status.
  mutating func upload(_ sent: [Sent], refusing: [Int64: Int?]) async throws -> UploadResults {
    let before = counter
    let chunk = chunk(sent)
    let refused = refusing.sorted { $0.key < $1.key }.map { place, status in
      Refusal(
        counter: before + place, stamp: stamp, reason: .validator, message: "not wanted \(place)", status: status)
    }
    let results = try await store.process(
      ProcessRequest(
        remote: remote, sequence: SequenceID(from: SystemRandom()), principal: principal, chunks: [chunk],
        refused: refused))
    stamp = RequestStamp(from: SystemRandom())
    return results
  }
}
