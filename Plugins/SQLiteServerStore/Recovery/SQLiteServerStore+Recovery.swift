import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

extension SQLiteServerStore: RecoveringServerStore {
  public func trimmed() async throws -> Int64 { try await ask(ReadScope(Principal(name: ""))) { try $0.trimmed() } }

  public func scopes(of groups: [String], for scope: ReadScope) async throws -> [String: String] {
    try await ask(scope) { $0.scopes(of: groups) }
  }

  public func rowCount(of groups: [String], for scope: ReadScope) async throws -> Int64 {
    try await ask(scope) { try $0.rowCount(of: groups) }
  }

  public func rows(matching query: RowQuery, for scope: ReadScope) async throws -> [UInt8] {
    try await askSealed(scope) { try $0.rows(query) }
  }

  /// Errors: `usage` where `limit` or `question.rowsPerRange` is not positive.
  public func ranges(_ question: RangeQuestion, limit: Int, for scope: ReadScope) async throws -> RangePage {
    guard question.rowsPerRange > 0, limit > 0 else {
      throw SalvorError(.usage, "A range has one row at least, and a page one range.")
    }
    return try await askSealed(scope) { try $0.ranges(question, limit: limit) }
  }

  public func digest(of table: String, for scope: ReadScope) async throws -> TableDigest {
    let known = digests.known(table, scope)
    let (writes, isSame) = try await writer.writes(to: table, since: known?.writes)
    let digest = if isSame, let known { known.digest } else { try await askSealed(scope) { try $0.digest(of: table) } }
    digests.keep(digest, scope, writes)
    return digest
  }

  public func demandReset(_ remote: RemoteID) async throws -> Bool {
    try await writer.demandReset(remote, demand: options.random.positiveNumber())
  }

  public func demandResets(of principal: String?) async throws -> Int64 {
    try await writer.demandResets(of: principal, demand: options.random.positiveNumber())
  }

  public func settleReset(_ remote: RemoteID, demand: Int64) async throws -> Bool {
    try await writer.settleReset(remote, demand: demand)
  }

  /// The copy of a database file is noted among the recorded backups.
  public func backup(to path: String) async throws {
    guard options.isFile else { return try await writer.backup(to: path) }
    try await DatabaseCopy().make(
      of: options.path, to: path, busyTimeoutMilliseconds: options.busyTimeoutMilliseconds)
    let now = options.clock.now()
    try await DatabaseCopy().withBook(
      of: options.path, busyTimeoutMilliseconds: options.busyTimeoutMilliseconds
    ) { try $0.note(copyAt: path, now: now) }
  }

  /// Numbers first what other programs have committed.
  private func askSealed<Answer: Sendable>(
    _ scope: ReadScope, _ question: @Sendable (RecoveryQueries) throws -> Answer
  ) async throws -> Answer {
    while true {
      if let answer = try await ask(scope, { try $0.isSealed() ? question($0) : nil }) { return answer }
      _ = try await writer.sweep()
    }
  }

  func ask<Answer: Sendable>(
    _ scope: ReadScope, _ question: @Sendable (RecoveryQueries) throws -> Answer
  ) async throws -> Answer {
    if let answer = try await reading({ try await $0.ask(scope, question) }) { return answer }
    return try await writer.ask(scope, question)
  }
}

extension SQLiteServerStore: RestorableServerStore {
  /// Errors: `usage` for a database in memory.
  public func restore(from path: String, overAnotherServer: Bool) async throws -> ServerRestoration {
    guard options.isFile else {
      throw SalvorError(.usage, "A database in memory cannot be restored. Name a file as the storage's path.")
    }
    return try await DatabaseCopy().restore(
      Restoration(
        path: options.path, source: path, overAnotherServer: overAnotherServer, now: options.clock.now()))
  }
}
