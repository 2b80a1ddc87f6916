import SalvorModel
import SalvorStorage
import SalvorWire

// What the command line and libsalvor say in JSON (interfaces.md).

extension ClientStatus {
  /// `status --json` (interfaces.md).
  public func json(_ notes: [StoreNote]) -> JSONValue {
    [
      "notes": .array(notes.map { ["time": .integer($0.time), "text": .string($0.text)] }),
      "remoteID": .string(state.remoteID.text),
      "principal": .string(state.principal),
      "serverID": state.serverID.map { .string($0.text) } ?? .null,
      "schemaVersion": .integer(state.schemaVersion),
      "queued": .integer(queued),
      "inError": .integer(inError),
      "displaced": .integer(displaced),
      "kept": .integer(kept),
      "waiting": .integer(waiting),
      "upload": upload.map(\.json) ?? .null,
      "capturePausedSince": capturePausedSince.map(JSONValue.integer) ?? .null,
      "rowsWithoutKey": .object(
        rowsWithoutKey.sorted { $0.key < $1.key }.map { JSONValue.Member($0.key, .integer($0.value)) }),
      "groups": .array(
        state.groups.map { group in
          [
            "name": .string(group.name),
            "synchronized": .bool(group.isSynchronized),
            "cursor": group.cursor.map { .integer($0.number) } ?? .null,
            "lastSync": group.lastSync.map(JSONValue.integer) ?? .null,
          ]
        }),
      "recovery": [
        "state": .string(
          recovery.state == .none && state.recoveryRequired != nil ? "required" : recovery.state.rawValue),
        "reason": (recovery.reason ?? state.recoveryRequired).map { .string($0.rawValue) } ?? .null,
        "strategy": recovery.strategy.map(JSONValue.string) ?? .null,
        "step": recovery.step.map(JSONValue.string) ?? .null,
        "token": recovery.token.map(JSONValue.string) ?? .null,
        "backup": recovery.backup.map(JSONValue.string) ?? .null,
      ],
    ]
  }
}

extension UploadStatus {
  /// `upload` of `status --json`: the upload whose outcome is not known.
  public var json: JSONValue {
    [
      "sequence": .string("\(sequence)"),
      "since": .integer(since),
      "failures": .integer(Int64(failures)),
      "lastError": lastFailure.map { .string($0.error) } ?? .null,
      "lastAttempt": lastFailure.map { .integer($0.time) } ?? .null,
      "nextAttempt": lastFailure?.nextAttempt.map(JSONValue.integer) ?? .null,
      "stalled": stall(now: SystemClock().now()).map { .string($0.rawValue) } ?? .null,
    ]
  }
}

extension Backup {
  /// One of `backups --json`.
  public var json: JSONValue {
    [
      "id": .string(id), "time": .integer(time), "content": .string(content.rawValue), "reason": .string(reason),
      "bytes": .integer(bytes), "path": .string(path),
    ]
  }
}
