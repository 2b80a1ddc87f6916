/// What went wrong, with a stable code and name, what to do about it, and whether trying again can help.
///
/// The message holds no value of a user: names of tables, columns and files, numbers and identifiers only. The
/// catalogue (`ErrorCode`) is the one list of codes; docs/reference/errors.md is made from it.
public struct SalvorError: Error, Sendable, Hashable, CustomStringConvertible {
  /// The entry of the catalogue that it is one of: name, number, exit code and HTTP status follow from it.
  public var code: ErrorCode
  /// What happened, and what to do now.
  public var message: String
  /// Named facts, e.g. `table`, `file`, `reason`. No values of a user.
  public var context: [String: String]
  /// How long to wait before the next try, as whoever refused asks for it; nil: nothing was asked for.
  public var retryAfterMilliseconds: Int64?

  /// Without context and without a time to wait where nothing else is given.
  public init(
    _ code: ErrorCode, _ message: String, context: [String: String] = [:], retryAfterMilliseconds: Int64? = nil
  ) {
    self.code = code
    self.message = message
    self.context = context
    self.retryAfterMilliseconds = retryAfterMilliseconds
  }

  /// Why, in one word of the protocol: a `RecoveryReason` where a database must be recovered. May be one that this release
  /// does not know.
  public var reason: String? { context["reason"].flatMap { $0.isEmpty ? nil : $0 } }

  /// As the code says: the same call can go through later without anything being changed.
  public var isRetryable: Bool { code.isRetryable }
  /// The code's name and the message, with a colon between them; no context.
  public var description: String { "\(code.rawValue): \(message)" }
}

/// The catalogue of errors. `rawValue` is the name that HTTP problems, `--json` and `context` carry; `meaning` says what
/// happened and what to do.
public enum ErrorCode: String, Sendable, CaseIterable {
  // Usage and configuration
  case usage
  case configuration
  case unknownModule = "unknown-module"
  case schemaRefused = "schema-refused"
  // Files and databases
  case storage
  case storageFull = "storage-full"
  case storageBusy = "storage-busy"
  case storageCorrupt = "storage-corrupt"
  // Transport and protocol
  case unreachable
  case timeout
  case cancelled
  case protocolVersion = "protocol-version"
  case malformed
  case tooLarge = "too-large"
  case notFound = "not-found"
  case unsupportedEncoding = "unsupported-encoding"
  case overloaded
  // Rights
  case unauthenticated
  case forbidden
  case remoteBlocked = "remote-blocked"
  case remoteOfAnother = "remote-of-another-principal"
  // Sessions
  case sessionInUse = "session-in-use"
  case sessionUnknown = "session-unknown"
  case chunkMissing = "chunk-missing"
  case historyNeeded = "history-needed"
  /// Code -10400 of the sequence and history checks; `context["reason"]` names the reason.
  case uploadFailedAtServer = "UPLOAD_FAILED_AT_SERVER"
  case recoveryRequired = "recovery-required"
  case schemaIncompatible = "schema-incompatible"
  case inconsistentDownload = "inconsistent-download"
  /// The server lost commits, and refuses nothing for it: the device rewinds to it and goes on (semantics 6). Never shown to a person.
  case historyParted = "history-parted"
  /// More of a table's rows would go than an automatic recovery may remove.
  case massDeletion = "mass-deletion"
  // Everything else
  case failed
  // Numbers follow this order: new ones go to the end.
  /// A request belongs to an upload whose outcome is not known; `context["request"]` names it.
  case outcomeUnknown = "outcome-unknown"
  /// The tables as they are do not take a change: its row is gone, or a constraint is in its way.
  case cannotStand = "cannot-stand"
  /// Somebody has resolved the conflict version already.
  case conflictResolved = "conflict-resolved"
  /// The client's version of a conflict cannot be written; `context["reason"]` says why, as a `RefusalReason`.
  case conflictUnresolvable = "conflict-unresolvable"
  /// A validator of the server's configuration cannot be asked; nothing was processed, the queue stays as it is.
  case validatorUnavailable = "validator-unavailable"
  /// As many devices listen for changes as the server allows (`eventListenersMax`).
  case tooManyListeners = "too-many-listeners"
  /// An upload refers to a blob that the server does not have from its principal: the device sends it and tries again.
  case blobMissing = "blob-missing"
  /// The bytes of a blob are not those of its hash; what was staged of it is emptied.
  case blobMismatch = "blob-mismatch"
  /// A blob that a download refers to is not in its row any more: the download is begun again.
  case blobGone = "blob-gone"
  /// The application migrates its tables: nothing is read or written until capture is resumed.
  case capturePaused = "capture-paused"
  /// Salvor was taken out of the database: its tables are plain ones until somebody synchronizes them again.
  case detached
  /// A principal has as much on the server as one may have; `context["limit"]` names the limit.
  case quota
  /// The key of an encrypted database does not open it, is missing, or cannot be used by the SQLite that is linked.
  case keyRefused = "key-refused"
  /// A snapshot of a group cannot be taken over, or none can be made of its rows; they come by rows.
  case snapshotUnusable = "snapshot-unusable"
  /// The device's schema has renamed or dropped what the server still has, or has what the server was put back to before: the device waits
  /// until the server has that schema.
  case schemaAhead = "schema-ahead"

  /// A number for tools that want one. -10400 is SQL Anywhere's own number of UPLOAD_FAILED_AT_SERVER.
  public var number: Int {
    switch self {
    case .uploadFailedAtServer: -10400
    default: -20000 - (ErrorCode.allCases.firstIndex(of: self) ?? 0)
    }
  }

  /// Whether the same call can go through later without anything being changed.
  public var isRetryable: Bool {
    switch self {
    case .unreachable, .timeout, .storageBusy, .overloaded, .sessionInUse, .validatorUnavailable, .tooManyListeners,
      .blobMissing, .blobMismatch, .blobGone, .quota:
      true
    default: false
    }
  }

  /// The HTTP status that carries it (RFC 9457 problem).
  public var httpStatus: Int {
    switch self {
    case .malformed, .usage, .configuration, .protocolVersion, .inconsistentDownload: 400
    case .unauthenticated: 401
    case .forbidden, .remoteBlocked, .remoteOfAnother: 403
    case .notFound, .sessionUnknown, .blobGone: 404
    case .timeout: 408
    case .uploadFailedAtServer, .historyNeeded, .historyParted, .chunkMissing, .recoveryRequired, .schemaIncompatible,
      .outcomeUnknown, .cannotStand, .conflictResolved, .conflictUnresolvable, .blobMissing, .blobMismatch,
      .snapshotUnusable, .schemaAhead:
      409
    case .tooLarge: 413
    case .unsupportedEncoding: 415
    case .quota: 429
    case .sessionInUse: 423
    case .overloaded, .storageBusy, .validatorUnavailable, .tooManyListeners: 503
    case .storageFull: 507
    default: 500
    }
  }

  /// The exit code of the command line (interfaces.md).
  public var exitCode: Int32 {
    switch self {
    case .usage, .configuration, .unknownModule, .schemaRefused, .notFound, .conflictResolved, .capturePaused,
      .detached:
      2
    case .unreachable, .timeout, .overloaded, .sessionInUse, .validatorUnavailable, .tooManyListeners, .quota,
      .schemaAhead:
      3
    case .unauthenticated, .forbidden, .remoteBlocked, .remoteOfAnother: 4
    case .uploadFailedAtServer, .recoveryRequired, .schemaIncompatible, .massDeletion: 5
    default: 1
    }
  }
}

/// Why a database must be recovered (semantics 9). The raw value is what the protocol and the configuration file carry.
public enum RecoveryReason: String, Sendable, CaseIterable {
  /// The server was put back from a backup, and no longer knows what this device uploaded.
  case serverRestored = "server-restored"
  /// The server is another database, or an empty new one.
  case serverReplaced = "server-replaced"
  /// The device's database was put back from a copy, or copied to a second device.
  case clientRewound = "client-rewound"
  /// The device was away for longer than the server keeps tombstones.
  case historyTrimmed = "history-trimmed"
  /// A table or column was dropped, renamed or changed in a way that the other side cannot follow.
  case schemaIncompatible = "schema-incompatible"
  /// The server's operator asked for it.
  case operatorRequested = "operator-requested"
  /// The device's file is damaged.
  case localCorruption = "local-corruption"
}

/// Why the server refused a request (semantics 7).
public enum RefusalReason: String, Sendable, CaseIterable {
  /// Only the server writes the table.
  case serverMaintained = "server-maintained"
  /// The row is outside of what the principal may write, or would be after the change.
  case outOfScope = "out-of-scope"
  /// The row has changed on the server meanwhile, and the table's policy keeps the server's.
  case conflict
  /// The table's conflict policy failed; nothing is known against the request itself.
  case conflictPolicy = "conflict-policy"
  /// The row was deleted on the server meanwhile, or is not within the sender's scope.
  case rowDeleted = "row-deleted"
  /// The server has a row of this key that somebody else made.
  case keyExists = "key-exists"
  /// A unique, check or not-null constraint of the server's table refuses the row.
  case constraint
  /// The row references one that the server does not have, or that the sender may not see.
  case missingParent = "missing-parent"
  /// A value is not of its column's type.
  case notStorable = "not-storable"
  /// The server does not synchronize a table of this name.
  case unknownTable = "unknown-table"
  /// The server's table has no column of this name.
  case unknownColumn = "unknown-column"
  /// The row is larger than `Limits.rowBytesMax`.
  case tooLarge = "too-large"
  /// A validator module refused it; the message, and perhaps the status, are the application's own.
  case validator
  /// A request that this one depends on was refused; it was not tried.
  case blocked
  /// The row was erased for good (`salvor server purge`).
  case purged
  /// An offer of a commit that the server has not lost (semantics 10).
  case notLost = "not-lost"
  /// An offer that the server's operator has rejected (`salvor server restores reject`).
  case rejected

  /// The status code of an archive entry, in HTTP's terms.
  public var status: Int {
    switch self {
    case .serverMaintained, .outOfScope, .rejected: 403
    case .unknownTable, .unknownColumn: 404
    case .conflict, .rowDeleted, .keyExists, .notLost: 409
    case .tooLarge: 413
    case .constraint, .missingParent, .notStorable, .validator: 422
    case .purged: 410
    case .blocked: 424
    case .conflictPolicy: 500
    }
  }
}

/// The state of a request (interfaces.md, `queue --json` and `errors --json`).
public enum RequestState: String, Sendable, CaseIterable {
  /// `queued`: not sent yet, and goes with the next upload. `sent`: in the upload that is under way.
  case queued, sent
  /// In an upload of which the device does not know whether the server has committed it.
  case unknownOutcome = "unknown-outcome"
  /// In the error archive (semantics 8). `refused`: by the server. `blocked`: it depends on such a one.
  /// `displaced`: its values cannot stand in the table and are not shown. `kept`: a recovery put it there.
  case refused, blocked, displaced, kept
}

/// What a change does to its row. The raw value is what the protocol and `--json` carry.
public enum Operation: String, Sendable, CaseIterable {
  case insert, update, delete
}
