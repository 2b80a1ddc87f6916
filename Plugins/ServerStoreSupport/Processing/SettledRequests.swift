import SalvorModel
import SalvorStorage
import SalvorWire

/// The requests that were ever settled, as ranges of counters for each stamp with a hash of each one's content, and how they
/// were settled (semantics 5). They are asked for by stamp and content, not by remote ID: a recovered database has another
/// remote ID and sends the same requests, and two copies of one file may send different requests under one ID.
struct SettledRequests {
  enum Outcome {
    case accepted
    case refused(Refusal)
  }

  private struct Range {
    var first: Int64
    var last: Int64
    var refusal: String?
    /// As in `salvor_settled`; nil in a range that an earlier version wrote.
    var contents: [UInt8]?

    /// As it is, or as it was before its device dropped a column.
    func holds(_ request: StagedRequest) -> Bool {
      holds(request.first) { $0 == request.content.bits || $0 == request.wholeContent.bits }
        || request.former.contains { former in holds(former.first) { $0 == former.content } }
    }

    private func holds(_ counter: Int64, _ isContent: (UInt32) -> Bool) -> Bool {
      guard first <= counter && counter <= last else { return false }
      guard let contents else { return true }
      let place = contents.count == 4 ? 0 : Int(counter - first) * 4
      guard contents.count > 4 || counter == first, place + 4 <= contents.count else { return false }
      return isContent(contents[place..<place + 4].reduce(UInt32(0)) { $0 << 8 | UInt32($1) })
    }
  }

  private let connection: any StoreConnection
  private let remote: RemoteID
  private let now: Int64
  /// What earlier uploads settled, of the stamps of this one.
  private var known: [RequestStamp: [Range]] = [:]
  private var lastStamp: (stamp: RequestStamp, mayHold: Bool)?

  init(_ connection: any StoreConnection, _ remote: RemoteID, now: Int64) {
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

  private mutating func load(_ stamp: RequestStamp) throws -> [Range] {
    if let found = known[stamp] { return found }
    var found: [Range] = []
    try connection.query(
      "SELECT first, last, refusal, contents FROM salvor_settled WHERE stamp = ?1 ORDER BY contents IS NULL, first, id",
      [.text(stamp.text)]
    ) { row in
      found.append(
        Range(
          first: row.int64(0), last: row.int64(1), refusal: row.optionalString(2),
          contents: row.isNull(3) ? nil : row.withBlob(3) { Array($0) }))
      return true
    }
    known[stamp] = found
    return found
  }

  /// Nil: it is new, also where its ID is known with another content.
  mutating func outcome(of request: StagedRequest) throws -> Outcome? {
    guard try mayHold(request.stamp) else { return nil }
    guard let found = try load(request.stamp).first(where: { $0.holds(request) }) else { return nil }
    guard let text = found.refusal else { return .accepted }
    let json = try JSONValue(parsing: Array(text.utf8))
    return .refused(
      Refusal(
        counter: request.first, stamp: request.stamp,
        reason: RefusalReason(rawValue: try json.string("reason")) ?? .constraint, message: try json.string("message"),
        status: try json.optionalInteger("status").map { Int(clamping: $0) },
        blockedBy: try json.optionalString("blockedBy").flatMap { RequestID($0) }))
  }

  func write(_ accepted: [AcceptedRange]) throws {
    for range in accepted { try write(range.stamp, range.first, range.last, range.contents, refusal: .null) }
  }

  func write(_ refused: [(request: StagedRequest, refusal: Refusal)]) throws {
    for (request, refusal) in refused {
      let json: JSONValue = [
        "reason": .string(refusal.reason.rawValue), "status": .integer(Int64(refusal.status)),
        "message": .string(refusal.message),
        "blockedBy": refusal.blockedBy.map { .string($0.description) } ?? .null,
      ]
      try write(request.stamp, request.first, request.last, [request.content.bits], refusal: .text(json.text))
    }
  }

  private func write(
    _ stamp: RequestStamp, _ first: Int64, _ last: Int64, _ contents: [UInt32], refusal: Value
  ) throws {
    let bytes = contents.flatMap { bits in (0..<4).map { UInt8(truncatingIfNeeded: bits >> (24 - 8 * $0)) } }
    try connection.run(
      "INSERT INTO salvor_settled (stamp, first, last, remote, time, refusal, contents) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
      .text(stamp.text), .integer(first), .integer(last), .text(remote.text), .integer(now), refusal, .blob(bytes))
  }
}
