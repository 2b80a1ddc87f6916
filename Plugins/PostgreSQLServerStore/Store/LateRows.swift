#if PostgreSQL
  import SalvorModel
  import SalvorStorage

  /// Another program may take a unique value after an upload has taken its snapshot: PostgreSQL refuses the value, and no row that the upload
  /// sees has it. Where a constraint refused a request and somebody has committed meanwhile, the upload starts again and sees what
  /// there is; at the last attempt the refusal stands.
  final class LateRows: Sendable {
    private let settings: ConnectionSettings
    private let attempts = Mutex(0)
    private static let attemptsMax = 3

    init(_ settings: ConnectionSettings) { self.settings = settings }

    /// At the end of the upload's transaction, before it commits. Throws the error after which the upload starts again.
    func check(_ results: UploadResults, _ connection: PostgreSQLConnection) throws {
      guard results.refused.contains(where: { $0.reason == .constraint }),
        attempts.withLock({ count in
          count += 1
          return count < Self.attemptsMax
        })
      else { return }
      let snapshot = try connection.scalar("SELECT pg_current_snapshot()::text")?.string
      // The upload's own transaction sees nothing of it.
      let other = try PostgreSQLConnection(settings)
      defer { other.close() }
      guard try other.once("SELECT 1 FROM salvor_inbox WHERE \(Sealing.isNew(snapshot)) LIMIT 1").first != nil else {
        return
      }
      throw SalvorError(
        .storageBusy, "Another program has written meanwhile. Try again.", context: ["sqlstate": "40001"])
    }
  }
#endif
