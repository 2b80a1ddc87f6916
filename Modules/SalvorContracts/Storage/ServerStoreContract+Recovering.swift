import SalvorModel
import SalvorStorage
import SalvorWire

/// What the consolidated database answers to devices that recover (semantics 5, 6 and 9). Taken up by every store that is
/// a `RecoveringServerStore`; a subject of one that is not says so (`StoreSubject.recovers`).
extension ServerStoreContract {
  static let recovering: [Case] = [declaration] + facts + answers + comparing + wholeTables + clones

  /// A case for stores that recover.
  static func recovering(
    _ schema: Schema, _ name: String, rule: String,
    _ body: @escaping @Sendable (inout ServerBench) async throws -> Void
  ) -> Case {
    let rule = on(schema, name, rule: rule, body)
    return Case(name, rule: rule.rule) { subject in if subject.recovers { try await rule.run(subject) } }
  }

  private static let declaration = Case(
    "a store recovers exactly where its subject says so", rule: "semantics 9, RecoveringServerStore.swift"
  ) { subject in
    let store = try await subject.makeDatabase()()
    try expectEqual(store is any RecoveringServerStore, subject.recovers, "whether the store recovers")
  }

  private static let facts: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: a cursor is trimmed exactly where it is below the number that is said",
      rule: "RecoveringServerStore.swift, trimmed"
    ) { bench in
      var commits: [Commit] = [try await bench.store.sweep()]
      for number in 1...3 {
        try await bench.write(.insert("note", ["id": .text("n\(number)"), "title": "a"]))
        commits.append(try await bench.store.sweep())
      }
      try await bench.expectTrimmed(commits)
      try expect(try await bench.recovering.trimmed() <= commits[0].number, "nothing is trimmed at first")
      try await bench.store.trim(before: Int64.max)
      try await bench.expectTrimmed(commits)
      let trimmed = try await bench.recovering.trimmed()
      try expect(
        trimmed > commits[0].number && trimmed <= commits[3].number, "the old ones are trimmed, the newest not")
      try await bench.restart()
      try expectEqual(try await bench.recovering.trimmed(), trimmed, "the number after a restart")
    },
    recovering(
      ContractSchemas.inspections, "recovery: the scopes are those that a download's end names",
      rule: "RecoveringServerStore.swift, scopes"
    ) { bench in
      for parameters in [["region": [.text("EU")]], ["region": [.text("US")]], [:]] as [[String: [Value]]] {
        let device = try await bench.device(parameters.isEmpty ? "anna" : "bert", parameters: parameters)
        let wanted = Dictionary(device.groups.map { ($0.name, $0.scopeDigest) }) { first, _ in first }
        let found = try await bench.recovering.scopes(of: device.groups.map(\.name), for: ReadScope(device.principal))
        try expectEqual(found.mapValues { .some($0) }, wanted, "the scopes")
        let one = try await bench.recovering.scopes(of: ["inspections"], for: ReadScope(device.principal))
        try expectEqual(
          one.mapValues { .some($0) }, wanted.filter { $0.key == "inspections" }, "the scope of one group")
      }
    },
    recovering(
      ContractSchemas.inspections, "recovery: rows are counted as the principal sees them",
      rule: "RecoveringServerStore.swift, rowCount"
    ) { bench in
      try await bench.writeRegions()
      let store = try bench.recovering
      let all = ["reference", "inspections"]
      try expectEqual(try await store.rowCount(of: all, for: ReadScope(Principal(name: "anna"))), 8, "all rows")
      try expectEqual(try await store.rowCount(of: all, for: ReadScope(ServerBench.europe)), 5, "the rows of a region")
      try expectEqual(
        try await store.rowCount(of: ["inspections"], for: ReadScope(ServerBench.europe)), 4, "one group's rows")
      try expectEqual(try await store.rowCount(of: [], for: ReadScope(ServerBench.europe)), 0, "no group's rows")
    },
    recovering(
      ContractSchemas.notes(), "recovery: a reset that the operator demands stays until this very demand is settled",
      rule: "semantics 9, operator-requested"
    ) { bench in
      let device = try await bench.device()
      func demands() async throws -> [Int64?] {
        let admission = try await bench.store.admit(
          AdmissionQuery(remote: device.remote, previous: nil, current: nil, cursors: []))
        return try await bench.store.remotes().map(\.resetDemand) + [admission.remote?.resetDemand]
      }
      try expectEqual(try await demands(), [nil, nil], "the demands at first")
      try expect(try await bench.recovering.demandReset(device.remote), "there is such a remote")
      let first = try expectSome(try await demands()[0], "a demand")
      try expectEqual(try await demands(), [first, first], "the demand")
      try await bench.restart()
      try expectEqual(try await demands(), [first, first], "the demand after a restart")
      try expect(try await bench.recovering.demandReset(device.remote), "there is such a remote")
      let second = try expectSome(try await demands()[0], "a second demand")
      try expect(second != first, "two demands have one number")
      try expect(try await bench.recovering.settleReset(device.remote, demand: first), "there is such a remote")
      try expectEqual(try await demands(), [second, second], "the second demand after the first was met")
      try expect(try await bench.recovering.settleReset(device.remote, demand: second), "there is such a remote")
      try expectEqual(try await demands(), [nil, nil], "the demands after the second was met")
      let nobody = RemoteID(from: SystemRandom())
      try expect(!(try await bench.recovering.demandReset(nobody)), "there is no such remote")
      try expect(!(try await bench.recovering.settleReset(nobody, demand: first)), "there is no such remote")
    },

    recovering(
      ContractSchemas.notes(), "a reset can be demanded of a remote that was deleted, and not of one that is blocked",
      rule: "semantics 9, operator-requested"
    ) { bench in
      let device = try await bench.device()
      _ = try await bench.store.deleteRemote(device.remote, block: false)
      try expect(try await bench.recovering.demandReset(device.remote), "the server remembers the remote")
      try await bench.store.register(device.remote, principal: device.principal.name)
      let demand = try expectSome(try await bench.store.remote(device.remote)?.resetDemand, "a demand when it is back")
      try expect(try await bench.recovering.settleReset(device.remote, demand: demand), "there is such a remote")
      try expectEqual(try await bench.store.remote(device.remote)?.resetDemand, nil, "the demand after it was met")
      _ = try await bench.store.deleteRemote(device.remote, block: true)
      try expect(!(try await bench.recovering.demandReset(device.remote)), "a blocked remote never comes")
    },

    recovering(
      ContractSchemas.notes(),
      "resets are demanded of all remotes, or of one principal's, at once; deleted ones are left out",
      rule: "interfaces, salvor remotes reset --all / --principal"
    ) { bench in
      let anna = try await bench.device()
      let ben = RemoteID(from: SystemRandom())
      let gone = RemoteID(from: SystemRandom())
      try await bench.store.register(ben, principal: "ben")
      try await bench.store.register(gone, principal: "ben")
      _ = try await bench.store.deleteRemote(gone, block: false)
      func demanded() async throws -> Set<RemoteID> {
        Set(try await bench.store.remotes().filter(\.isResetDemanded).map(\.id))
      }
      try expectEqual(try await bench.recovering.demandResets(of: "nobody"), 0, "remotes of nobody")
      try expectEqual(try await demanded(), [], "remotes that are to recover")
      try expectEqual(try await bench.recovering.demandResets(of: "ben"), 1, "remotes of ben")
      try expectEqual(try await demanded(), [ben], "remotes that are to recover")
      try expectEqual(try await bench.recovering.demandResets(of: nil), 2, "all remotes")
      try expectEqual(try await demanded(), [anna.remote, ben], "remotes that are to recover")
    },
  ]

  // MARK: Rows by key

  private static let answers: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: a named row is answered with the row, or as lost", rule: "semantics 6"
    ) { bench in
      var device = try await bench.device()
      try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null]))
      try await bench.write(.insert("note", ["id": "n2", "title": "b"]), .insert("note", ["id": "n4", "title": "d"]))
      try await bench.write(.delete("note", ["n4"]))
      let query = RowQuery(table: "note", keys: [["n1"], ["n2"], ["n3"], ["n4"]])
      try await bench.expectAnswer(
        query, rows: [["n1", "a", .null], ["n2", "b", .null]], lost: [["n3"], ["n4"]])
      try await bench.expectAnswer(RowQuery(table: "note", keys: []), rows: [], lost: [])
    },
    recovering(
      ContractSchemas.notes(), "recovery: a row whose digest is the one given is not sent",
      rule: "RecoveringServerStore.swift, rows"
    ) { bench in
      try await bench.write(
        .insert("note", ["id": "n1", "title": "a"]), .insert("note", ["id": "n2", "title": "b"]))
      let same = RowDigest(["n1", "a", .null]).text, other = RowDigest(["n2", "B", .null]).text
      try await bench.expectAnswer(
        RowQuery(table: "note", keys: [["n1"], ["n2"], ["n3"]], digests: [same, other, same]),
        rows: [["n2", "b", .null]], lost: [["n3"]])
    },
    recovering(
      ContractSchemas.notes(), "recovery: rows of a range that were not named are sent, too",
      rule: "RecoveringServerStore.swift, rows"
    ) { bench in
      for id in ["n1", "n2", "n3", "n4", "n5"] {
        try await bench.write(.insert("note", ["id": .text(id), "title": "a"]))
      }
      func row(_ id: String) -> Row { [.text(id), "a", .null] }
      // After n1, up to n4.
      let inner = RowQuery.Range(after: ["n1"], last: ["n4"])
      try await bench.expectAnswer(
        RowQuery(table: "note", range: inner, keys: [["n3"], ["n35"]], digests: [RowDigest(row("n3")).text, "0"]),
        rows: [row("n2"), row("n4")], lost: [["n35"]])
      try await bench.expectAnswer(
        RowQuery(table: "note", range: RowQuery.Range(after: ["n4"], last: nil), keys: []), rows: [row("n5")], lost: [])
      try await bench.expectAnswer(
        RowQuery(table: "note", range: RowQuery.Range(after: nil, last: ["n2"]), keys: []),
        rows: [row("n1"), row("n2")], lost: [])
      try await bench.expectAnswer(
        RowQuery(table: "note", range: RowQuery.Range(after: nil, last: nil), keys: [["n9"]]),
        rows: ["n1", "n2", "n3", "n4", "n5"].map(row), lost: [["n9"]])
    },
    recovering(
      ContractSchemas.inspections, "recovery: what the principal does not see has left its scope, and is never sent",
      rule: "semantics 7"
    ) { bench in
      try await bench.writeRegions()
      let establishments = RowQuery(table: "establishment", keys: [["e1"], ["e2"], ["e9"]])
      try await bench.expectAnswer(
        establishments, as: ServerBench.europe, rows: [["e1", "one", "EU"]], left: [["e2"]], lost: [["e9"]])
      // His list may be empty.
      let nobody = Principal(name: "anna", parameters: ["region": []])
      try await bench.expectAnswer(establishments, as: nobody, rows: [], left: [["e1"], ["e2"]], lost: [["e9"]])
      var device = try await bench.device(parameters: ["region": []])
      try device.expectReplica("establishment", [])
      try device.expectReplica("inspection", [])
      // Or long.
      let many = (0..<4000).map { Value.text(Array("R\($0)".utf8)) } + ["EU"]
      device = try await bench.device(parameters: ["region": many])
      try device.expectReplica("establishment", [["e1", "one", "EU"]])
      try await bench.write(.update("establishment", ["e1"], ["name": "other"]))
      try await device.download()
      try device.expectReplica("establishment", [["e1", "other", "EU"]])
      let all = RowQuery.Range(after: nil, last: nil)
      try await bench.expectAnswer(
        RowQuery(table: "inspection", range: all, keys: [["i2"]]), as: ServerBench.europe,
        rows: [["i1", "e1", "d", .null]], left: [["i2"]])
      // A digest tells no one what a row is that he does not see.
      let digest = RowDigest(["i2", 1, .null, "two"]).text
      try await bench.expectAnswer(
        RowQuery(table: "infraction", range: all, keys: [["i2", 1]], digests: [digest]), as: ServerBench.europe,
        rows: [["i1", 1, 1, .null], ["i1", 2, .null, .null]], left: [["i2", 1]])
    },
    recovering(
      ContractSchemas.odd, "recovery: keys, values and names of every kind are answered as they are",
      rule: "semantics 11.4"
    ) { bench in
      try await bench.writeHardRows()
      let table = bench.schema.tables[0]
      let rows = bench.hardRows
      try await bench.expectAnswer(RowQuery(table: table.name, keys: rows.map(table.key)), rows: rows, lost: [])
      try await bench.expectAnswer(
        RowQuery(table: table.name, keys: rows.map(table.key), digests: rows.map { RowDigest($0).text }), rows: [],
        lost: [])
      try await bench.expectAnswer(
        RowQuery(table: table.name, range: RowQuery.Range(after: nil, last: nil), keys: []), rows: rows, lost: [])
    },
  ]

  // MARK: Ranges

  private static let comparing: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: ranges cover a table, each with the sum of its rows' digests",
      rule: "semantics 6, history-trimmed"
    ) { bench in
      try await bench.expectRanges("note", [], rowsPerRange: 3)
      let rows = (1...10).map { [.text("n\($0 + 10)"), "a", $0 == 4 ? "b" : .null] as Row }
      for row in rows { try await bench.write(.insert("note", ["id": row[0], "title": row[1], "body": row[2]])) }
      for rowsPerRange in [1, 3, 5, 10, 64] {
        try await bench.expectRanges("note", rows, rowsPerRange: rowsPerRange)
      }
    },
    recovering(ContractSchemas.inspections, "recovery: ranges hold what the principal sees", rule: "semantics 7") {
      bench in
      try await bench.writeRegions()
      try await bench.expectRanges(
        "infraction", [["i1", 1, 1, .null], ["i1", 2, .null, .null]], rowsPerRange: 1, as: ServerBench.europe)
      try await bench.expectRanges("establishment", [["e1", "one", "EU"]], rowsPerRange: 5, as: ServerBench.europe)
    },
    recovering(
      ContractSchemas.odd, "recovery: ranges are in the binary order of the keys",
      rule: "RecoveryOrder.swift, RangeDigest"
    ) { bench in
      try await bench.writeHardRows()
      let table = bench.schema.tables[0]
      let rows = bench.hardRows.sorted { a, b in
        // Text by bytes, then the number.
        guard case .text(let x) = table.key(of: a)[0], case .text(let y) = table.key(of: b)[0] else { return false }
        return x == y ? (a[0].integer ?? 0) < (b[0].integer ?? 0) : x.lexicographicallyPrecedes(y)
      }
      try await bench.expectRanges(table.name, rows, rowsPerRange: 2)
    },
  ]

  // MARK: Request IDs of clones

  private static let clones: [Case] = [
    recovering(
      ContractSchemas.notes(), "recovery: a request ID that is known with other content is a new request",
      rule: "semantics 5; 9, client-rewound"
    ) { bench in
      var device = try await bench.device()
      var clone = device
      clone.remote = RemoteID(from: SystemRandom())
      try await bench.store.register(clone.remote, principal: "anna")
      try expectAccepted(try await device.upload(.insert("note", ["id": "n1", "title": "a", "body": .null])), 1)
      let stamp = clone.stamp
      try expectAccepted(try await clone.upload(.insert("note", ["id": "n2", "title": "b", "body": .null])), 1)
      try await bench.expectRows("note", [["n1", "a", .null], ["n2", "b", .null]])
      // Both are remembered from here on.
      try await bench.write(.delete("note", ["n1"]), .delete("note", ["n2"]))
      for (id, title) in [("n1", "a"), ("n2", "b")] {
        clone.stamp = stamp
        clone.counter = 0
        let results = try await clone.upload(
          .insert("note", ["id": .text(id), "title": .text(title), "body": .null]))
        try expectAccepted(results, 1)
      }
      try await bench.expectRows("note", [])
      // Another value, another operation: each is a request of its own.
      clone.stamp = stamp
      clone.counter = 0
      try expectAccepted(try await clone.upload(.insert("note", ["id": "n1", "title": "A", "body": .null])), 1)
      clone.stamp = stamp
      clone.counter = 0
      try expectAccepted(try await clone.upload(.delete("note", ["n1"])), 1)
      try await bench.expectRows("note", [])
    },
    recovering(
      ContractSchemas.notes(), "recovery: a request ID that is known with the same content is not applied again",
      rule: "semantics 5"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var device = try await bench.device()
      var clone = device
      clone.remote = RemoteID(from: SystemRandom())
      try await bench.store.register(clone.remote, principal: "anna")
      try expectAccepted(try await device.upload(.update("note", ["n1"], [("title", "a", "b")])), 1)
      try await bench.write(.update("note", ["n1"], ["title": "later"]))
      try await clone.download()
      // What it saw is not part of the content: the same change on another base.
      try expectAccepted(try await clone.upload(.update("note", ["n1"], [("title", "later", "b")])), 1)
      try await bench.expectRows("note", [["n1", "later", .null]])
      // A refusal is remembered, too.
      let stamp = device.stamp
      device.counter = 0
      try expectRefused(
        try await device.upload(.update("note", ["n9"], [("title", "a", "b")])), [1: .rowDeleted], accepted: 0)
      try await bench.write(.insert("note", ["id": "n9", "title": "a"]))
      device.stamp = stamp
      device.counter = 0
      try expectRefused(
        try await device.upload(.update("note", ["n9"], [("title", "a", "b")])), [1: .rowDeleted], accepted: 0)
    },
    recovering(
      ContractSchemas.notes(),
      "a request that was settled with a column which its device has dropped since is known by what it was",
      rule: "semantics 11.1"
    ) { bench in
      try await bench.write(.insert("note", ["id": "n1", "title": "a"]))
      var device = try await bench.device()
      let stamp = device.stamp
      let sent = Sent.update("note", ["n1"], [("title", "a", "b"), ("body", .null, "text")])
      let note = Sent.insert("note", ["id": "n2", "title": "c", "body": "text"])
      try expectAccepted(try await device.upload(sent, note), 2)
      func former(_ operation: SalvorModel.Operation, _ columns: UploadedColumn...) -> UInt32 {
        let change = UploadedChange(
          counter: 1, made: 0, table: "note", key: ["n1"], operation: operation, columns: columns)
        return RequestContent([change.content(ContractSchemas.notes().tables[0])]).bits
      }
      let was = former(.update, UploadedColumn("title", new: "b"), UploadedColumn("body", new: "text"))
      let made = former(
        .insert, UploadedColumn("id", new: "n2"), UploadedColumn("title", new: "c"), UploadedColumn("body", new: "text")
      )
      try await bench.evolve(to: ContractSchemas.shortNotes)
      try await bench.write(.update("note", ["n1"], ["title": "later"]), .delete("note", ["n2"]))
      // Its file was put back from a copy of before the upload, and has followed the schema.
      var copy = bench.following(device)
      copy.remote = RemoteID(from: SystemRandom())
      (copy.stamp, copy.counter) = (stamp, 0)
      try await bench.store.register(copy.remote, principal: "anna")
      try await copy.download()
      let results = try await copy.upload(
        .former(FormerContent(first: 1, content: was), .update("note", ["n1"], [("title", "a", "b")])),
        .former(FormerContent(first: 2, content: made), .insert("note", ["id": "n2", "title": "c"])))
      try expectAccepted(results, 2)
      try expectEqual(
        try await bench.store.rows(of: "note").map { Array($0.prefix(2)) }, [["n1", "later"]], "the rows")
      // Another content is another request.
      (copy.stamp, copy.counter) = (stamp, 0)
      try expectAccepted(
        try await copy.upload(
          .former(FormerContent(first: 1, content: made), .update("note", ["n1"], [("title", "later", "d")]))), 1)
      try expectEqual(try await bench.store.rows(of: "note").map { Array($0.prefix(2)) }, [["n1", "d"]], "the rows")
    },
  ]
}

extension ServerBench {
  /// The store as one that recovers.
  var recovering: any RecoveringServerStore {
    get throws { try expectSome(store as? any RecoveringServerStore, "the store as a RecoveringServerStore") }
  }

  static let europe = Principal(name: "bert", parameters: ["region": ["EU"]])

  /// Two regions; half of the rows hang on each.
  fileprivate func writeRegions() async throws {
    try await write(
      .insert("severity", ["id": 1, "name": "minor"]),
      .insert("establishment", ["id": "e1", "name": "one", "region": "EU"]),
      .insert("establishment", ["id": "e2", "name": "two", "region": "US"]),
      .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]),
      .insert("inspection", ["id": "i2", "establishment_id": "e2", "date": "d"]),
      .insert("infraction", ["inspection_id": "i1", "line": 1, "severity_id": 1]),
      .insert("infraction", ["inspection_id": "i1", "line": 2]),
      .insert("infraction", ["inspection_id": "i2", "line": 1, "note": "two"]))
  }

  fileprivate func writeHardRows() async throws {
    let table = schema.tables[0]
    try await store.write(
      hardRows.map { row in
        .insert(table: table.name, values: zip(table.columns, row).map { NamedValue($0.name, $1) })
      })
  }

  /// Each of these commits is a trimmed cursor exactly where its number is below `trimmed`.
  fileprivate func expectTrimmed(_ commits: [Commit], file: String = #fileID, line: Int = #line) async throws {
    let trimmed = try await recovering.trimmed()
    let admission = try await store.admit(
      AdmissionQuery(remote: RemoteID(from: SystemRandom()), previous: nil, current: nil, cursors: commits))
    try expectEqual(
      admission.cursors, commits.map { $0.number < trimmed ? .trimmed : .known }, "the cursors", file: file, line: line)
  }

  /// The answer holds exactly these rows, keys of rows that it has and does not show, and lost keys.
  fileprivate func expectAnswer(
    _ query: RowQuery, as principal: Principal = Principal(name: "anna"), rows: [Row], left: [Key] = [],
    lost: [Key] = [], file: String = #fileID, line: Int = #line
  ) async throws {
    let page = try DownloadedPage(try await recovering.rows(matching: query, for: ReadScope(principal)), schema: schema)
    try expectEqual(page.full, [], "tables that come whole", file: file, line: line)
    try expectEqual(Set(page.items.map(\.table)).subtracting([query.table]), [], "other tables", file: file, line: line)
    var replica = Replica(schema)
    try replica.apply([page])
    try expectEqual(replica.rows(of: query.table), Set(rows), "the rows", file: file, line: line)
    let departed = page.items.filter { $0.departure != nil }
    try expectEqual(
      Set(departed.map(\.departure)).subtracting([.left, .lost]), [], "departures", file: file, line: line)
    for (departure, keys) in [(Departure.left, left), (.lost, lost)] {
      let found = departed.filter { $0.departure == departure }.map(\.values)
      try expectEqual(Set(found), Set(keys), "the keys that are \(departure.rawValue)", file: file, line: line)
    }
    try expectEqual(
      page.items.count, rows.count + left.count + lost.count, "the number of lines", file: file, line: line)
  }

  /// The ranges hold exactly these rows, in this order; page by page and at once.
  fileprivate func expectRanges(
    _ name: String, _ rows: [Row], rowsPerRange: Int, as principal: Principal = Principal(name: "anna"),
    file: String = #fileID, line: Int = #line
  ) async throws {
    let table = try expectSome(schema.table(name), "the table")
    for limit in [1, 2, 1000] {
      var found: [RangeDigest] = []
      var after: Key?
      var columns: [String] = []
      while true {
        let page = try await recovering.ranges(
          RangeQuestion(
            table: name, range: RowQuery.Range(after: after, last: nil), rowsPerRange: rowsPerRange), limit: limit,
          for: ReadScope(principal))
        try expect(page.ranges.count <= limit, "a page holds at most the limit", file: file, line: line)
        found += page.ranges
        columns = page.columns
        after = page.ranges.last?.last
        if page.isLast { break }
        try expect(after != nil, "a page that is not the last ends at a key", file: file, line: line)
        try expect(found.count < 1000, "the ranges must end", file: file, line: line)
      }
      try expectEqual(
        Set(columns), Set(table.travelling.map(\.name)), "the columns that are compared", file: file, line: line)
      try expect(!found.isEmpty && found.last?.last == nil, "the last range goes to the end", file: file, line: line)
      var rest = rows[...]
      for range in found {
        let members = rest.prefix(Int(range.count))
        rest = rest.dropFirst(Int(range.count))
        try expect(range.count <= rowsPerRange, "a range holds at most its rows", file: file, line: line)
        let sum = members.reduce(UInt64(0)) { sum, row in
          sum &+ RowDigest(columns.map { row[table.columnIndex($0) ?? 0] }).value
        }
        try expectEqual(range.digest, RowDigest.text(sum), "a range's digest", file: file, line: line)
        if let last = range.last {
          try expectEqual(members.last.map(table.key), last, "a range's last key", file: file, line: line)
        }
      }
      try expect(rest.isEmpty, "\(rest.count) rows are in no range", file: file, line: line)
      try expectEqual(Int(found.reduce(0) { $0 + $1.count }), rows.count, "the rows", file: file, line: line)
    }
  }
}
