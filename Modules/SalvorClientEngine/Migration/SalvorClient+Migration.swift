import SalvorModel
import SalvorStorage

/// Migrations of the application's own, and the way out (semantics 3).
extension SalvorClient {
  /// Runs an application's migration: meanwhile its tables have no triggers, and no sync runs. What it changed in rows is
  /// captured when it ends, however it ends; what it changed in tables must be what the schema says, or a declared rule.
  ///
  ///     try await client.withCapturePaused {
  ///       try database.execute("ALTER TABLE site ADD COLUMN stars INTEGER NOT NULL DEFAULT 3")
  ///     }
  ///
  /// Throws `schema-refused` where the tables are not what the schema says afterwards: capture stays paused until
  /// `resumeCapture` goes through.
  public func withCapturePaused<Result: Sendable>(
    _ migration: @Sendable () async throws -> Result
  ) async throws -> Result {
    _ = try await pauseCapture()
    let result: Result
    do {
      result = try await migration()
    } catch {
      // The migration's own error is what its caller must hear of.
      _ = try? await resumeCapture()
      throw error
    }
    _ = try await resumeCapture()
    return result
  }

  /// Begins a migration; `resumeCapture` ends it, in this process or another. Answers since when, in milliseconds since 1970.
  /// A synchronization that runs is waited for.
  public func pauseCapture() async throws -> Int64 {
    try await waitForRunning()
    if !isOpen { try await open(pausing: true) }
    return try await migratingStore().pauseCapture()
  }

  /// Ends a migration: the triggers are back, and what it did to rows is captured.
  public func resumeCapture() async throws -> CaptureResumption { try await migratingStore().resumeCapture() }

  /// What `detach` would remove and lose. Writes nothing.
  public func planDetachment() async throws -> DetachmentPlan { try await migratingStore().planDetachment() }

  /// Leaves plain tables and nothing of Salvor's in the database. The client is of no use afterwards.
  ///
  /// - Parameter discarding: false throws `usage` while there are requests that the server does not have.
  public func detach(discarding: Bool = false) async throws -> DetachmentPlan {
    try await waitForRunning()
    return try await migratingStore().detach(discarding: discarding)
  }

  /// Encrypts the database with another key. This client opens it with the new key from now on. The closure or the configuration
  /// that gave the old key must give the new one. The call waits for a synchronization that runs.
  ///
  /// - Throws: `key-refused` where the database is not encrypted, or its module cannot; `storage-busy` where another program
  ///   has the file open. The old key stands then.
  public func changeKey(to key: String) async throws {
    try await waitForRunning()
    guard let store = try await openStore() as? any EncryptedClientStore else {
      throw SalvorError(.keyRefused, "The storage module of this device has no key. Use \"sqlite\".")
    }
    try await store.changeKey(to: key)
  }

  private func migratingStore() async throws -> any MigratingClientStore {
    guard let store = try await openStore() as? any MigratingClientStore else {
      throw SalvorError(
        .usage, "The storage module of this device has no tables that an application could migrate. Use \"sqlite\".")
    }
    return store
  }
}
