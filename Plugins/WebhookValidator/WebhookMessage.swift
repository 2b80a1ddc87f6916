import SalvorModel
import SalvorStorage
import SalvorWire

/// What is posted, and what comes back (README.md, *The exchange*).
struct WebhookMessage: Sendable {
  let body: [UInt8]
  /// The same where the same batch comes again.
  let delivery: String

  init(_ batch: ValidationBatch) {
    let content: [JSONValue.Member] = [
      .init("remote", .string(batch.remote.text)), .init("principal", .string(batch.principal.name)),
      .init("upload", .string(batch.sequence.text)), .init("batch", .integer(Int64(batch.number))),
      .init("requests", .array(batch.requests.map(Self.json))),
    ]
    let name = "\(batch.sequence)-\(batch.number)-\(digest(JSONValue.object(content).bytes).prefix(16))"
    delivery = name
    body = JSONValue.object([.init("version", 1), .init("delivery", .string(name))] + content).bytes
  }

  private static func json(_ request: UploadedRequest) -> JSONValue {
    [
      "id": .string(request.id.description), "tag": request.tag.map(JSONValue.string) ?? .null,
      "changes": .array(
        request.changes.map { change in
          [
            "table": .string(change.table), "operation": .string(change.operation.rawValue),
            "key": .array(change.key.map { JSONValue($0) }),
            "old": change.operation == .update ? object(change.columns.map { ($0.name, $0.old ?? .null) }) : .null,
            "new": change.operation == .delete ? .null : object(change.columns.map { ($0.name, $0.new) }),
          ]
        }),
    ]
  }

  private static func object(_ values: [(String, Value)]) -> JSONValue {
    .object(values.map { JSONValue.Member($0.0, JSONValue($0.1)) })
  }

  /// - Parameter answer: nil: an answer without a body refuses nothing.
  static func refusals(in answer: [UInt8]?) throws -> [ValidationRefusal] {
    guard let answer else { return [] }
    let json = try JSONValue(parsing: answer)
    return try json.array("refused").map { entry in
      guard let id = RequestID(try entry.string("id")) else {
        throw SalvorError(.malformed, "The service refused something whose \"id\" is not a request ID.")
      }
      return ValidationRefusal(
        id: id, message: try entry.optionalString("message") ?? "",
        status: try entry.optionalInteger("status").map { Int(clamping: $0) })
    }
  }
}
