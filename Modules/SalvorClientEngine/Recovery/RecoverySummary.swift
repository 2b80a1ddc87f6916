import SalvorModel
import SalvorStorage
import SalvorWire

/// What a synchronization says of the recovery in it (`sync --json`, `recovery`).
public struct RecoverySummary: Sendable, Hashable {
  /// Why the device was recovered, or must be.
  public var reason: RecoveryReason
  /// The strategy that ran, or that waits.
  public var strategy: String
  /// The strategies that could not, in order.
  public var fellBackFrom: [String]
  /// Nil where nothing was done yet.
  public var report: RecoveryReport?
  /// Where a person has to decide: what `recover` wants.
  public var token: String?
  /// The copy of the database as it was before; nil: there is none.
  public var backup: String?
  /// What the server took of the offers in this synchronization.
  public var healed: Int64 = 0

  /// As `sync --json` prints it.
  public var json: JSONValue {
    let counts = report?.counts ?? RecoveryCounts()
    return [
      "id": report.map { .string($0.id) } ?? .null,
      "reason": .string(reason.rawValue),
      "strategy": .string(strategy),
      "fellBackFrom": fellBackFrom.first.map(JSONValue.string) ?? .null,
      "chain": .array(fellBackFrom.map(JSONValue.string)),
      "kept": .integer(counts.kept + counts.merged),
      "merged": .integer(counts.merged),
      "discarded": .integer(counts.discarded),
      "displaced": .integer(counts.displaced),
      "upserts": .integer(counts.upserts),
      "deletes": .integer(counts.deletes),
      "lost": .integer(counts.lost),
      "givenUp": .integer(counts.givenUp),
      "offered": .integer(counts.offered),
      "healed": .integer(healed),
      "backup": backup.map(JSONValue.string) ?? .null,
      "token": token.map(JSONValue.string) ?? .null,
    ]
  }
}

/// What a recovery would do (`recover --plan`): nothing was written to find out.
public struct RecoveryPlan: Sendable, Hashable {
  /// Nil: there is nothing to recover from.
  public var reason: RecoveryReason?
  /// The strategy that would run.
  public var strategy: String
  /// The strategies that could not, in order.
  public var fellBackFrom: [String]
  /// Why those could not.
  public var notes: [String]
  /// Why the guard against mass deletion would stop it, and a person has to decide; nil: it would not.
  public var guarded: String? = nil
  /// Why a synchronization waits, and a recovery in place with it: the server was put back to before the schema of this device (decision 208).
  /// It says which recovery by hand goes on. Nil: nothing waits.
  public var waits: String? = nil
  /// The steps by name, in order.
  public var steps: [String]
  /// What would become of requests and rows.
  public var counts: RecoveryCounts
  /// Requests that would be uploaded before anything is replaced.
  public var sent: Int64
  /// Rows that would come, and the bytes of the payload before compression; nil: not known before they come.
  public var rowsToFetch: Int64
  /// Bytes of the payload before compression; nil: not known before it comes.
  public var bytes: Int64?
  /// The groups that would come as files, in the place of their rows; empty: all rows come one by one, or what differs does.
  public var files: [RecoveryFacts.File]

  /// As `recover --plan --json` prints it.
  public var json: JSONValue {
    [
      "reason": reason.map { .string($0.rawValue) } ?? .null,
      "strategy": strategy.isEmpty ? .null : .string(strategy),
      "fellBackFrom": fellBackFrom.first.map(JSONValue.string) ?? .null,
      "notes": .array(notes.map(JSONValue.string)),
      "guard": guarded.map { ["name": .string(ErrorCode.massDeletion.rawValue), "message": .string($0)] } ?? .null,
      "waits": waits.map { ["name": .string(ErrorCode.schemaAhead.rawValue), "message": .string($0)] } ?? .null,
      "steps": .array(steps.map(JSONValue.string)),
      "requests": [
        "kept": .integer(counts.kept + counts.merged), "sent": .integer(sent),
        "discarded": .integer(counts.discarded), "displaced": .integer(counts.displaced),
        "conflicting": .integer(counts.merged),
      ],
      "rows": [
        "fetch": .integer(rowsToFetch), "upserts": .integer(counts.upserts), "deletes": .integer(counts.deletes),
        "lost": .integer(counts.lost), "offer": .integer(counts.offered), "unoffered": counts.unofferedJSON,
      ],
      "bytes": bytes.map(JSONValue.integer) ?? .null,
      "files": .array(files.map(\.json)),
    ]
  }
}
