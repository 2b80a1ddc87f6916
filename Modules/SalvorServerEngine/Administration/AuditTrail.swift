import SalvorModel
import SalvorWire

/// One act of an operator.
public struct AuditRecord: Sendable, Hashable {
  /// Milliseconds since 1970.
  public var time: Int64
  /// The name of a principal, `administrator` for the token of the configuration, or `user:NAME` for the command line.
  public var who: String
  /// A network address, or `local`.
  public var from: String
  /// `remotes.delete`, `remotes.reset`, `conflicts.resolve`, `log.level`, `server.restore` …
  public var act: String
  /// What it was done to: a remote ID, the number of a conflict version, a file. No value of a row.
  public var target: String
  /// `done`, or the code of the error.
  public var result: String
  /// The trace of the request, as in the log.
  public var trace: String?

  /// Without a trace where none is given: an act of the command line has none.
  public init(
    time: Int64, who: String, from: String, act: String, target: String, result: String, trace: String? = nil
  ) {
    self.time = time
    self.who = who
    self.from = from
    self.act = act
    self.target = target
    self.result = result
    self.trace = trace
  }

  /// As a line of the audit file and as `GET /admin/v1/audit` shows it. `init(_:)` reads it back.
  public var json: JSONValue {
    [
      "time": .integer(time), "who": .string(who), "from": .string(from), "act": .string(act),
      "target": .string(target), "result": .string(result), "trace": trace.map(JSONValue.string) ?? .null,
    ]
  }

  /// Nil where it is none.
  public init?(_ json: JSONValue) {
    guard let time = json["time"]?.integer, let who = json["who"]?.string, let from = json["from"]?.string,
      let act = json["act"]?.string, let target = json["target"]?.string, let result = json["result"]?.string
    else { return nil }
    self.init(
      time: time, who: who, from: from, act: act, target: target, result: result, trace: json["trace"]?.string)
  }
}

extension AuditRecord {
  /// A header of the answer to an act that was done and could not be recorded: says so, in words for a person.
  public static let warningHeader = "salvor-warning"
}

/// Where operators' acts are recorded. The host brings it: beside the database, so that a restored database does not
/// forget them.
public protocol AuditTrail: Sendable {
  /// Durable when it returns. Throws where it cannot be written; the act is done, and its answer says that it was not written down.
  func append(_ record: AuditRecord) throws
  /// The newest records, newest first; at most `limit`, older than `before` where that is given.
  func newest(limit: Int, before: Int64?) throws -> [AuditRecord]
}
