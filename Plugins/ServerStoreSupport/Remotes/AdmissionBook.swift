import SalvorModel
import SalvorStorage

/// What the checks of a begin ask about. A device that is in step is answered by one statement.
package struct AdmissionBook {
  private let connection: any StoreConnection
  private let catalog: Catalog

  package init(_ connection: any StoreConnection, _ catalog: Catalog) {
    self.connection = connection
    self.catalog = catalog
  }

  /// The groups of a device mostly have one cursor.
  private static let numbersMax = 8

  /// One statement says it all: it needs no transaction to be of one moment. The others read in one.
  package static func isPlain(_ query: AdmissionQuery) -> Bool {
    query.commits.isEmpty && query.incarnations.isEmpty && Set(query.cursors.map(\.number)).count <= numbersMax
  }

  /// Nil: there is something to number first.
  package func admission(_ query: AdmissionQuery, now: Int64) throws -> Admission? {
    let book = RemoteBook(connection: connection)
    let finder = CommitFinder(connection: connection)
    let numbers = Set(query.cursors.map(\.number)).sorted()
    let asked = numbers.count <= Self.numbersMax ? numbers : []
    let remote = RemoteBook.columns.split(separator: ", ").map { "r.\($0)" }
    let columns =
      remote + [
        "(SELECT 1 FROM salvor_sequence WHERE remote = ?1 AND sequence = ?2)",
        "(SELECT value FROM salvor_server WHERE key = 'trimmed')",
        "(SELECT value FROM salvor_server WHERE key = 'heal-settlings')",
        "(SELECT id FROM salvor_incarnation ORDER BY first_commit DESC LIMIT 1)",
        "(SELECT count(*) FROM salvor_heal_waiting WHERE remote = ?1 AND operation <> ?3)",
        "(SELECT count(*) FROM salvor_heal_waiting WHERE remote = ?1 AND operation = ?3)",
      ] + asked.indices.map { "(SELECT id FROM salvor_commit WHERE number = ?\($0 + 4))" }
    var admission = Admission(
      remote: nil, previousIsOlder: false, cursors: [], lastShared: nil,
      head: Commit(number: 0, id: CommitID(unchecked: "")))
    var trimmed: Int64 = 0
    var newest: String?
    var made: [Int64: String] = [:]
    let state = try CommitLog.state(
      connection, with: columns, join: "LEFT JOIN salvor_remote r ON r.id = ?1",
      [
        .text(query.remote.text), query.previous.map { .text($0.text) } ?? .null, .text(Operation.delete.rawValue),
      ] + asked.map { .integer($0) }
    ) { row in
      let first = remote.count
      admission.remote = row.isNull(0) ? nil : book.record(row)
      admission.previousIsOlder = !row.isNull(first)
      trimmed = row.isNull(first + 1) ? 0 : row.int64(first + 1)
      admission.settlings = row.isNull(first + 2) ? 0 : row.int64(first + 2)
      newest = row.optionalString(first + 3)
      admission.waitingOffers = row.int64(first + 4)
      admission.waitingDeletes = row.int64(first + 5)
      for (place, number) in asked.enumerated() { made[number] = row.optionalString(first + 6 + place) }
    }
    guard state.isSealed else { return nil }
    admission.head = state.head
    admission.cursors =
      asked.count == numbers.count
      ? CommitFinder.findings(query.cursors, trimmed: trimmed, made: made) : try finder.findings(query.cursors)
    admission.lastShared = try finder.lastShared(query, head: state.head)
    admission.incarnations = try finder.untold(after: query.incarnation, newest: newest)
    admission.page = FeedPageMaker.nothing(query, admission, catalog, now: now)
    return admission
  }
}
