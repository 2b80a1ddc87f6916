#if PostgreSQL
  import Foundation
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport
  import Testing

  @testable import PostgreSQLServerStore

  /// The ledger of purged rows where several processes serve one database (semantics 10). Each has it in a folder of its own.
  @Suite(.enabled(if: PrivateCluster.isThere, "PostgreSQL is not installed here: these tests did not run"))
  struct PurgingTests {
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

    private func write(_ ids: String..., to store: PostgreSQLServerStore) async throws {
      try await store.write(ids.map { .insert(table: "item", values: [NamedValue("id", .text(Array($0.utf8)))]) })
      _ = try await store.sweep()
    }

    private func items(_ store: PostgreSQLServerStore) async throws -> [String] {
      try await store.rows(of: "item").compactMap { $0[0].string }
    }

    private func ledger(_ folder: StateFolder) throws -> String {
      try String(contentsOfFile: folder.path + "/postgresql.salvor-purged", encoding: .utf8)
    }

    @Test("Without a folder nothing is purged: after a restore nobody would know of it")
    func needsFolder() async throws {
      let store = try await open(nil)
      try await write("a", to: store)
      let error = await #expect(throws: SalvorError.self) { try await store.purge([["a"]], of: "item") }
      #expect(error?.code == .usage)
      #expect(error?.message.contains("stateDirectory") == true)
      #expect(try await items(store) == ["a"])
      await store.close()
    }

    @Test("What one process purged the others have in their ledgers, and any of them keeps it away after a restore")
    func severalProcesses() async throws {
      let (here, there) = (try StateFolder(), try StateFolder())
      var (one, other) = (try await open(here), try await open(there))
      try await write("a", "b", "c", to: one)
      for store in [one, other] { await store.close() }
      try cluster.copy(database, to: "copy")
      (one, other) = (try await open(here), try await open(there))
      #expect(try await one.purge([["a"]], of: "item") == PurgeReport(rows: 1, keys: 1))
      #expect(try await other.purge([["b"]], of: "item") == PurgeReport(rows: 1, keys: 1))
      let server = try #require(one.opening?.serverID)
      try await one.followLedger(server)
      #expect(try ledger(here) == ledger(there))
      #expect(try ledger(here).split(separator: "\n").count == 3)
      let mode = try FileManager.default.attributesOfItem(atPath: here.path + "/postgresql.salvor-purged")
      #expect(mode[.posixPermissions] as? Int == 0o600)
      for store in [one, other] { await store.close() }
      for folder in [there, here] {
        try cluster.putBack(database, from: "copy")
        let store = try await open(folder)
        #expect(try await items(store) == ["c"])
        await store.close()
      }
    }

    @Test("A process that lacked another one's purges when the database was put back: both count in the end")
    func parted() async throws {
      let (here, there) = (try StateFolder(), try StateFolder())
      var (one, other) = (try await open(here), try await open(there))
      try await write("a", "b", "c", "d", to: one)
      _ = try await one.purge([["d"]], of: "item")
      await one.close()
      await other.close()
      try cluster.copy(database, to: "copy")
      one = try await open(here)
      _ = try await one.purge([["a"]], of: "item")
      _ = try await one.releasePurged([["d"]], of: "item")
      await one.close()
      try cluster.putBack(database, from: "copy")
      // It has not looked since.
      other = try await open(there)
      #expect(try await items(other) == ["a", "b", "c"])
      _ = try await other.purge([["b"]], of: "item")
      one = try await open(here)
      #expect(try await items(one) == ["c"])
      try await other.followLedger(try #require(other.opening?.serverID))
      #expect(try ledger(here) == ledger(there))
      // What was released there is purged here: the stronger one stands until it is said again.
      #expect(try await one.releasePurged([["d"]], of: "item") == 1)
      await one.close()
      await other.close()
      one = try await open(here)
      #expect(try await items(one) == ["c"])
      await one.close()
    }

    @Test("A ledger that is torn or another server's stops the start, by name")
    func refused() async throws {
      let folder = try StateFolder()
      let path = folder.path + "/postgresql.salvor-purged"
      let store = try await open(folder)
      try await write("a", to: store)
      await store.close()
      try cluster.copy(database, to: "copy")
      _ = try await store.open(ServerSetup(schema: schema))
      _ = try await store.purge([["a"]], of: "item")
      let server = try #require(store.opening?.serverID)
      await store.close()
      let whole = try ledger(folder)
      try cluster.putBack(database, from: "copy")
      for text in [
        String(whole.dropLast(20)), whole.replacing(server.text, with: String(repeating: "0", count: 32)),
        whole.replacing("\"purge\"", with: "\"release\""),
      ] {
        try text.write(toFile: path, atomically: false, encoding: .utf8)
        let error = await #expect(throws: SalvorError.self) { _ = try await open(folder) }
        #expect(error?.message.contains(path) == true)
        #expect(try ledger(folder) == text)
      }
      try whole.write(toFile: path, atomically: false, encoding: .utf8)
      let restored = try await open(folder)
      #expect(try await items(restored) == [])
      await restored.close()
    }

    @Test("A copy of a database gets a server ID of its own while nobody has it open, and its ledger goes along")
    func adopts() async throws {
      let folder = try StateFolder()
      let store = try await open(folder)
      try await write("a", to: store)
      _ = try await store.purge([["a"]], of: "item")
      let before = try #require(store.opening?.serverID)
      var error = await #expect(throws: SalvorError.self) { _ = try await store.adoptNewID() }
      #expect(error?.code == .storageBusy)
      let beside = PostgreSQLServerStore(.init(url: database.url, connections: 4, stateDirectory: folder.path))
      error = await #expect(throws: SalvorError.self) { _ = try await beside.adoptNewID() }
      #expect(error?.code == .storageBusy)
      #expect(try await items(store) == [])
      await store.close()
      let renaming = try await beside.adoptNewID()
      #expect(renaming.before == before && renaming.now != before)
      let again = try await open(folder)
      #expect(again.opening?.serverID == renaming.now)
      #expect(again.opening?.isRestored == false)
      #expect(try await again.releasePurged([["a"]], of: "item") == 1)
      await again.close()
      let empty = PostgreSQLServerStore(.init(url: try cluster.database().url, connections: 4))
      error = await #expect(throws: SalvorError.self) { _ = try await empty.adoptNewID() }
      #expect(error?.code == .usage)
    }
  }
#endif
