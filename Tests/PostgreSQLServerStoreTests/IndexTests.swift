#if PostgreSQL
  import ContentHash
  import Foundation
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import Testing

  @testable import PostgreSQLServerStore

  /// The plans of all statements that a server runs, as PostgreSQL itself writes them down (`auto_explain`), with statistics of ten
  /// million rows in each table.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct IndexTests {
    private static let schema = Schema(tables: [
      Table(
        "place", primaryKey: ["id"],
        columns: [Column("id", .text), Column("name", .text, nullable: true), Column("owner", .text, nullable: true)],
        scope: [ScopeColumn(column: "owner", source: .principal)], unique: [["name"]]),
      Table(
        "visit", primaryKey: ["id"],
        columns: [Column("id", .text), Column("place", .text), Column("note", .text, nullable: true)],
        references: [Reference(column: "place", table: "place", onDelete: .cascade)]),
    ])

    /// A reading of a table from its beginning to its end, without a limit.
    private struct Whole: Hashable, CustomStringConvertible {
      var table: String
      var node: String
      var query: String
      var description: String { "\(table): \(node) in: \(query)" }
    }

    /// Statements that read a whole table by their meaning, none of them in a sync.
    private static let meant: [(table: String, query: String)] = [
      // After each connect: what is there then is what has come since somebody looked.
      ("salvor_inbox", "WHERE TRUE RETURNING"),
      // At an opening, before that: whether it is of the rows' moment.
      ("salvor_inbox", "FROM salvor_proof p LEFT JOIN"), ("salvor_inbox", "ORDER BY id DESC LIMIT 100"),
      // The ledger of purged rows, which ends: at an opening, and into the file of each process.
      ("salvor_purge", "SELECT act, hash, time, seal FROM salvor_purge ORDER BY n"),
      // A purge, on an operator's word: it forgets what is on the way of everybody.
      ("salvor_conflict", "DELETE FROM salvor_conflict WHERE \"table\" = $1 AND key = $2"),
      ("salvor_remote", "UPDATE salvor_remote SET staged_sequence = NULL"),
      ("salvor_staging", "DELETE FROM salvor_staging"),
      ("salvor_blob_hint", "DELETE FROM salvor_blob"), ("salvor_blob_part", "DELETE FROM salvor_blob_part"),
      // The blocked ones, by an index that has no others: at an opening, and where one is blocked.
      ("salvor_remote", "WHERE blocked = 1 ORDER BY id"),
      // Offers that wait, counted for the operator.
      ("salvor_heal_waiting", "count(*)"),
    ]

    @Test(
      "No statement of a sync, of a recovery, of trimming or of the administration reads a table of Salvor's own from end to end"
    )
    func plans() async throws {
      let cluster = try PrivateCluster.another()
      let settings = try cluster.database()
      let desk = try PostgreSQLConnection(settings)
      let installing = PostgreSQLServerStore(.init(url: settings.url, connections: 4))
      _ = try await installing.open(ServerSetup(schema: Self.schema))
      await installing.close()
      // Once to have something in the tables, and once more to look.
      try desk.execute("ALTER SYSTEM SET autovacuum = off")
      try desk.execute("SELECT pg_reload_conf()")
      try await work(settings, desk, "a")
      // What each page of a table holds, as the planner takes it: the statistics of ten million rows and more.
      try desk.execute(
        """
        UPDATE pg_class SET relpages = 1, reltuples = 10000000
        WHERE relkind = 'r' AND relnamespace IN ('salvor'::regnamespace, 'public'::regnamespace)
        """)
      for setting in [
        // What can be read by an index is.
        "enable_seqscan = off", "session_preload_libraries = auto_explain", "auto_explain.log_min_duration = 0",
        "auto_explain.log_format = json",
        "auto_explain.log_nested_statements = on",
      ] { try desk.execute("ALTER DATABASE \(PrivateCluster.name(settings)) SET \(setting)") }
      try await work(settings, desk, "b")
      // Of what nothing was written into the planner knows that it is empty.
      let empty = try Set(
        desk.rows("SELECT relname::text FROM pg_class WHERE relkind = 'r' AND pg_relation_size(oid) = 0").compactMap {
          $0[0].string
        })
      let plans = try Self.plans(of: cluster)
      #expect(plans.count > 200, "statements that were explained")
      var found: Set<Whole> = []
      for plan in plans { Self.walk(plan.plan, plan.query, isLimited: false, &found) }
      for whole in found.sorted(by: { "\($0)" < "\($1)" }) where !empty.contains(whole.table) {
        let isMeant = Self.meant.contains { whole.table == $0.table && whole.query.contains($0.query) }
        #expect(isMeant, "\(whole)")
      }
      // Each of Salvor's tables that grows was asked.
      let asked = Set(plans.flatMap { Self.tables($0.plan) })
      for table in [
        "salvor_change", "salvor_inbox", "salvor_gone", "salvor_came", "salvor_commit", "salvor_settled",
        "salvor_sequence",
        "salvor_remote", "salvor_result", "salvor_staging", "salvor_conflict", "salvor_blob", "salvor_conversation",
      ] { #expect(asked.contains(table), "\(table)") }
    }

    // MARK: The work

    /// - Parameter run: the first letter of all keys.
    private func work(_ settings: ConnectionSettings, _ desk: PostgreSQLConnection, _ run: String) async throws {
      let hand = HandClock()
      let state = try StateFolder()
      var options = PostgreSQLServerStore.Options(url: settings.url, connections: 4, stateDirectory: state.path)
      options.clock = hand
      let store = PostgreSQLServerStore(options)
      _ = try await store.open(ServerSetup(schema: Self.schema))
      let (anna, ben) = (Principal(name: "anna"), Principal(name: "ben"))
      let devices = (0..<3).map { _ in RemoteID(from: SystemRandom()) }
      for device in devices { try await store.register(device, principal: "anna") }
      try desk.execute(
        """
        INSERT INTO place SELECT '\(run)p' || n, '\(run)name ' || n, CASE n % 2 WHEN 0 THEN 'anna' ELSE 'ben' END FROM generate_series(1, 60) n;
        INSERT INTO visit SELECT '\(run)v' || n, '\(run)p' || n % 60 + 1, 'note' FROM generate_series(1, 100) n
        """)
      var cursors = try await download(store, devices[0], anna, nil)
      let head = try await store.sweep()
      for round in 0..<3 {
        let admission = try await store.admit(
          AdmissionQuery(
            remote: devices[0], previous: nil, current: nil, cursors: cursors.compactMap(\.cursor)))
        _ = admission
        _ = try await store.changedGroups(since: [head])
        // A conflict, a swap of unique values, a row that is deleted, one that others have moved away.
        try desk.execute(
          """
          UPDATE place SET name = '\(run)theirs \(round)' WHERE id = '\(run)p2'; UPDATE place SET owner = 'ben' WHERE id = '\(run)p\(round * 2 + 20)';
          UPDATE place SET owner = 'anna' WHERE id = '\(run)p\(round * 2 + 21)'
          """)
        let sequence = SequenceID(from: SystemRandom())
        let chunk = Self.chunk(run, round, made: head.number)
        try await store.stage(chunk, index: 0, remote: devices[0], sequence: sequence)
        _ = try await store.staged(devices[0], sequence: sequence)
        let results = try await store.process(
          ProcessRequest(remote: devices[0], sequence: sequence, principal: anna, chunks: nil))
        #expect(results.acceptedRequests > 0, "\(results.refused)")
        _ = try await store.results(devices[0], sequence: sequence)
        cursors = try await download(store, devices[0], anna, cursors)
        hand.pass(70_000)
      }
      let scope = ReadScope(anna)
      _ = try await store.digest(of: "place", for: scope)
      _ = try await store.ranges(
        RangeQuestion(table: "place", rowsPerRange: 5), limit: 10, for: scope)
      _ = try await store.rows(
        matching: RowQuery(table: "place", keys: [[.text("\(run)p1")], [.text("\(run)p2")], ["none"]]), for: scope)
      _ = try await store.facts(of: "place", [.text("\(run)p2")], in: [scope, ReadScope(ben)])
      let bytes = [UInt8](repeating: 7, count: 100)
      let blob = BlobReference(hash: BlobHash(digest: bytes.withUnsafeBytes { sha256($0) }), size: 100)
      _ = try await store.missingBlobs(of: [blob], for: anna)
      _ = try await store.stageBlob(bytes, of: blob, at: 0, for: anna)
      _ = try await store.blobContent(of: blob, at: nil, for: anna)
      for version in try await store.conflicts(after: 0, limit: 10, state: .open) {
        _ = try await store.resolveConflict(version.id, keep: .server, by: "o")
      }
      _ = try await store.conflicts(after: 0, limit: 10, state: .settled)
      _ = try await store.remotes(RemoteQuery(limit: 10))
      var query = RemoteQuery(limit: 10)
      query.principal = "anna"
      _ = try await store.remotes(query)
      _ = try await store.remote(devices[1])
      _ = try await store.demandReset(devices[1])
      _ = try await store.waitingOffers(WaitingQuery(), after: 0, limit: 10)
      _ = try await store.deleteRemote(devices[2], block: false)
      _ = try await store.purge([[.text("\(run)p3")]], of: "place")
      _ = await store.observation()
      _ = try await store.changes(since: head, limit: 100)
      _ = try await store.restores(limit: 10)
      try await store.conversing("bound") { conversations in
        try conversations.put(
          Conversation(
            kind: .session, token: "t", remote: devices[0], principal: "anna", subject: StoredSubject(bytes: []),
            lastSeen: 5))
        _ = try conversations.find("t")
        _ = try conversations.all(.session, of: devices[0])
        _ = try conversations.count(.session, principal: "anna")
        try conversations.touch("t", at: 6)
        try conversations.trim(.session, to: 10, seenBefore: 5)
        try conversations.remove(.session, seenBefore: 1)
        try conversations.remove("t")
      }
      try await store.forgetStaged(before: hand.now() + 1)
      try await store.trim(before: hand.now() - 80_000)
      try await store.trimSettledConflicts(before: hand.now())
      await store.close()
    }

    private static func chunk(_ run: String, _ round: Int, made: Int64) -> UploadChunk {
      var writer = UploadChunkWriter()
      var counter = Int64(round * 100)
      let stamp = RequestStamp(from: SystemRandom())
      func change(_ table: String, _ operation: SalvorModel.Operation, _ columns: [String], _ values: [Value]) {
        let shape = writer.place(of: UploadShape(table: table, operation: operation, columns: columns))
        counter += 1
        writer.beginChange(shape: shape, stamp: stamp, counter: counter, made: made)
        for value in values { writer.value(value) }
        writer.endChange()
      }
      for n in 0..<20 {
        change(
          "place", .insert, ["id", "name", "owner"],
          [.text("\(run)n\(round)-\(n)"), .text("\(run)new \(round)-\(n)"), "anna"])
        change(
          "visit", .insert, ["id", "place", "note"],
          [.text("\(run)w\(round)-\(n)"), .text("\(run)n\(round)-\(n)"), "x"])
      }
      change(
        "place", .update, ["name"],
        [
          .text("\(run)p2"), .text(round == 0 ? "\(run)name 2" : "\(run)mine \(round - 1)"),
          .text("\(run)mine \(round)"),
        ])
      change("visit", .delete, [], [.text("\(run)v\(round * 2 + 1)")])
      let (first, last) = (writer.firstCounter, writer.lastCounter)
      let count = writer.changeCount
      return UploadChunk(
        bytes: writer.finish(), firstCounter: first, lastCounter: last, changeCount: count, isLast: true)
    }

    private func download(
      _ store: PostgreSQLServerStore, _ remote: RemoteID, _ principal: Principal, _ groups: [GroupState]?
    ) async throws -> [GroupState] {
      var request = PageRequest(
        remote: remote, principal: principal, groups: groups ?? [GroupState(name: Schema.defaultGroup)], position: nil,
        bytesTarget: 2000)
      var after = request.groups
      repeat {
        let page = try await store.page(request)
        request.position = page.position
        if let groups = page.groups { after = groups }
      } while request.position != nil
      return after
    }

    // MARK: Plans

    private typealias Node = [String: Any]

    private static func plans(of cluster: PrivateCluster) throws -> [(query: String, plan: Node)] {
      var found: [(query: String, plan: Node)] = []
      var json = ""
      var isPlan = false
      func end() throws {
        guard isPlan else { return }
        isPlan = false
        let whole = try JSONSerialization.jsonObject(with: Data(json.utf8)) as? Node
        if let plan = whole?["Plan"] as? Node { found.append((whole?["Query Text"] as? String ?? "", plan)) }
      }
      let log = String(decoding: try Data(contentsOf: URL(fileURLWithPath: "\(cluster.folder)/log")), as: UTF8.self)
      for line in log.split(separator: "\n", omittingEmptySubsequences: false) {
        if line.hasPrefix("\t") {
          json += line + "\n"
          continue
        }
        try end()
        isPlan = line.hasSuffix("plan:")
        json = ""
      }
      try end()
      return found
    }

    private static func children(_ node: Node) -> [Node] { node["Plans"] as? [Node] ?? [] }

    private static func tables(_ node: Node) -> [String] {
      [node["Relation Name"] as? String].compactMap(\.self) + children(node).flatMap(tables)
    }

    /// - Parameter isLimited: a node above ends it before its end.
    private static func walk(_ node: Node, _ query: String, isLimited: Bool, _ found: inout Set<Whole>) {
      let kind = node["Node Type"] as? String ?? ""
      // An anti or semi join with one row is ended by its own condition; a limit ends what is below it unless that is sorted first.
      let limits = kind == "Limit" || (isLimited && !["Sort", "Hash", "Aggregate", "HashAggregate"].contains(kind))
      if let table = node["Relation Name"] as? String, table.hasPrefix("salvor_"), !isSmall(table), !isLimited {
        let isWhole =
          kind == "Seq Scan"
          || (["Index Scan", "Index Only Scan"].contains(kind) && node["Index Cond"] == nil)
        if isWhole { found.insert(Whole(table: table, node: kind, query: String(query.prefix(300)))) }
      }
      for child in children(node) { walk(child, query, isLimited: limits, &found) }
    }

    /// A row for each table, column, incarnation or restore, and what lives for one transaction.
    private static func isSmall(_ table: String) -> Bool {
      [
        "salvor_server", "salvor_table", "salvor_column", "salvor_head", "salvor_incarnation", "salvor_restore",
        "salvor_moved", "salvor_ways", "salvor_edge", "salvor_asked",
      ].contains { table == $0 || table.hasPrefix($0 + "_") }
    }
  }
#endif
