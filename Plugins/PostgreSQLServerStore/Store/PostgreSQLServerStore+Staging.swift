#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  /// Uploads on their way (`ServerStore`): chunk by chunk, until they are processed or forgotten.
  extension PostgreSQLServerStore {
    public func stage(_ chunk: UploadChunk, index: Int, remote: RemoteID, sequence: SequenceID) async throws {
      let (limits, now) = (options.limits, options.clock.now())
      try await removeLeftOver(remote, besides: sequence)
      // What a principal has staged together is limited.
      let principal = try await reading { connection, _ in try RemoteBook(connection: connection).registered(remote) }
        .principal
      try await updating(principal) { connection in
        try Staging(connection: connection).stage(
          chunk, index: index, try RemoteBook(connection: connection).registered(remote), sequence, limits, now: now)
      }
    }

    public func staged(_ remote: RemoteID, sequence: SequenceID) async throws -> StagedUpload {
      try await reading { connection, _ in try Staging(connection: connection).staged(remote, sequence) }
    }

    public func stagedChunk(_ index: Int, remote: RemoteID, sequence: SequenceID) async throws -> [UInt8]? {
      try await reading { connection, _ in try Staging(connection: connection).chunk(index, remote, sequence) }
    }

    public func unstage(_ remote: RemoteID, sequence: SequenceID) async throws {
      try await updating(remote.text) { try Staging(connection: $0).forget(remote, sequence) }
      try await removeLeftOver(remote)
    }

    /// Slice by slice: others write in between.
    func removeLeftOver(_ remote: RemoteID, besides sequence: SequenceID? = nil) async throws {
      while try await reading({ connection, _ in
        try Staging(connection: connection).hasLeftOver(remote, besides: sequence)
      }) {
        try await updating(remote.text) { try Staging(connection: $0).removeLeftOver(remote, besides: sequence) }
      }
    }

    public func forgetStaged(before milliseconds: Int64) async throws {
      let left = try await reading { connection, _ in try Staging(connection: connection).left(before: milliseconds) }
      for remote in left {
        try await updating(remote.text) { try Staging(connection: $0).forget(remote) }
      }
      var last = ""
      while true {
        let after = last
        guard
          let remote = try await reading({ connection, _ in try Staging(connection: connection).remote(after: after) })
        else { return }
        if let id = RemoteID(remote) { try await removeLeftOver(id) }
        last = remote
      }
    }
  }
#endif
