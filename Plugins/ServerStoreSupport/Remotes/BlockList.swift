import SalvorModel
import SalvorStorage
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What the file's name has more than the database's.
package let blockListSuffix = ".salvor-blocked"

/// The remotes that an administrator keeps out, in a file beside the database, or in a process's own folder: a restore does not put it back.
/// The database decides, and counts the acts of blocking and letting in. The file has its list as of such an act: where the database knows of
/// fewer acts it is an older one, and whoever is in the file is kept out again.
package struct BlockList: Sendable {
  private struct Content: Hashable {
    var acts: Int64
    /// Each with its principal.
    var blocked: [[String]]

    func json(_ server: ServerID) -> JSONValue {
      let entries = blocked.map { JSONValue.array($0.map(JSONValue.string)) }
      return .object([
        .init("server", .string(server.text)), .init("acts", .integer(acts)), .init("blocked", .array(entries)),
      ])
    }
  }

  private let path: String
  /// Of a file that is made.
  private let mode: mode_t

  package init(path: String, mode: mode_t = 0o600) {
    self.path = path
    self.mode = mode
  }

  /// As `RemoteBook.delete`. In a transaction: where the file cannot be written nobody is kept out either.
  package func delete(
    _ remote: RemoteID, block: Bool, _ connection: any StoreConnection, of server: ServerID, now: Int64
  ) throws -> Bool {
    let book = RemoteBook(connection: connection)
    let wasBlocked = try book.remote(remote)?.isBlocked == true
    let isDeleted = try book.delete(remote, block: block, now: now)
    guard isDeleted, block || wasBlocked else { return isDeleted }
    try setActs(try acts(connection) + 1, connection)
    try note(connection, of: server)
    return true
  }

  /// With an opening, in a transaction. Answers with what is to be said of it.
  package func open(
    _ connection: any StoreConnection, of server: ServerID, now: Int64
  ) throws -> [String] {
    var notices: [String] = []
    if Files.exists(path) {
      let (isReadable, content) = read(of: server)
      if !isReadable {
        notices.append("\(path) cannot be read. If the database was restored, block again whom the copy does not know.")
      }
      let acts = try acts(connection)
      if let content, acts < content.acts {
        let count = try keepOut(content.blocked, connection, now: now)
        try setActs(content.acts, connection)
        if count > 0 {
          notices.append(
            "\(count == 1 ? "1 remote ID is" : "\(count) remote IDs are") blocked again: the database is from before that (\(path))."
          )
        }
      }
    }
    try note(connection, of: server)
    return notices
  }

  /// Answers with how many were not.
  private func keepOut(_ blocked: [[String]], _ connection: any StoreConnection, now: Int64) throws -> Int64 {
    var count: Int64 = 0
    for entry in blocked {
      try connection.run(
        """
        INSERT INTO salvor_remote (id, principal, blocked, deleted, registered) VALUES (?1, ?2, 1, 1, ?3)
          ON CONFLICT (id) DO UPDATE SET blocked = 1, deleted = 1, sequence = NULL WHERE salvor_remote.blocked = 0
        """, .text(entry[0]), .text(entry[1]), .integer(now))
      count += Int64(connection.changes)
    }
    return count
  }

  private func acts(_ connection: any StoreConnection) throws -> Int64 {
    try connection.integer("SELECT value FROM salvor_server WHERE key = 'block-acts'") ?? 0
  }

  private func setActs(_ count: Int64, _ connection: any StoreConnection) throws {
    try connection.run(
      "INSERT INTO salvor_server (key, value) VALUES ('block-acts', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
      .text(String(count)))
  }

  /// The file says what the database does.
  private func note(_ connection: any StoreConnection, of server: ServerID) throws {
    let rows = try connection.rows("SELECT id, principal FROM salvor_remote WHERE blocked = 1 ORDER BY id")
    let isThere = Files.exists(path)
    if rows.isEmpty, !isThere { return }
    let content = Content(acts: try acts(connection), blocked: rows.map { $0.map { $0.string ?? "" } })
    let bytes = content.json(server).bytes + [0x0A]
    if isThere, try Files.contents(path) == bytes { return }
    try Files.replace(path, with: bytes, mode: mode)
  }

  /// No content: another server's.
  private func read(of server: ServerID) -> (isReadable: Bool, Content?) {
    guard let bytes = try? Files.contents(path), let json = try? JSONValue(parsing: bytes),
      let known: ServerID = try? json.identifier("server"), let acts = json["acts"]?.integer,
      let entries = json["blocked"]?.array
    else { return (false, nil) }
    let blocked = entries.map { ($0.array ?? []).compactMap(\.string) }
    guard blocked.allSatisfy({ $0.count == 2 }) else { return (false, nil) }
    return (true, known == server ? Content(acts: acts, blocked: blocked) : nil)
  }
}
