import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Where the values of waiting requests go whose table or column is dropped: entries of the archive (`kept`, reason
/// `schema-dropped`), each a request of its own, of a retired table.
struct SchemaArchive {
  static let reason = "schema-dropped"

  let connection: SQLiteConnection
  /// The last one given.
  private(set) var counter: Int64
  private(set) var count: Int64 = 0

  init(connection: SQLiteConnection, counter: Int64) {
    self.connection = connection
    self.counter = counter
  }

  /// The next counter, for what is no entry.
  mutating func next() -> Int64 {
    counter += 1
    return counter
  }

  mutating func keep(
    _ step: RowTimeline.Step, _ table: CapturedTable, _ key: Key, _ message: String, _ context: StoreContext,
    reason: String = Self.reason
  ) throws {
    counter += 1
    count += 1
    var entry = step
    entry.seq = counter
    entry.isJoined = false
    try context.archive(
      entry, of: RequestRange(first: counter, last: counter), table, key,
      kept: (reason, message))
  }
}

extension StoreContext {
  /// Takes changes out of the log. A request that has others left goes on with those, under the counter of the first.
  func takeOut(_ counters: [Int64]) throws {
    var requests: Set<RequestRange> = []
    for counter in counters {
      requests.insert(try range(of: counter))
      try deleteChange(counter)
    }
    try forgetStored()
    for request in requests {
      let left = try connection.integer(
        "SELECT min(seq) FROM salvor_log WHERE seq BETWEEN ?1 AND ?2 AND op IN \(Self.changeOperations)",
        .integer(request.first), .integer(request.last))
      guard let left else {
        try forget(request)
        continue
      }
      if left != request.first { try moveStart(of: request, to: left) }
    }
  }
}
