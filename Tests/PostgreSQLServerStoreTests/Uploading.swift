#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire

  @testable import PostgreSQLServerStore
  @testable import ServerStoreSupport

  /// A suite that sends uploads into tables which it makes itself.
  protocol Uploading {
    var settings: ConnectionSettings { get }
    /// As another program has it.
    var desk: PostgreSQLConnection { get }
  }

  extension Uploading {
    func open(_ tables: Table..., timeLimit: Int64? = nil) async throws -> PostgreSQLServerStore {
      let store = PostgreSQLServerStore(
        PostgreSQLServerStore.Options(url: settings.url, connections: 4, statementTimeoutMilliseconds: timeLimit))
      do { _ = try await store.open(ServerSetup(schema: Schema(tables: tables))) } catch {
        await store.close()
        throw error
      }
      return store
    }

    func table(_ name: String, _ key: ColumnType, _ columns: Column..., unique: [[String]] = []) -> Table {
      Table(name, primaryKey: ["id"], columns: [Column("id", key)] + columns, unique: unique)
    }

    /// One upload of requests of one change each.
    func upload(
      _ store: PostgreSQLServerStore, _ changes: [(shape: UploadShape, values: [Value])], made: Int64? = nil
    ) async throws -> UploadResults {
      let remote = RemoteID(from: SystemRandom()), stamp = RequestStamp(from: SystemRandom())
      try await store.register(remote, principal: "anna")
      let newest = try await store.sweep().number
      let head = made ?? newest
      var writer = UploadChunkWriter()
      for (place, change) in changes.enumerated() {
        let shape = writer.place(of: change.shape)
        writer.beginChange(shape: shape, stamp: stamp, counter: Int64(place + 1), made: head)
        for value in change.values { writer.value(value) }
        writer.endChange()
      }
      let chunk = UploadChunk(
        bytes: writer.finish(), firstCounter: writer.firstCounter, lastCounter: writer.lastCounter,
        changeCount: writer.changeCount, isLast: true)
      return try await store.process(
        ProcessRequest(
          remote: remote, sequence: SequenceID(from: SystemRandom()), principal: Principal(name: "anna"),
          chunks: [chunk]))
    }

    func insert(_ table: String, _ columns: [String], _ values: Value...) -> (UploadShape, [Value]) {
      (UploadShape(table: table, operation: .insert, columns: columns), values)
    }

    func update(_ table: String, _ column: String, _ key: Value, _ old: Value, _ new: Value)
      -> (UploadShape, [Value])
    {
      (UploadShape(table: table, operation: .update, columns: [column]), [key, old, new])
    }

    func delete(_ table: String, _ key: Value) -> (UploadShape, [Value]) {
      (UploadShape(table: table, operation: .delete, columns: []), [key])
    }

    /// The first column.
    func rows(_ sql: String) throws -> [String] { try desk.rows(sql).compactMap { $0[0].string } }
  }
#endif
