#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  /// What blobs devices are about to send, and which uploads are under way that name some: in the database, since each part may reach
  /// another process. `BlobsAtWork` says the same of one process.
  private struct WantedBlobs {
    let connection: PostgreSQLConnection
    /// So long after its last sign a device is given up.
    private let patience: Int64

    init(connection: PostgreSQLConnection, _ limits: Limits) {
      self.connection = connection
      patience = BlobsAtWork.patience(limits)
    }

    /// Beside sessions and recoveries, which have tokens of another form.
    private func token(_ principal: Principal) -> Value { .text("blobs \(principal.name)") }

    /// A device of the principal is about to send those of these that are not staged.
    func ask(_ references: [BlobReference], _ principal: Principal, now: Int64) throws {
      try connection.run(
        """
        INSERT INTO salvor_conversation (token, kind, remote, principal, subject, seen) VALUES (?1, 'blobs', '', ?2, ?3, ?4)
        ON CONFLICT (token) DO UPDATE SET subject = excluded.subject, seen = excluded.seen
        """, token(principal), .text(principal.name),
        .blob(Array(references.map(\.hash.text).joined(separator: " ").utf8)), .integer(now))
      try connection.run(
        "DELETE FROM salvor_conversation WHERE kind = 'blobs' AND seen <= ?1", .integer(now - patience))
    }

    /// A part of a blob has come. Who was given up has to ask again.
    func note(_ principal: Principal, now: Int64) throws {
      try connection.run(
        "UPDATE salvor_conversation SET seen = ?2 WHERE token = ?1 AND seen < ?2 AND seen > ?3", token(principal),
        .integer(now), .integer(now - patience))
    }

    /// What was asked about last, and what uploads name of which a chunk has come lately. By hash.
    func inUse(by principal: Principal, now: Int64) throws -> Set<String> {
      let asked = try connection.rows(
        "SELECT subject FROM salvor_conversation WHERE token = ?1 AND seen > ?2", token(principal),
        .integer(now - patience)
      ).first?.first
      var wanted: Set<BlobHash> = []
      if case .blob(let bytes)? = asked {
        wanted = Set(String(decoding: bytes, as: UTF8.self).split(separator: " ").compactMap { BlobHash(String($0)) })
      }
      var goingOn: Set<RemoteID> = []
      try connection.query(
        "SELECT id FROM salvor_remote WHERE principal = ?1 AND staged_bytes > 0 AND staged_time > ?2",
        [.text(principal.name), .integer(now - patience)]
      ) { row in
        if let id = RemoteID(row.string(0)) { goingOn.insert(id) }
        return true
      }
      let found = goingOn
      return try Staging(connection: connection).blobs(ofPrincipal: principal, wanted: wanted) { found.contains($0) }
    }
  }

  extension PostgreSQLServerStore {
    public func missingBlobs(of references: [BlobReference], for principal: Principal) async throws -> [BlobNeed] {
      let (limits, now) = (options.limits, options.clock.now())
      try await updating(principal.name) {
        try WantedBlobs(connection: $0, limits).ask(references, principal, now: now)
      }
      return try await ask(ReadScope(principal)) { try BlobLookup(queries: $0).needs(references, limits) }
    }

    /// Returns how many bytes of the blob are here. Throws where the whole blob has another hash than the reference
    /// says.
    public func stageBlob(
      _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
    ) async throws -> Int64 {
      let (limits, now) = (options.limits, options.clock.now())
      let outcome = try await updating(principal.name) { connection in
        let wanted = WantedBlobs(connection: connection, limits)
        try wanted.note(principal, now: now)
        return try BlobStaging(connection: connection).stage(
          part, of: reference, at: offset, for: principal, limits, now: now
        ) { try wanted.inUse(by: principal, now: now) }
      }
      switch outcome {
      case .staged(let received): return received
      case .mismatch: throw SalvorError.blobMismatch(reference)
      }
    }

    public func blobContent(
      of reference: BlobReference, at place: BlobPlace?, for principal: Principal
    ) async throws -> [UInt8]? {
      try await ask(ReadScope(principal)) { queries in
        var content: [UInt8]?
        _ = try BlobLookup(queries: queries).withContent(of: reference, at: place) { content = Array($0) }
        return content
      }
    }
  }
#endif
