import SalvorModel
import SalvorStorage
import SalvorWire

// What the command line and libsalvor say in JSON (interfaces.md).

extension RemovalReport {
  /// `errors delete --json` and `queue withdraw --json`.
  ///
  /// - Parameter isPlan: nothing was written.
  public func json(isPlan: Bool) -> JSONValue {
    [
      "plan": .bool(isPlan),
      "requests": .array(
        requests.map { request in
          [
            "id": .string("\(request.id)"), "cause": .string(request.cause.name),
            "because": request.cause.request.map { .string("\($0)") } ?? .null,
            "changes": .array(request.changes.map(\.json)),
          ]
        }),
      "rows": .array(
        rows.map { ["table": .string($0.table), "key": .array($0.key.map { JSONValue($0) })] }),
      "returned": .array(returned.map { .string("\($0)") }),
      "displaced": .array(displaced.map { .string("\($0)") }),
    ]
  }
}

extension RetriedRequest {
  /// One of `requests` of `errors retry --json`.
  public var json: JSONValue {
    let (name, now): (String, RequestID?) =
      switch outcome {
      case .queued(let id): ("queued", id)
      case .nothingLeft: ("nothing-left", nil)
      case .stands: ("stands", nil)
      case .displaced: ("displaced", nil)
      }
    return ["id": .string("\(id)"), "outcome": .string(name), "now": now.map { .string("\($0)") } ?? .null]
  }
}

extension QueuedRequest {
  /// Of other requests so many are named: a thousand changes of one row need half a million, one by one.
  private static let namedMax = 100

  /// One of `requests` of `queue --json` and `errors --json` (interfaces.md).
  public var json: JSONValue {
    func object(_ values: [NamedValue]) -> JSONValue {
      values.isEmpty ? .null : .object(values.map { JSONValue.Member($0.name, JSONValue($0.value)) })
    }
    func ids(_ list: [RequestID]) -> JSONValue { .array(list.prefix(Self.namedMax).map { .string($0.description) }) }
    return [
      "id": .string(id.description),
      "table": .string(table),
      "key": .array(key.map { JSONValue($0) }),
      "operation": .string(operation.rawValue),
      "before": object(before),
      "after": object(after),
      "state": .string(state.rawValue),
      "reason": reason.map(JSONValue.string) ?? .null,
      "status": status.map { .integer(Int64($0)) } ?? .null,
      "message": message.map(JSONValue.string) ?? .null,
      "dependents": ids(dependents),
      "dependentsCount": .integer(Int64(dependents.count)),
      "tag": tag.map(JSONValue.string) ?? .null,
      "needs": ids(needs),
      "needsCount": .integer(Int64(needs.count)),
      "blockedBy": blockedBy.map { .string($0.description) } ?? .null,
      "waitsFor": .string(waitsFor.rawValue),
      "attempts": .integer(Int64(attempts)),
      "since": since.map(JSONValue.integer) ?? .null,
      "lastAttempt": lastAttempt.map(JSONValue.integer) ?? .null,
      "nextAttempt": nextAttempt.map(JSONValue.integer) ?? .null,
      "serverRow": serverRow.map(object) ?? .null,
      "history": .array(history.map { .string($0.description) }),
    ]
  }
}
