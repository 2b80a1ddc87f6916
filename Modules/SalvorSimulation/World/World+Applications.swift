import SalvorClientEngine
import SalvorModel

/// What applications and other programs write, and the specification beside.
extension World {
  // MARK: The specification

  /// Nil: it does not go along, or not any more.
  var specification: Specification? { beside as? Specification }

  func beginSpecification() async throws {
    let made = Specification(self, SeededGenerator(seed: history.seed).derived(5))
    try await made.start()
    beside = made
  }

  /// The specification does the same, as long as it goes along. What it cannot do ends that.
  func specify(_ body: (Specification) async throws -> Void) async {
    guard let specification else { return }
    do { try await body(specification) } catch { await partFromSpecification("refused: \(shown(error))") }
  }

  /// The specification synchronizes, too, and has the same rows then.
  func specify(_ number: Int, groups: Set<String>? = nil) async {
    await specify { specification in
      if let difference = try await specification.synchronize(devices[number], groups: groups) {
        oracle.report(.unspecified, difference)
      }
    }
  }

  func partFromSpecification(_ why: String) async {
    guard let specification else { return }
    beside = nil
    trace.add("  the specification goes no further: \(why)")
    coverage.meet("specification until \(why.prefix { $0 != ":" })")
    await specification.stop()
  }

  // MARK: Applications

  private static let programName = "a program on the server"

  /// Another program's transaction in the server's tables.
  @discardableResult
  func program(_ statements: [String]) throws -> [Specification.Move] {
    let before = try serverContents()
    let statements = try adapted(statements, serverDatabase())
    let moves = try transact(try serverDatabase(), statements, Self.programName) {
      try self.serverContents()
    }
    oracle.wrote(nil, before, try serverContents())
    return moves
  }

  /// An application's transaction: what a SELECT shows before and after it is what was captured.
  @discardableResult
  func write(_ device: SimulatedDevice, _ statements: [String]) async throws -> [Specification.Move] {
    if try !device.isMade() { try await open(device) }
    guard try device.isMade() else { return [] }
    let database = try device.database()
    let triggers = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'"
    let count = try database.rows(triggers)
    for sql in device.schema.applicationTriggers() { try database.execute(sql) }
    // Until Salvor next looks they fire before its own: what it cannot tell from the log it finds by comparing.
    if device.schema.hasCode, try database.rows(triggers) != count { oracle.lostTriggers(device.number) }
    let before = try device.contents()
    let waited = try device.dirtyRows()
    let statements = try adapted(statements, database)
    let moves = try transact(database, statements, device.name) { try device.contents() }
    try noteWrites(device, statements, before, waited)
    return moves
  }

  /// What an application has committed.
  func noteWrites(
    _ device: SimulatedDevice, _ statements: [String], _ before: Contents, _ waited: Set<RowName>
  ) throws {
    if statements.contains(where: { $0.contains("REPLACE") }), !device.isDangling {
      device.isDangling = try !device.database().rows("PRAGMA foreign_key_check").isEmpty
      if device.isDangling { trace.add("  \(device.name): the application's REPLACE left a reference to nothing") }
    }
    let after = try device.contents()
    oracle.captured(device.number, before, after)
    oracle.wrote(device.number, before, after)
    // A row that was made and deleted at once goes up as both.
    oracle.touched(device.number, try device.dirtyRows().subtracting(waited), after)
  }

  func open(_ device: SimulatedDevice) async throws {
    do {
      let opening = try await device.running().open(reattaching: true)
      for notice in opening.notices { trace.add("  \(device.name): \(notice)") }
    } catch let error as SalvorError where error.code == .schemaIncompatible || error.code == .schemaRefused {
      trace.add("  \(device.name): \(shown(error))")
    }
  }

  /// - Returns: what was committed.
  private func transact(
    _ database: any SimulatedDatabase, _ statements: [String], _ who: String, _ contents: () throws -> Contents
  ) throws -> [Specification.Move] {
    guard begins(database, who) else { return [] }
    let moves = try run(database, statements, who, contents)
    // SQLite lets a REPLACE leave references to nothing. Of devices the product finds it; a program in the server's tables looks itself.
    if who == Self.programName, statements.contains(where: { $0.contains("REPLACE") }),
      try !database.rows("PRAGMA foreign_key_check").isEmpty
    {
      trace.add("  \(who): its REPLACE left a reference to nothing, and it takes all of it back")
      try database.execute("ROLLBACK")
      return []
    }
    return commits(database, who) ? moves.all : []
  }

  /// A device synchronizes while a connection of its application has a transaction open.
  ///
  /// - Parameter statements: what it writes; nil: it reads.
  func hold(
    _ device: SimulatedDevice, _ statements: [String]?, after: Int, jobs: Int, commits isKept: Bool
  ) async throws {
    if try !device.isMade() { try await open(device) }
    guard try device.isMade() else { return }
    let report = await withTaskGroup(of: SyncReport?.self) { group in
      group.addTask { await self.sync(device) }
      group.addTask {
        for _ in 0..<after { await Task.yield() }
        do {
          let other = try self.platform.connect(device.path)
          defer { other.close() }
          try other.execute("PRAGMA foreign_keys = ON")
          if let statements {
            try await self.write(device, other, statements, jobs: jobs, commits: isKept)
          } else {
            try await self.read(device, other, jobs: jobs)
          }
        } catch {
          self.oracle.report(.unexpected, "\(device.name), a transaction that stays open: \(self.shown(error))")
        }
        return nil
      }
      var report = SyncReport()
      for await result in group { if let result { report = result } }
      return report
    }
    coverage.meet("\(statements == nil ? "reader" : "writer") stays open\(report.error == nil ? "" : ", and it fails")")
    // Who writes keeps everybody else from it.
    judge(report, device, allowing: statements == nil ? [] : [.storageBusy])
  }

  /// What a transaction shows stays as it is.
  private func read(_ device: SimulatedDevice, _ other: any SimulatedDatabase, jobs: Int) async throws {
    try other.execute("BEGIN")
    let before = try contents(other, device.schema, isServer: false)
    for _ in 0..<jobs { await Task.yield() }
    if try contents(other, device.schema, isServer: false) != before {
      oracle.report(.halfApplied, "\(device.name): a transaction that reads sees other rows after a while")
    }
    try other.execute("COMMIT")
  }

  private func write(
    _ device: SimulatedDevice, _ other: any SimulatedDatabase, _ statements: [String], jobs: Int, commits isKept: Bool
  ) async throws {
    guard begins(other, device.name) else { return }
    let (before, waited) = (try device.contents(), try device.dirtyRows())
    let statements = try adapted(statements, other)
    _ = try run(other, statements, device.name) { try self.contents(other, device.schema, isServer: false) }
    for _ in 0..<jobs { await Task.yield() }
    guard isKept else {
      if other.isInTransaction { try other.execute("ROLLBACK") }
      return
    }
    if commits(other, device.name) { try noteWrites(device, statements, before, waited) }
  }

  private func begins(_ database: any SimulatedDatabase, _ who: String) -> Bool {
    do {
      try database.execute("BEGIN IMMEDIATE")
      return true
    } catch {
      trace.add("  \(who): \(shown(error))")
      return false
    }
  }

  /// Statement by statement: one that a constraint refuses is left out, as an application may do.
  private func run(
    _ database: any SimulatedDatabase, _ statements: [String], _ who: String, _ contents: () throws -> Contents
  ) throws -> CommittedMoves {
    var present = try contents()
    var moves = CommittedMoves()
    for sql in statements {
      oracle.runs(sql)
      do {
        try database.execute(sql)
        let now = try contents()
        oracle.ran(present, now)
        moves.ran(sql, present, now)
        present = now
      } catch {
        trace.add("  \(who): \(sql): \(shown(error))")
        judgeStatement(error, sql, who)
        guard database.isInTransaction else { continue }
        // OR FAIL keeps the rows before the one that is refused.
        let now = try contents()
        if now == present { continue }
        oracle.ran(present, now)
        moves.ran(sql, present, now)
        present = now
      }
    }
    return moves
  }

  /// False: there is nothing to commit, or it is refused.
  private func commits(_ database: any SimulatedDatabase, _ who: String) -> Bool {
    guard database.isInTransaction else { return false }
    do {
      try database.execute("COMMIT")
      return true
    } catch {
      trace.add("  \(who): COMMIT: \(shown(error))")
      try? database.execute("ROLLBACK")
      judgeStatement(error, "COMMIT", who)
      return false
    }
  }

  /// What an application's own statement may be refused for is what its own tables say.
  private func judgeStatement(_ error: any Error, _ sql: String, _ who: String) {
    let text = shown(error)
    let isOwn = ["constraint failed", "savepoint", "no transaction is active"].contains { text.contains($0) }
    let isOurs = text.contains("salvor_")
    if !isOwn || isOurs { oracle.report(.unexpected, "\(who) cannot write: \(sql): \(text)") }
  }
}

/// What a transaction did in the end: what a savepoint took back was never done.
private struct CommittedMoves {
  private(set) var all: [Specification.Move] = []
  /// The open savepoints, with how much was done before each.
  private var savepoints: [(name: String, count: Int)] = []

  mutating func ran(_ sql: String, _ before: Contents, _ after: Contents) {
    func name(after words: String) -> String? {
      sql.hasPrefix(words) ? String(sql.dropFirst(words.count)) : nil
    }
    if let name = name(after: "SAVEPOINT ") {
      savepoints.append((name, all.count))
    } else if let name = name(after: "ROLLBACK TO "), let place = savepoints.lastIndex(where: { $0.name == name }) {
      savepoints.removeLast(savepoints.count - place - 1)
      all.removeLast(all.count - savepoints[place].count)
    } else if let name = name(after: "RELEASE "), let place = savepoints.lastIndex(where: { $0.name == name }) {
      savepoints.removeLast(savepoints.count - place)
    } else if sql.hasPrefix("INSERT INTO salvor_request") {
      all.append(.begin(tag: "t"))
    } else if sql.hasPrefix("DELETE FROM salvor_request") {
      all.append(.end)
    } else {
      all.append(.rows(before, after, isReplace: sql.contains("REPLACE")))
    }
  }
}
