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
        columns: [Column("note", .text), Column("number", .integer), Column("extra", .json, nullable: true)]),
    ])

    let settings: ConnectionSettings
    let tables: [ServerTable]
    var logWidth: Int { Catalog.logWidth(of: tables) }

    init(capturesReplicas: Bool = false, in cluster: PrivateCluster? = nil) throws {
      settings = try #require(cluster ?? PrivateCluster.shared).database()
      let schema = Self.schema
      tables = schema.tables.enumerated().map { place, table in
        ServerTable(
          table, schema: schema, number: Int64(place + 1), generation: 0, uniqueIndexes: [],
          columnNumbers: Dictionary(uniqueKeysWithValues: table.columns.enumerated().map { ($1.name, Int64($0)) }),
          dialect: PostgreSQLDialect())
      }
      let connection = try connection()
      try connection.execute(
        """
        CREATE TABLE note (id text COLLATE "C" PRIMARY KEY, body text, owner text, local_only text);
        CREATE TABLE line (note text COLLATE "C" REFERENCES note (id) ON DELETE CASCADE ON UPDATE CASCADE, number bigint,
          extra json, PRIMARY KEY (note, number))
        """)
      try LogInstallation(connection).run(tables, capturesReplicas: capturesReplicas)
    }

    func connection() throws -> PostgreSQLConnection { try PostgreSQLConnection(settings) }

    @discardableResult
    func seal(_ connection: PostgreSQLConnection, isFirst: Bool = false) throws -> Sealing.Sealed {
      try connection.transaction {
        try Sealing(connection: connection, logWidth: logWidth).seal(
          CommitID(from: SystemRandom()), incarnation: nil, now: 0, isFirst: isFirst)
      }
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
