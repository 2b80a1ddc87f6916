import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// The IDs of the requests that were ever settled, as ranges of counters for each stamp, and how they were (semantics 5).
/// They are asked for by stamp alone: a recovered database has another remote ID and sends the same requests.
struct SettledRequests {
  enum Outcome {
    case accepted
    case refused(Refusal)
  }

  private let connection: SQLiteConnection
  private let remote: RemoteID
  private let now: Int64
  private var known: [RequestStamp: [(first: Int64, last: Int64, refusal: String?)]] = [:]
  private var lastStamp: (stamp: RequestStamp, mayHold: Bool)?

  init(_ connection: SQLiteConnection, _ remote: RemoteID, now: Int64) {
    self.connection = connection
    self.remote = remote
    self.now = now
  }

  /// False for nearly every stamp: it is new with each upload.
  mutating func mayHold(_ stamp: RequestStamp) throws -> Bool {
    if let lastStamp, lastStamp.stamp == stamp { return lastStamp.mayHold }
    let mayHold = try !load(stamp).isEmpty
    lastStamp = (stamp, mayHold)
    return mayHold
  }

  private mutating func load(_ stamp: RequestStamp) throws -> [(first: Int64, last: Int64, refusal: String?)] {
    if let found = known[stamp] { return found }
    var found: [(first: Int64, last: Int64, refusal: String?)] = []
    try connection.query(
      "SELECT first, last, refusal FROM salvor_settled WHERE stamp = ?1 ORDER BY first", [.text(stamp.text)]
    ) {
      found.append(($0.int64(0), $0.int64(1), $0.optionalString(2)))
      return true
    }
    known[stamp] = found
    return found
  }

  mutating func outcome(of request: StagedRequest) throws -> Outcome? {
    guard try mayHold(request.stamp) else { return nil }
    guard let found = try load(request.stamp).first(where: { $0.first <= request.first && request.first <= $0.last })
    else { return nil }
    guard let text = found.refusal else { return .accepted }
    let json = try JSONValue(parsing: Array(text.utf8))
    return .refused(
      Refusal(
        counter: request.first, stamp: request.stamp,
        reason: RefusalReason(rawValue: try json.string("reason")) ?? .constraint, message: try json.string("message"),
        blockedBy: try json.optionalString("blockedBy").flatMap { RequestID($0) }))
  }

  func write(_ tally: Tally) throws {
    let sql = """
      INSERT INTO salvor_settled (stamp, first, last, remote, time, refusal) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
      ON CONFLICT DO UPDATE SET last = ?3, refusal = ?6
      """
    for range in tally.acceptedRanges {
      try connection.run(
        sql, .text(range.stamp.text), .integer(range.first), .integer(range.last), .text(remote.text), .integer(now),
        .null)
    }
    for (request, refusal) in tally.refusedRequests {
      let json: JSONValue = [
        "reason": .string(refusal.reason.rawValue), "message": .string(refusal.message),
        "blockedBy": refusal.blockedBy.map { .string($0.description) } ?? .null,
      ]
      try connection.run(
        sql, .text(request.stamp.text), .integer(request.first), .integer(request.last), .text(remote.text),
        .integer(now), .text(json.text))
    }
  }
}
