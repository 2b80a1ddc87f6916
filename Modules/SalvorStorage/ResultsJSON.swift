import SalvorModel
import SalvorWire

extension UploadResults {
  /// As it stands in the protocol and in the server's record of an upload.
  public var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("accepted", .integer(acceptedRequests)),
      .init("conflicts", .integer(conflicts)),
      .init("commit", commit?.json ?? .null),
      .init("refused", .array(refused.map(\.json))),
    ]
    if healed > 0 { members.append(.init("healed", .integer(healed))) }
    if superseded > 0 { members.append(.init("superseded", .integer(superseded))) }
    if !waiting.isEmpty {
      let ranges = waiting.map { JSONValue.array([.integer($0.lowerBound), .integer($0.upperBound)]) }
      members.append(.init("waiting", .array(ranges)))
    }
    if !kept.isEmpty { members.append(.init("kept", .array(kept.map(JSONValue.integer)))) }
    return .object(members)
  }

  /// Reads what `json` has written, also by earlier versions. Throws `malformed` where a member is missing, or
  /// `waiting` is not in ascending order.
  public init(_ json: JSONValue) throws(SalvorError) {
    var commit: Commit?
    if let value = json["commit"], !value.isNull { commit = try Commit(value) }
    var refused: [Refusal] = []
    for entry in try json.array("refused") { refused.append(try Refusal(entry)) }
    var waiting: [ClosedRange<Int64>] = []
    for entry in try json.optionalArray("waiting") ?? [] {
      guard let ends = entry.array, ends.count == 2, let first = ends[0].integer, let last = ends[1].integer,
        first <= last, last <= UploadChunkReader.counterMax, waiting.last?.upperBound ?? 0 < first
      else { throw SalvorError(.malformed, "\"waiting\" is a list of ascending ranges [first, last].") }
      waiting.append(first...last)
    }
    self.init(
      commit: commit, acceptedRequests: try json.count("accepted"), conflicts: try json.count("conflicts"),
      refused: refused, healed: try json.optionalCount("healed") ?? 0,
      superseded: try json.optionalCount("superseded") ?? 0,
      waiting: waiting, kept: (try json.optionalArray("kept") ?? []).compactMap(\.integer).sorted())
  }
}

extension GroupState {
  /// As it stands in a begin and in an answer; without subscriptions where there are none.
  public var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("name", .string(name)),
      .init("cursor", cursor?.json ?? .null),
      .init("scope", scopeDigest.map(JSONValue.string) ?? .null),
    ]
    if !subscriptions.isEmpty { members.append(.init("subscriptions", subscriptions.json)) }
    return .object(members)
  }

  /// Throws `malformed` where the name is missing, or another member is not what it should be.
  public init(_ json: JSONValue) throws(SalvorError) {
    var cursor: Commit?
    if let value = json["cursor"], !value.isNull { cursor = try Commit(value) }
    self.init(name: try json.string("name"), cursor: cursor, scopeDigest: try json.optionalString("scope"))
    if let value = json["subscriptions"] { subscriptions = try ResolvedSubscriptions(value) }
  }
}
