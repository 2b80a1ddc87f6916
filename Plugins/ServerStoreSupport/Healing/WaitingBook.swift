import SalvorModel
import SalvorStorage
import SalvorWire

/// The offers that the server holds (semantics 10): each with the text of an upload that is this offer alone, and with whom it
/// came from. Settling them is processing that upload.
package struct WaitingBook {
  package static let tables = """
    CREATE TABLE IF NOT EXISTS salvor_heal_waiting (
      place INTEGER PRIMARY KEY, stamp TEXT NOT NULL, counter INTEGER NOT NULL, remote TEXT NOT NULL,
      principal TEXT NOT NULL, restore INTEGER NOT NULL, reason TEXT NOT NULL, "table" TEXT NOT NULL, key TEXT NOT NULL,
      operation TEXT NOT NULL, incarnation TEXT NOT NULL, number INTEGER NOT NULL, parting INTEGER NOT NULL,
      parent TEXT, parent_key TEXT, payload BLOB NOT NULL, time INTEGER NOT NULL);
    CREATE UNIQUE INDEX IF NOT EXISTS salvor_heal_waiting_request ON salvor_heal_waiting (stamp, counter);
    DROP INDEX IF EXISTS salvor_heal_waiting_remote;
    CREATE INDEX IF NOT EXISTS salvor_heal_waiting_of ON salvor_heal_waiting (remote, operation);
    CREATE INDEX IF NOT EXISTS salvor_heal_waiting_reason ON salvor_heal_waiting (reason, place);
    CREATE INDEX IF NOT EXISTS salvor_heal_waiting_key ON salvor_heal_waiting ("table", key);
    CREATE INDEX IF NOT EXISTS salvor_heal_waiting_parent ON salvor_heal_waiting (parent, parent_key);
    """

  /// So many offers are held. What comes beyond waits on its device alone.
  static let offersMax: Int64 = 1_000_000
  /// How many are settled in one transaction.
  package static let batch = 500

  let connection: any StoreConnection

  package init(connection: any StoreConnection) { self.connection = connection }

  package func isEmpty() throws -> Bool {
    try connection.integer("SELECT 1 FROM salvor_heal_waiting LIMIT 1") == nil
  }

  /// Deletes are the server's alone: their device does not wait for them.
  package func count(of remote: RemoteID) throws -> Int64 {
    try connection.integer(
      "SELECT count(*) FROM salvor_heal_waiting WHERE remote = ?1 AND operation <> ?2", .text(remote.text),
      .text(Operation.delete.rawValue)) ?? 0
  }

  package func settlings() throws -> Int64 {
    try connection.integer("SELECT value FROM salvor_server WHERE key = 'heal-settlings'") ?? 0
  }

  func countSettling() throws {
    try connection.run(
      "INSERT INTO salvor_server (key, value) VALUES ('heal-settlings', ?1) ON CONFLICT (key) DO UPDATE SET value = ?1",
      .text(String(try settlings() + 1)))
  }

  // MARK: Keeping

  /// What an upload knows of the table, so that it counts it once.
  struct Held {
    /// The last place; nil: not looked.
    fileprivate var place: Int64?
    fileprivate var count: Int64 = 0
    fileprivate var losses: RestoreBook.Losses?
    /// Lines of it may be gone.
    fileprivate(set) var hasForgotten = false
  }

  func keep(
    _ requests: [RefusedRequest], of upload: ProcessRequest, _ catalog: Catalog, now: Int64, _ held: inout Held
  ) throws {
    guard requests.contains(where: { $0.wait?.reason != nil }) else { return }
    let principal = Value.text(upload.principal.stored)
    var place = try held.place ?? connection.integer("SELECT max(place) FROM salvor_heal_waiting") ?? 0
    if held.place == nil { held.count = try connection.integer("SELECT count(*) FROM salvor_heal_waiting") ?? 0 }
    defer { held.place = place }
    let losses = try held.losses ?? RestoreBook(connection: connection).losses()
    held.losses = losses
    for entry in requests {
      guard let wait = entry.wait, let reason = wait.reason, let change = entry.request.changes.first,
        let offer = change.offer, let table = change.table
      else { continue }
      let restore = losses.restore(of: offer.version.number, offer.version.incarnation) ?? 0
      let key = Self.text(change.key)
      let parent = wait.parent.map { (catalog.tables[$0.table].name, Self.text($0.key)) }
      let known = try connection.integer(
        "SELECT place FROM salvor_heal_waiting WHERE stamp = ?1 AND counter = ?2", .text(entry.request.stamp.text),
        .integer(entry.request.first))
      if let known {
        try connection.run(
          """
          UPDATE salvor_heal_waiting SET remote = ?2, principal = ?3, reason = ?4, parent = ?5, parent_key = ?6
            WHERE place = ?1
          """, .integer(known), .text(upload.remote.text), principal, .text(reason.rawValue),
          parent.map { .text($0.0) } ?? .null, parent.map { .text($0.1) } ?? .null)
        continue
      }
      guard held.count < Self.offersMax else { continue }
      held.count += 1
      place += 1
      try connection.run(
        """
        INSERT INTO salvor_heal_waiting (place, stamp, counter, remote, principal, restore, reason, "table", key,
          operation, incarnation, number, parting, parent, parent_key, payload, time)
        VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17)
        """, .integer(place), .text(entry.request.stamp.text), .integer(entry.request.first), .text(upload.remote.text),
        principal, .integer(restore), .text(reason.rawValue), .text(catalog.tables[table].name), .text(key),
        .text(change.operation.rawValue), .text(offer.version.incarnation.text), .integer(offer.version.number),
        .integer(offer.version.parting), parent.map { .text($0.0) } ?? .null, parent.map { .text($0.1) } ?? .null,
        .blob(Self.payload(entry.request, catalog)), .integer(now))
    }
  }

  func forget(_ ids: [RequestID], _ held: inout Held) throws {
    guard !ids.isEmpty, try !isEmpty() else { return }
    try remove(ids)
    held.hasForgotten = true
  }

  /// In portions of three sizes, so that there are three statements; a portion that is not full has its last counter more than once.
  private func remove(_ ids: [RequestID], of remote: RemoteID? = nil) throws {
    for (stamp, ids) in Dictionary(grouping: ids, by: \.stamp) {
      var rest = ids.map(\.counter)[...]
      while let last = rest.last {
        let size = [1, 16].first { rest.count <= $0 } ?? 256
        let counters = rest.prefix(size)
        rest = rest.dropFirst(size)
        let padded = counters + Array(repeating: last, count: size - counters.count)
        let places = (0..<size).map { "?\($0 + 2)" }.joined(separator: ", ")
        let ofRemote = remote == nil ? "" : " AND remote = ?\(size + 2)"
        try connection.run(
          "DELETE FROM salvor_heal_waiting WHERE stamp = ?1 AND counter IN (\(places))\(ofRemote)",
          [.text(stamp.text)] + padded.map { .integer($0) } + [remote.map { .text($0.text) }].compactMap { $0 })
      }
    }
  }

  /// The remote takes back offers of its own. Answers how many waited, deletes aside.
  package func withdraw(_ ids: [RequestID], of remote: RemoteID) throws -> Int64 {
    let before = try count(of: remote)
    try remove(ids, of: remote)
    return try before - count(of: remote)
  }

  package func forget(_ table: String, key: Value) throws {
    guard try !isEmpty() else { return }
    try connection.run("DELETE FROM salvor_heal_waiting WHERE \"table\" = ?1 AND key = ?2", .text(table), key)
    try countSettling()
  }

  /// The offer as an upload of its own. Its incarnations' order is told already.
  private static func payload(_ request: StagedRequest, _ catalog: Catalog) -> [UInt8] {
    var writer = UploadChunkWriter()
    for change in request.changes {
      guard let place = change.table, let offer = change.offer else { continue }
      let table = catalog.tables[place]
      writer.lost([offer.version.incarnation], order: [])
      writer.offer(first: change.counter, last: change.counter, offer)
      let columns = change.operation == .delete ? [] : change.columns.map { table.columns[$0].name }
      let shape = writer.place(of: UploadShape(table: table.name, operation: change.operation, columns: columns))
      writer.beginChange(shape: shape, stamp: request.stamp, counter: change.counter, made: change.made)
      if change.operation != .insert { for value in change.key { writer.value(value, isKey: true) } }
      for index in change.columns.indices where change.operation != .delete {
        if change.operation == .update { writer.value(change.old[index]) }
        writer.value(change.new[index], isKey: table.keyPlaces.contains(change.columns[index]))
      }
      writer.endChange()
    }
    return writer.finish()
  }

  static func text(_ key: Key) -> String { key.stored }

  // MARK: Settling

  /// What is chosen of the offers: places, oldest first.
  package func places(
    _ reasons: [WaitingReason], _ query: WaitingQuery = WaitingQuery(), before time: Int64 = .max, limit: Int
  ) throws -> [Int64] {
    let (condition, values) = Self.condition(query)
    // Of each reason by itself: its index has them in this order.
    let places = try reasons.flatMap { reason in
      try connection.rows(
        """
        SELECT place FROM salvor_heal_waiting WHERE reason = '\(reason.rawValue)' AND time < ?1\(condition) ORDER BY place
          LIMIT \(max(0, limit))
        """, [.integer(time)] + values
      ).compactMap { $0[0].integer }
    }
    return Array(places.sorted().prefix(max(0, limit)))
  }

  private static func condition(_ query: WaitingQuery) -> (String, [Value]) {
    var condition = ""
    var values: [Value] = []
    func add(_ column: String, _ value: Value) {
      values.append(value)
      condition += " AND \(column) = ?\(values.count + 1)"
    }
    if let restore = query.restore { add("restore", .integer(restore)) }
    if let table = query.table { add("\"table\"", .text(table)) }
    if let remote = query.remote { add("remote", .text(remote.text)) }
    return (condition, values)
  }

  /// Whether a row is there, or never will be.
  private func isSettled(_ rows: RowReader, _ place: Int, _ key: Key) throws -> Bool {
    try rows.row(place, key) != nil || PurgeBook(connection).isPurged(rows.catalog.tables[place], key)
  }

  /// Those whose parent is there now, or was erased, among the rows that some entries of the log are of.
  ///
  /// - Parameters:
  ///   - first: what the log has up to this entry was looked at before.
  ///   - last: the last entry to look at.
  package func placesWithParent(_ rows: RowReader, after first: Int64, to last: Int64) throws -> [Int64] {
    var places: [Int64] = []
    for (name, place) in try parents(rows.catalog) {
      let table = rows.catalog.tables[place]
      var keys: [Key] = []
      try connection.query(
        """
        SELECT DISTINCT \(table.logKey("c")) FROM salvor_change c WHERE c.seq > ?1 AND c.seq <= ?2
          AND c.t = \(table.number) AND c.op > \(LogOperation.touch)
        """, [.integer(first), .integer(last)]
      ) { entry in
        keys.append(table.logKey(of: entry, from: 0))
        return true
      }
      for key in keys {
        let waiting = try connection.rows(
          "SELECT place FROM salvor_heal_waiting WHERE parent = ?1 AND parent_key = ?2 AND reason = 'parent'",
          .text(name), .text(Self.text(key)))
        if try !waiting.isEmpty && isSettled(rows, place, key) { places += waiting.compactMap { $0[0].integer } }
      }
    }
    return places.sorted()
  }

  /// The tables whose rows something waits for, each with its place in the catalog.
  private func parents(_ catalog: Catalog) throws -> [(name: String, place: Int)] {
    try connection.rows("SELECT DISTINCT parent FROM salvor_heal_waiting WHERE parent IS NOT NULL").compactMap { row in
      row[0].string.flatMap { name in catalog.place(of: name).map { (name, $0) } }
    }
  }

  /// The places of those whose parent is there, among so many that wait for one after the place, and the last place that was looked
  /// at; nil: there are no more.
  package func placesWithParent(
    _ rows: RowReader, from place: Int64, limit: Int
  ) throws -> (places: [Int64], last: Int64?) {
    var places: [Int64] = []
    let waiting = try connection.rows(
      """
      SELECT place, parent, parent_key FROM salvor_heal_waiting WHERE reason = 'parent' AND place > ?1 ORDER BY place
        LIMIT \(limit)
      """, [.integer(place)])
    for row in waiting {
      guard let name = row[1].string, let table = rows.catalog.place(of: name), let text = row[2].string else {
        continue
      }
      let key = Self.key(text)
      if try key.count == rows.catalog.tables[table].keyCount && isSettled(rows, table, key) {
        places += [row[0].integer].compactMap { $0 }
      }
    }
    return (places, waiting.count < limit ? nil : waiting.last?[0].integer)
  }

  // MARK: Telling

  package func counts() throws -> [WaitingCount] {
    try connection.rows(
      """
      SELECT restore, "table", remote, operation, reason, count(*) FROM salvor_heal_waiting
        GROUP BY restore, "table", remote, operation, reason ORDER BY restore DESC, "table", remote, operation, reason
      """
    ).compactMap { row in
      guard let remote = row[2].string.flatMap({ RemoteID($0) }),
        let operation = row[3].string.flatMap({ Operation(rawValue: $0) }),
        let reason = row[4].string.flatMap({ WaitingReason(rawValue: $0) })
      else { return nil }
      return WaitingCount(
        restore: row[0].integer ?? 0, table: row[1].string ?? "", remote: remote, operation: operation, reason: reason,
        count: row[5].integer ?? 0)
    }
  }

  package func list(
    _ query: WaitingQuery, after: Int64, limit: Int, _ rows: RowReader
  ) throws -> [WaitingOffer] {
    let (condition, values) = Self.condition(query)
    var found: [WaitingOffer] = []
    try connection.query(
      """
      SELECT place, restore, stamp, counter, remote, principal, time, "table", key, operation, incarnation, number, parting,
        reason, parent, parent_key, payload
      FROM salvor_heal_waiting WHERE place > ?1\(condition) ORDER BY place LIMIT \(max(0, limit))
      """, [.integer(after)] + values
    ) { row in
      guard let stamp = RequestStamp(row.string(2)), let remote = RemoteID(row.string(4)),
        let operation = Operation(rawValue: row.string(9)), let incarnation = IncarnationID(row.string(10)),
        let reason = WaitingReason(rawValue: row.string(13))
      else { return true }
      let table = row.string(7)
      let parent = row.optionalString(14).map { WaitingOffer.ParentRow(table: $0, key: Self.key(row.string(15))) }
      found.append(
        WaitingOffer(
          place: row.int64(0), restore: row.int64(1), request: RequestID(stamp: stamp, counter: row.int64(3)),
          remote: remote, principal: Principal(stored: row.string(5))?.name ?? "", time: row.int64(6), table: table,
          key: Self.key(row.string(8)), operation: operation,
          version: LostVersion(incarnation: incarnation, number: row.int64(11), parting: row.int64(12)),
          reason: reason, parent: parent, values: try Self.values(row.withBlob(16) { Array($0) }, rows.catalog),
          present: nil))
      return true
    }
    for index in found.indices {
      guard let place = rows.catalog.place(of: found[index].table),
        found[index].key.count == rows.catalog.tables[place].keyCount,
        let present = try rows.row(place, found[index].key)
      else { continue }
      found[index].present = zip(rows.catalog.tables[place].columns, present).map { NamedValue($0.name, $1) }
    }
    return found
  }

  private static func key(_ text: String) -> Key {
    ((try? JSONValue(parsing: Array(text.utf8)))?.array ?? []).compactMap(\.rowValue)
  }

  private static func values(_ payload: [UInt8], _ catalog: Catalog) throws -> [NamedValue] {
    var reader = UploadRequestReader(schema: catalog.schema)
    let requests = try reader.read(payload) + [reader.finish()].compactMap { $0 }
    return requests.flatMap(\.changes).flatMap(\.columns).map { NamedValue($0.name, $0.new) }
  }

  // MARK: Pace

  package func pace() throws -> HealPace {
    var pace = HealPace()
    try connection.query("SELECT key, value FROM salvor_server WHERE key IN ('heal-paused', 'heal-rate')", []) { row in
      if row.string(0) == "heal-paused" {
        pace.isPaused = row.string(1) == "1"
      } else {
        pace.rowsPerSecond = Int64(row.string(1))
      }
      return true
    }
    return pace
  }

  package func setPace(_ pace: HealPace) throws {
    for (key, value) in [
      ("heal-paused", pace.isPaused ? "1" : nil), ("heal-rate", pace.rowsPerSecond.map(String.init)),
    ] {
      try connection.run("DELETE FROM salvor_server WHERE key = ?1", .text(key))
      if let value {
        try connection.run("INSERT INTO salvor_server (key, value) VALUES (?1, ?2)", .text(key), .text(value))
      }
    }
  }
}
