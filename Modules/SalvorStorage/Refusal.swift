import SalvorModel
import SalvorWire

/// A request of an upload that the server did not apply (semantics 7).
public struct Refusal: Sendable, Hashable {
  /// The request's first change.
  public var counter: Int64
  /// The stamp of the request; with `counter` it makes the request's ID.
  public var stamp: RequestStamp
  /// Why the server did not apply it.
  public var reason: RefusalReason
  /// In HTTP's terms, 400 to 599: the reason's own, unless a validator gave another.
  public var status: Int
  /// What was wrong and what to do; names of tables and columns, no values. A validator's is the application's own.
  public var message: String
  /// For `blocked`: the request it depends on.
  public var blockedBy: RequestID?
  /// The server's rows of the request's changes, as they are after the upload: those that are there, that the sender may
  /// read, and that `ServerRowBudget` has room for.
  public var serverRows: [ServerRow]

  /// For the archive of a device: of a conflict version that the server had lost, and refused when it was offered again.
  public var ofLostVersion: String {
    "The server had kept this change as a conflict version, lost it, and refused it when it was offered again: \(message) Reapply it, or delete the entry."
  }

  /// - Parameter status: nil: the reason's own.
  public init(
    counter: Int64, stamp: RequestStamp, reason: RefusalReason, message: String, status: Int? = nil,
    blockedBy: RequestID? = nil, serverRows: [ServerRow] = []
  ) {
    self.counter = counter
    self.stamp = stamp
    self.reason = reason
    self.status = status ?? reason.status
    self.message = message
    self.blockedBy = blockedBy
    self.serverRows = serverRows
  }

  /// The ID of the request that was refused.
  public var id: RequestID { RequestID(stamp: stamp, counter: counter) }

  /// The server's row of the request's first change; nil: not known.
  public var serverRow: [NamedValue]? { serverRow(of: counter) }

  /// The server's row of one of the request's changes; nil: not known.
  public func serverRow(of counter: Int64) -> [NamedValue]? { serverRows.first { $0.counter == counter }?.values }
}

/// A row as the server has it: its travelling columns, in the order of the schema.
public struct ServerRow: Sendable, Hashable {
  /// The change of the refused request that is about this row.
  public var counter: Int64
  /// The columns with their values, in the order of the schema.
  public var values: [NamedValue]
  /// The server's row of the change with this counter.
  public init(counter: Int64, values: [NamedValue]) {
    self.counter = counter
    self.values = values
  }
}

/// How much of the server's rows goes with the refusals of one upload, whose results are one line of an answer and are
/// kept with the remote. Rows are offered in the order of their changes' counters, so that every store keeps the same.
public struct ServerRowBudget: Sendable {
  /// One row: the bytes of its names, texts and blobs, 8 for any other value.
  public static let rowBytesMax = 16 << 10
  /// All rows of an upload.
  public static let uploadBytesMax = 1 << 20
  private var left = Self.uploadBytesMax

  /// A budget for one upload, with `uploadBytesMax` left.
  public init() {}

  /// Whether there is room for the row; it then counts.
  public mutating func takes(_ values: [NamedValue]) -> Bool {
    let bytes = values.reduce(0) { sum, entry in
      switch entry.value {
      case .text(let bytes), .blob(let bytes): sum + entry.name.utf8.count + bytes.count
      default: sum + entry.name.utf8.count + 8
      }
    }
    guard bytes <= Self.rowBytesMax, bytes <= left else { return false }
    left -= bytes
    return true
  }
}

extension Refusal {
  /// As it stands in the results of an upload (docs/reference/protocol.md).
  public var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("id", .string(id.description)), .init("reason", .string(reason.rawValue)),
      .init("status", .integer(Int64(status))), .init("message", .string(message)),
      .init("blockedBy", blockedBy.map { .string($0.description) } ?? .null),
    ]
    if !serverRows.isEmpty {
      let rows = serverRows.map { row -> JSONValue in
        [
          "change": .integer(row.counter),
          "row": .object(row.values.map { JSONValue.Member($0.name, JSONValue($0.value)) }),
        ]
      }
      members.append(.init("serverRows", .array(rows)))
    }
    return .object(members)
  }

  /// Reads what `json` has written. Throws `malformed` where the ID is none, the reason is unknown, or a member is
  /// missing.
  public init(_ json: JSONValue) throws(SalvorError) {
    guard let id = RequestID(try json.string("id")) else {
      throw SalvorError(.malformed, "A refused request's \"id\" is not a request ID.")
    }
    guard let reason = RefusalReason(rawValue: try json.string("reason")) else {
      throw SalvorError(.malformed, "A refused request's \"reason\" is unknown.")
    }
    var rows: [ServerRow] = []
    for entry in try json.optionalArray("serverRows") ?? [] {
      guard let members = entry["row"]?.members else {
        throw SalvorError(.malformed, "A server's row must be an object of columns.")
      }
      let values = members.compactMap { member in member.value.rowValue.map { NamedValue(member.key, $0) } }
      rows.append(ServerRow(counter: try entry.integer("change"), values: values))
    }
    self.init(
      counter: id.counter, stamp: id.stamp, reason: reason, message: try json.string("message"),
      status: try json.optionalInteger("status").map { Int(clamping: $0) },
      blockedBy: try json.optionalString("blockedBy").flatMap { RequestID($0) }, serverRows: rows)
  }
}
