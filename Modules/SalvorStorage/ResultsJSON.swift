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
    return .object(members)
  }

  public init(_ json: JSONValue) throws(SalvorError) {
    var commit: Commit?
    if let value = json["commit"], !value.isNull { commit = try Commit(value) }
    var refused: [Refusal] = []
    for entry in try json.array("refused") { refused.append(try Refusal(entry)) }
    self.init(
      commit: commit, acceptedRequests: try json.integer("accepted"), conflicts: try json.integer("conflicts"),
      refused: refused, healed: json["healed"]?.integer ?? 0, superseded: json["superseded"]?.integer ?? 0)
  }
}

extension GroupState {
  public var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("name", .string(name)),
      .init("cursor", cursor?.json ?? .null),
      .init("scope", scopeDigest.map(JSONValue.string) ?? .null),
    ]
    if !subscriptions.isEmpty { members.append(.init("subscriptions", subscriptions.json)) }
    return .object(members)
  }

  public init(_ json: JSONValue) throws(SalvorError) {
    var cursor: Commit?
    if let value = json["cursor"], !value.isNull { cursor = try Commit(value) }
    self.init(name: try json.string("name"), cursor: cursor, scopeDigest: try json.optionalString("scope"))
    if let value = json["subscriptions"] { subscriptions = try ResolvedSubscriptions(value) }
  }
}
