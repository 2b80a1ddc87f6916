#if PostgreSQL
  import Foundation
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore

  /// Whom an administrator keeps out, where the database goes back: each process has the list in a folder of its own.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct BlockingTests {
    private let cluster: PrivateCluster
    private let database: ConnectionSettings
    private let schema = Schema(tables: [Table("item", primaryKey: ["id"], columns: [Column("id", .text)])])

    init() throws {
      cluster = try PrivateCluster.shared ?? PrivateCluster.another()
      database = try cluster.database()
    }

    private func open(_ folder: StateFolder?) async throws -> PostgreSQLServerStore {
      let store = PostgreSQLServerStore(.init(url: database.url, connections: 4, stateDirectory: folder?.path))
      _ = try await store.open(ServerSetup(schema: schema))
      return store
    }

    private func isBlocked(_ remote: RemoteID, _ store: PostgreSQLServerStore) async throws -> Bool {
      try await store.remote(remote)?.isBlocked == true
    }

    @Test("A block outlives a restore of the database, and whoever is let in again stays in", arguments: [true, false])
    func restored(losesCommits: Bool) async throws {
      let (here, there) = (try StateFolder(), try StateFolder())
      let (known, new) = (RemoteID(from: SystemRandom()), RemoteID(from: SystemRandom()))
      var (one, other) = (try await open(here), try await open(there))
      try await one.register(known, principal: "anna")
      for store in [one, other] { await store.close() }
      try cluster.copy(database, to: "copy")
      (one, other) = (try await open(here), try await open(there))
      if losesCommits {
        try await one.write([.insert(table: "item", values: [NamedValue("id", "a")])])
        _ = try await one.sweep()
      }
      try await one.register(new, principal: "bert")
      #expect(try await one.deleteRemote(known, block: true))
      #expect(try await other.deleteRemote(new, block: true))
      for store in [one, other] { await store.close() }
      try cluster.putBack(database, from: "copy")
      // This one's file has the first act alone.
      one = try await open(here)
      #expect(try await isBlocked(known, one))
      other = try await open(there)
      for remote in [known, new] { #expect(try await isBlocked(remote, other)) }
      #expect(try await other.deleteRemote(known, block: false))
      for store in [one, other] { await store.close() }
      one = try await open(here)
      #expect(try await !isBlocked(known, one))
      #expect(try await isBlocked(new, one))
      await one.close()
    }

    @Test("Copies are PostgreSQL's to make and to put back: each command says by which programs, and does nothing")
    func copies() async throws {
      let (folder, store) = (try StateFolder(), try await open(nil))
      let path = folder.path + "/copy.db"
      var error = await #expect(throws: SalvorError.self) { try await store.backup(to: path) }
      #expect(error?.code == .usage && error?.message.contains("pg_dump") == true)
      error = await #expect(throws: SalvorError.self) { _ = try await store.restore(from: path) }
      #expect(error?.code == .usage && error?.message.contains("pg_restore") == true)
      #expect(!FileManager.default.fileExists(atPath: path))
      #expect(try await store.rows(of: "item").isEmpty)
      await store.close()
    }
  }
#endif
