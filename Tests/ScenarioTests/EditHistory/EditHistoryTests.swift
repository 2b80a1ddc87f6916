import Foundation
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

#if PostgreSQL
  import PostgreSQLServerStore
  import ServerStoreSupport
#endif

/// The whole history (`SALVOR_LONG_TESTS=1`), or its first 48 transactions with the first five that clash and the first
/// that a person put right by hand.
private let isWhole = ProcessInfo.processInfo.environment["SALVOR_LONG_TESTS"] == "1"

/// The legislators' edit history (Examples/legislators) through real clients on SQLite stores, a server on SQLite, and the
/// loopback transport. docs/internals/edit-history.md says what is shown by it, and explains every count.
///
/// **How it is replayed.** A line of work (`LineOfWork`) is written on a device of its first writer that has pulled exactly
/// the landing that its writer had, and is uploaded right before its own landing. One transaction is one request, tagged
/// with its number and its writer. A writer whose lines overlap has several devices. One whose request was refused goes on
/// with another device: the first one shows its own change in rows that others change, which the source's writer did not.
///
/// **What is expected** is computed beside it (`ExpectedServer`), from the stream and the words of semantics 7 alone, and
/// compared after every sync (accepted, refused, kept), and at the end: the server's rows, every device's rows, every
/// archive, every conflict version, each value for value.
///
/// **What the source's `resolve` transactions are** against what `keep-versions` flags: docs/internals/edit-history.md, *What a
/// person put right by hand*.
@Suite("The legislators' edit history, replayed through real clients with its true staleness", .serialized)
struct EditHistoryTests {
  @Test("client-wins: every side is equal to each other, and every clash is settled by the policy, or archived")
  func clientWins() async throws { try await replay("client-wins") }

  @Test("server-wins: every side is equal to each other, and every clash is merged or archived")
  func serverWins() async throws { try await replay("server-wins") }

  @Test("keep-versions: every side is equal to each other, and every clash is merged, listed or archived")
  func keepVersions() async throws { try await replay("keep-versions") }

  #if PostgreSQL
    /// `SALVOR_POSTGRESQL` is the URL of an empty database, of which each policy gets a schema.
    private static let postgreSQL = ProcessInfo.processInfo.environment["SALVOR_POSTGRESQL"]

    @Test(
      "the same with the server's rows in PostgreSQL",
      .enabled(if: postgreSQL != nil, "SALVOR_POSTGRESQL names no database: this did not run"),
      arguments: ["client-wins", "server-wins", "keep-versions"])
    func inPostgreSQL(_ policy: String) async throws {
      let url = try #require(Self.postgreSQL)
      let schema = policy.replacing("-", with: "_")
      let connection = try PostgreSQLConnection(to: url)
      defer { connection.close() }
      try connection.execute("CREATE SCHEMA \(schema)")
      let storage = "module: \"postgresql\", url: \"\(url)\", tablesIn: \"\(schema)\", schema: \"salvor_\(schema)\""
      try await replay(policy, server: (storage, { try Self.copy($0, of: schema, connection, to: $1) }))
    }

    /// The rows and the conflict versions, as a SQLite database.
    private static func copy(
      _ tables: [Table], of schema: String, _ server: PostgreSQLConnection, to path: String
    ) throws {
      let copy = try SQLiteConnection(path)
      defer { copy.close() }
      func take(_ name: String, of schema: String, _ columns: [String]) throws {
        try copy.execute("CREATE TABLE \(quoted(name)) (\(quotedList(columns)))")
        let places = columns.map { _ in "?" }.joined(separator: ", ")
        for row in try server.rows("SELECT \(quotedList(columns)) FROM \(quoted(schema)).\(quoted(name))") {
          try copy.run("INSERT INTO \(quoted(name)) VALUES (\(places))", row)
        }
      }
      try copy.transaction(.immediate) {
        for table in tables { try take(table.name, of: schema, table.columns.map(\.name)) }
        try take(
          "salvor_conflict", of: "salvor_\(schema)", ["id", "table", "key", "operation", "client", "resolution"])
      }
    }
  #endif

  private func replay(
    _ policy: String, server: (storage: String, copy: ([Table], String) throws -> Void)? = nil
  ) async throws {
    let counts = try #require(EditHistoryCounts.of(policy, isWhole: isWhole))
    let replay = try EditHistoryReplay(policy: policy, landingMax: isWhole ? Int.max : 66, server: server)
    try await replay.run()

    try replay.expectServerRows()
    try replay.expectDevices()
    let archived = try await replay.expectArchives()
    #expect(archived == counts.archivedChanges)
    let listed = try replay.expectConflictVersions()
    #expect(listed == counts.listedChanges)
    try await replay.expectDevicesWithoutArchives()

    let found = replay.reckoning
    #expect(found.transactions == counts.transactions)
    #expect(found.clashes == counts.clashes)
    #expect(found.clashingTransactions == (isWhole ? 48 : 5))
    #expect(found.resolutions == counts.resolutions)
    #expect(found.flaggedAtResolutions == counts.flaggedAtResolutions)
    #expect(found.partings == counts.partings)
    if isWhole { try expectSourcesEnd(replay, tablesAsTheSource: counts.tablesAsTheSource) }
  }

  /// The source's own rows have the hashes of summary.json, and so have those of the tables in which every row came to be as
  /// the source has it.
  private func expectSourcesEnd(_ replay: EditHistoryReplay, tablesAsTheSource: [String]) throws {
    let bytes = try [UInt8](Data(contentsOf: EditHistory.folder.appendingPathComponent("data/summary.json")))
    let hashes = try JSONValue(parsing: bytes)["final_sha256"]
    var same: [String] = []
    for (place, table) in replay.history.tables.enumerated() {
      let hash = hashes?[table.name]?.string
      #expect(replay.hash(of: place, in: replay.source.rows) == hash, "\(table.name)")
      if replay.hash(of: place, in: replay.expected.rows) == hash { same.append(table.name) }
    }
    #expect(same == tablesAsTheSource)
  }
}
