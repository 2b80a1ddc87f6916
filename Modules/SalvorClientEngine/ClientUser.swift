import SalvorModel
import SalvorStorage
import SalvorTransport

/// Who uses a shared device: a database of his own, and his credentials.
public struct ClientUser: Sendable {
  /// The name by which the server knows him; empty: the server says it.
  public var principal: String
  /// The path of his database. It is made where there is none.
  public var database: String
  /// Asked who sends, at the start of a synchronization and each time that the server refuses what it gave.
  public var credentials: CredentialsProvider

  /// - Parameters:
  ///   - principal: empty: the server says who it is.
  ///   - database: the path of a file of his own.
  public init(principal: String = "", database: String, credentials: @escaping CredentialsProvider) {
    self.principal = principal
    self.database = database
    self.credentials = credentials
  }
}

extension SalvorClient {
  /// Another user takes over a shared device. What was another's stays his: his rows and what he has not sent stay in his own
  /// file, are never sent as somebody else, and go on when he signs in again.
  ///
  /// A synchronization that runs stops at its next safe place; a `watch` ends, and returns nil. `events` and `states` stay.
  ///
  /// - Throws: `remote-of-another-principal` where the database belongs to somebody else, `usage` where this client cannot
  ///   open another one. The user of before stays signed in then.
  public func `switch`(to user: ClientUser) async throws {
    try OwnTask.refuse(self)
    guard let makeStore = configuration.makeStore else {
      throw SalvorError(
        .usage, "This client was made for one database. Set makeStore in its configuration, or make another client.")
    }
    let store = try makeStore(user.database)
    let present = (configuration.store as? any FileDatabase)?.databaseFile
    if let file = (store as? any FileDatabase)?.databaseFile, file == present {
      let owner = try await status().state.principal
      guard !owner.isEmpty, owner.isSameName(as: user.principal) else {
        throw SalvorError(
          .remoteOfAnother,
          "The database is the one of the user who is signed in. Give the other one a database of his own, or name the same principal.",
          context: ["file": file])
      }
    }
    var next = configuration
    next.store = store
    next.principal = user.principal
    next.credentials = [:]
    next.credentialsProvider = user.credentials
    next.login = Login(next)
    do {
      _ = try await store.open(ClientSetup(schema: next.schema, principal: next.principal, reattaches: true))
    } catch {
      await store.close()
      throw error
    }
    circumstances.otherUser()
    try await stopRunning()
    // At one go: whoever synchronizes from here on does it for the new user.
    let old = configuration.store
    replace(next)
    isOpen = true
    await old.close()
  }
}
