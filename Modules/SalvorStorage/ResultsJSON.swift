import SalvorModel
import SalvorWire

extension UploadResults {
  /// As it stands in the protocol and in the server's record of an upload.
  public var json: JSONValue {
    [
      "accepted": .integer(acceptedRequests),
      "conflicts": .integer(conflicts),
      "commit": commit?.json ?? .null,
      "refused": .array(
        refused.map { refusal in
          [
            "id": .string(refusal.id.description),
            "reason": .string(refusal.reason.rawValue),
            "status": .integer(Int64(refusal.reason.status)),
            "message": .string(refusal.message),
            "blockedBy": refusal.blockedBy.map { .string($0.description) } ?? .null,
          ]
        }),
    ]
  }

  public init(_ json: JSONValue) throws(SalvorError) {
    var commit: Commit?
    if let value = json["commit"], !value.isNull { commit = try Commit(value) }
    var refused: [Refusal] = []
    for entry in try json.array("refused") {
      guard let id = RequestID(try entry.string("id")) else {
        throw SalvorError(.malformed, "A refused request's \"id\" is not a request ID.")
      }
      guard let reason = RefusalReason(rawValue: try entry.string("reason")) else {
        throw SalvorError(.malformed, "A refused request's \"reason\" is unknown.")
      }
      let blockedBy = try entry.optionalString("blockedBy").flatMap { RequestID($0) }
      refused.append(
        Refusal(
          counter: id.counter, stamp: id.stamp, reason: reason, message: try entry.string("message"),
          blockedBy: blockedBy))
    }
    self.init(
      commit: commit, acceptedRequests: try json.integer("accepted"), conflicts: try json.integer("conflicts"),
      refused: refused)
  }
}

extension GroupState {
  public var json: JSONValue {
    [
      "name": .string(name),
      "cursor": cursor?.json ?? .null,
      "scope": scopeDigest.map(JSONValue.string) ?? .null,
    ]
  }

  public init(_ json: JSONValue) throws(SalvorError) {
    var cursor: Commit?
    if let value = json["cursor"], !value.isNull { cursor = try Commit(value) }
    self.init(name: try json.string("name"), cursor: cursor, scopeDigest: try json.optionalString("scope"))
  }
}
