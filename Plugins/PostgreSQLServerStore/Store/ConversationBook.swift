#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// Sessions and recoveries under way, in the database: a device may reach another process with each request.
  extension PostgreSQLServerStore: ConversationKeeping {
    /// With a `name`, `body` is one transaction, and bodies of the same name run one after the other, in whatever
    /// process. Nil: no transaction and no lock, each statement by itself.
    public func conversing<Answer: Sendable>(
      _ name: String?, _ body: @Sendable (any ConversationDesk) throws -> Answer
    ) async throws -> Answer {
      guard let name else { return try await running { try body(ConversationBook(connection: $0)) } }
      return try await updating(name) { try body(ConversationBook(connection: $0)) }
    }
  }

  /// The table `salvor_conversation`.
  private struct ConversationBook: ConversationDesk {
    let connection: PostgreSQLConnection

    private static let columns = "token, kind, remote, principal, subject, seen"

    private func conversations(_ condition: String, _ values: [Value]) throws -> [Conversation] {
      var found: [Conversation] = []
      try connection.query(
        "SELECT \(Self.columns) FROM salvor_conversation WHERE \(condition) ORDER BY place", values
      ) { row in
        guard let kind = Conversation.Kind(rawValue: row.string(1)), let remote = RemoteID(row.string(2)) else {
          return true
        }
        found.append(
          Conversation(
            kind: kind, token: row.string(0), remote: remote, principal: row.string(3),
            subject: StoredSubject(bytes: row.withBlob(4) { Array($0) }), lastSeen: row.int64(5)))
        return true
      }
      return found
    }

    func find(_ token: String) throws -> Conversation? { try conversations("token = ?1", [.text(token)]).first }

    func all(_ kind: Conversation.Kind, of remote: RemoteID) throws -> [Conversation] {
      try conversations("kind = ?1 AND remote = ?2", [.text(kind.rawValue), .text(remote.text)])
    }

    func count(_ kind: Conversation.Kind, principal: String?) throws -> Int {
      let ofOne = try principal.map {
        try connection.integer(
          "SELECT count(*) FROM salvor_conversation WHERE kind = ?1 AND principal = ?2", .text(kind.rawValue), .text($0)
        )
      }
      let count =
        try ofOne
        ?? connection.integer("SELECT count(*) FROM salvor_conversation WHERE kind = ?1", .text(kind.rawValue))
      return Int(count ?? 0)
    }

    func remotes(_ kind: Conversation.Kind, seenSince time: Int64) throws -> [RemoteID] {
      var found: [RemoteID] = []
      try connection.query(
        "SELECT DISTINCT remote FROM salvor_conversation WHERE kind = ?1 AND seen >= ?2",
        [.text(kind.rawValue), .integer(time)]
      ) { row in
        if let remote = RemoteID(row.string(0)) { found.append(remote) }
        return true
      }
      return found
    }

    func put(_ one: Conversation) throws {
      try connection.run(
        """
        INSERT INTO salvor_conversation (\(Self.columns)) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
        ON CONFLICT (token) DO UPDATE SET subject = excluded.subject, seen = excluded.seen
        """,
        .text(one.token), .text(one.kind.rawValue), .text(one.remote.text), .text(one.principal),
        .blob(one.subject.bytes), .integer(one.lastSeen))
    }

    func touch(_ token: String, at time: Int64) throws {
      try connection.run(
        "UPDATE salvor_conversation SET seen = ?2 WHERE token = ?1 AND seen < ?2", .text(token), .integer(time))
    }

    func touch(_ kind: Conversation.Kind, principal: String, seenAfter bound: Int64, at time: Int64) throws {
      try connection.run(
        "UPDATE salvor_conversation SET seen = ?4 WHERE kind = ?1 AND principal = ?2 AND seen > ?3 AND seen < ?4",
        .text(kind.rawValue), .text(principal), .integer(bound), .integer(time))
    }

    func remove(_ token: String) throws {
      try connection.run("DELETE FROM salvor_conversation WHERE token = ?1", .text(token))
    }

    func remove(_ kind: Conversation.Kind, seenBefore time: Int64) throws {
      try connection.run(
        "DELETE FROM salvor_conversation WHERE kind = ?1 AND seen <= ?2", .text(kind.rawValue), .integer(time))
    }

    func trim(_ kind: Conversation.Kind, to count: Int, seenBefore time: Int64) throws {
      let excess = try self.count(kind, principal: nil) - count
      guard excess > 0 else { return }
      try connection.run(
        """
        DELETE FROM salvor_conversation WHERE token IN (
          SELECT token FROM salvor_conversation WHERE kind = ?1 AND seen <= ?2 ORDER BY seen, token LIMIT ?3)
        """, .text(kind.rawValue), .integer(time), .integer(Int64(excess)))
    }
  }
#endif
