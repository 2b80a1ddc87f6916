#if PostgreSQL
  import Foundation
  import SalvorModel
  import SalvorStorage
  import Testing

  @testable import PostgreSQLServerStore
  @testable import ServerStoreSupport

  /// A database with a change log over some tables of an application's.
  struct LogDesk: Sendable {
    static let schema = Schema(tables: [
      Table(
        "note", primaryKey: ["id"],
        columns: [Column("id", .text), Column("body", .text, nullable: true), Column("owner", .text, nullable: true)],
        scope: [ScopeColumn(column: "owner", source: .principal)]),
      Table(
        "line", primaryKey: ["note", "number"],
        columns: [Column("note", .text), Column("number", .integer), Column("extra", .json, nullable: true)],
        references: [Reference(column: "note", table: "note", onDelete: .cascade)]),
    ])

    let settings: ConnectionSettings
    let catalog: Catalog
    var tables: [ServerTable] { catalog.tables }
    var logWidth: Int { Catalog.logWidth(of: tables) }

    init(capturesReplicas: Bool = false, in cluster: PrivateCluster? = nil, bodies: String = "text") throws {
      settings = try #require(cluster ?? PrivateCluster.shared).database()
      let connection = try PostgreSQLConnection(settings)
      try connection.execute(
        """
        CREATE TABLE public.note (id text COLLATE "C" PRIMARY KEY, body \(bodies), owner text, local_only text);
        CREATE TABLE public.line (note text COLLATE "C" REFERENCES public.note (id) ON DELETE CASCADE ON UPDATE CASCADE,
          number bigint, extra json, PRIMARY KEY (note, number))
        """)
      catalog = try Self.install(connection, capturesReplicas: capturesReplicas)
    }

    static func install(_ connection: PostgreSQLConnection, capturesReplicas: Bool = false) throws -> Catalog {
      var installation = Installation(
        connection, ServerSetup(schema: schema), random: SystemRandom(), clock: SystemClock(),
        capturesReplicas: capturesReplicas)
      return try installation.run(beginsIncarnation: { _ in true })
    }

    func connection() throws -> PostgreSQLConnection {
      let connection = try PostgreSQLConnection(settings)
      connection.logWidth = logWidth
      return connection
    }

    struct Sealed: Hashable {
      var number: Int64
      var last: Int64
      /// Entries that got their numbers.
      var count: Int64
    }

    @discardableResult
    func seal(_ connection: PostgreSQLConnection, isFirst: Bool = false) throws -> Sealed {
      for _ in 0..<50 {
        do {
          return try connection.transaction(Sealing(connection: connection).begin()) {
            let before = try CommitLog.state(connection)
            try Sealing(connection: connection).numberOthers(isFirst: isFirst)
            connection.numbered = 0
            defer { connection.numbered = nil }
            let head = try log(connection).sweep()
            let last = try CommitLog.state(connection).lastSequence
            return Sealed(number: head.number, last: last, count: last - before.lastSequence)
          }
        } catch let error as SalvorError where connection.failure(error) == .serialization {}
      }
      throw SalvorError(.storageBusy, "Others are in the way.")
    }

    func log(_ connection: PostgreSQLConnection) -> CommitLog {
      CommitLog(
        connection, catalog: catalog, incarnation: IncarnationID(from: SystemRandom()), random: SystemRandom(),
        clock: SystemClock())
    }

    /// What the log has after an entry: table, operation, mask, key and old values, without those that are NULL at the end.
    func entries(_ connection: PostgreSQLConnection, after sequence: Int64 = 0) throws -> [String] {
      let values = (0..<logWidth).map { "v\($0)" }.joined(separator: ", ")
      return try connection.rows(
        "SELECT t, op, m, \(values) FROM salvor_change WHERE seq > ?1 ORDER BY seq", .integer(sequence)
      )
      .map { row in
        let words = row.map { value -> String in
          switch value {
          case .integer(let number): "\(number)"
          case .null: "-"
          default: value.string ?? "?"
          }
        }
        return words.joined(separator: " ")
      }
    }
  }

  /// Runs each of them on a thread of its own, to its end.
  func onThreads(_ works: [@Sendable () throws -> Void]) throws {
    let errors = Mutex<[any Error]>([])
    let group = DispatchGroup()
    for work in works {
      group.enter()
      Thread {
        do { try work() } catch { errors.withLock { $0.append(error) } }
        group.leave()
      }.start()
    }
    group.wait()
    if let error = errors.withLock({ $0.first }) { throw error }
  }
#endif
