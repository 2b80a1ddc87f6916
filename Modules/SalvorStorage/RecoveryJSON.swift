import SalvorModel
import SalvorWire

extension RowQuery {
  /// One line of the body of `POST /v1/recovery/TOKEN/rows`.
  public var json: JSONValue {
    var members: [JSONValue.Member] = [.init("table", .string(table))]
    if let range {
      members.append(.init("range", .array([keyJSON(range.after), keyJSON(range.last)])))
    }
    members.append(.init("keys", .array(keys.map { keyJSON($0) })))
    if !digests.isEmpty { members.append(.init("digests", .array(digests.map(JSONValue.string)))) }
    return .object(members)
  }

  /// Throws `malformed` where a member is missing or of another kind, and where digests are given, but not one for
  /// each key.
  public init(_ json: JSONValue) throws(SalvorError) {
    table = try json.string("table")
    if let pair = try json.optionalArray("range") {
      guard pair.count == 2 else { throw SalvorError(.malformed, "A range must be [after, last].") }
      range = Range(after: try key(pair[0]), last: try key(pair[1]))
    }
    keys = []
    for entry in try json.array("keys") {
      guard let key = try key(entry) else { throw SalvorError(.malformed, "A key must be an array of values.") }
      keys.append(key)
    }
    digests = try json.optionalArray("digests")?.compactMap(\.string) ?? []
    guard digests.isEmpty || digests.count == keys.count else {
      throw SalvorError(.malformed, "There must be one digest for each key.")
    }
  }
}

extension RangeQuestion {
  /// One line of the body of `POST …/ranges`.
  public var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("table", .string(table)), .init("after", keyJSON(range.after)),
    ]
    if range.last != nil { members.append(.init("last", keyJSON(range.last))) }
    if rowsPerRange != RecoveryLimits.rowsPerRange { members.append(.init("rows", .integer(Int64(rowsPerRange)))) }
    return .object(members)
  }

  /// Throws `malformed` where a member is missing or of another kind, and where `rows` is not in
  /// `RecoveryLimits.rowsPerRangeAllowed`.
  public init(_ json: JSONValue) throws(SalvorError) {
    table = try json.string("table")
    range = RowQuery.Range(after: try key(json["after"] ?? .null), last: try key(json["last"] ?? .null))
    rowsPerRange = Int(clamping: json["rows"]?.integer ?? Int64(RecoveryLimits.rowsPerRange))
    let allowed = RecoveryLimits.rowsPerRangeAllowed
    guard allowed.contains(rowsPerRange) else {
      throw SalvorError(.malformed, "A range has \(allowed.lowerBound) to \(allowed.upperBound) rows.")
    }
  }
}

extension RangePage {
  /// The line that answers a `RangeQuestion`: each range as `[count, digest, last key]`.
  public var json: JSONValue {
    [
      "columns": .array(columns.map(JSONValue.string)),
      "ranges": .array(ranges.map { .array([.integer($0.count), .string($0.digest), keyJSON($0.last)]) }),
      "last": .bool(isLast),
    ]
  }

  /// Throws `malformed` where a member is missing or of another kind. Without `last` the page is the last one.
  public init(_ json: JSONValue) throws(SalvorError) {
    columns = try json.array("columns").compactMap(\.string)
    isLast = json["last"]?.bool ?? true
    ranges = []
    for entry in try json.array("ranges") {
      guard let items = entry.array, items.count == 3, let count = items[0].integer,
        (0...JSONValue.countMax).contains(count), let digest = items[1].string
      else {
        throw SalvorError(.malformed, "A range must be [count, digest, last key].")
      }
      ranges.append(RangeDigest(last: try key(items[2]), count: count, digest: digest))
    }
  }
}

extension RecoveryReport {
  /// As `salvor recover --list --json` and the device's own record of its recoveries have it.
  public var json: JSONValue {
    [
      "id": .string(id), "time": .integer(time), "reason": .string(reason.rawValue), "strategy": .string(strategy),
      "unoffered": counts.unofferedJSON,
      "kept": .integer(counts.kept), "merged": .integer(counts.merged), "discarded": .integer(counts.discarded),
      "displaced": .integer(counts.displaced), "upserts": .integer(counts.upserts), "deletes": .integer(counts.deletes),
      "lost": .integer(counts.lost),
      "offered": .integer(counts.offered), "givenUp": .integer(counts.givenUp),
      "backup": backup.map(JSONValue.string) ?? .null, "snapshots": .integer(snapshots),
    ]
  }

  /// Reads what `json` has written, also by earlier versions. Throws `malformed` where a member is missing or the
  /// reason is unknown.
  public init(_ json: JSONValue) throws(SalvorError) {
    guard let reason = RecoveryReason(rawValue: try json.string("reason")) else {
      throw SalvorError(.malformed, "A recovery's \"reason\" is unknown.")
    }
    self.init(
      id: try json.string("id"), time: try json.integer("time"), reason: reason, strategy: try json.string("strategy"),
      backup: try json.optionalString("backup"), snapshots: json["snapshots"]?.integer ?? 0)
    counts.kept = try json.integer("kept")
    counts.merged = try json.integer("merged")
    counts.discarded = try json.integer("discarded")
    counts.displaced = json["displaced"]?.integer ?? 0
    counts.upserts = try json.integer("upserts")
    counts.deletes = try json.integer("deletes")
    counts.lost = try json.integer("lost")
    counts.offered = json["offered"]?.integer ?? 0
    counts.givenUp = json["givenUp"]?.integer ?? 0
    for member in json["unoffered"]?.members ?? [] {
      if let why = Unoffered(rawValue: member.key) { counts.unoffered[why] = member.value.integer }
    }
  }
}

extension RecoveryCounts {
  /// `{"REASON":NUMBER,…}`.
  public var unofferedJSON: JSONValue {
    .object(
      Unoffered.allCases.compactMap { why in
        unoffered[why].map { JSONValue.Member(why.rawValue, .integer($0)) }
      })
  }
}

extension RecoveryItem {
  /// One line of the report, as `salvor recover --report ID --json` and the device's own record have it. `before` and
  /// `after` are null where they are empty.
  public var json: JSONValue {
    func object(_ values: [NamedValue]) -> JSONValue {
      values.isEmpty ? .null : .object(values.map { JSONValue.Member($0.name, JSONValue($0.value)) })
    }
    return [
      "fate": .string(fate.rawValue), "id": request.map { .string($0.description) } ?? .null, "table": .string(table),
      "key": keyJSON(key), "operation": operation.map { .string($0.rawValue) } ?? .null, "before": object(before),
      "after": object(after), "reason": reason.map(JSONValue.string) ?? .null,
    ]
  }
}

private func keyJSON(_ key: Key?) -> JSONValue {
  key.map { .array($0.map { JSONValue($0) }) } ?? .null
}

private func key(_ json: JSONValue) throws(SalvorError) -> Key? {
  if json.isNull { return nil }
  guard let items = json.array else { throw SalvorError(.malformed, "A key must be an array of values.") }
  var key: Key = []
  for item in items {
    guard let value = item.rowValue else { throw SalvorError(.malformed, "A key must be an array of values.") }
    key.append(value)
  }
  return key
}
