import Foundation
import SalvorModel
import Testing

/// docs/reference/errors.md, made from the catalogue in Modules/SalvorModel/Errors.swift. A new code does not compile
/// here before it is explained.
@Suite struct ErrorReference {
  @Test("docs/reference/errors.md is what the catalogue gives (write it anew with SALVOR_WRITE_DOCS=1)")
  func thePageIsTheCatalogue() throws {
    let tree = SourceTree()
    let path = "docs/reference/errors.md"
    if ProcessInfo.processInfo.environment["SALVOR_WRITE_DOCS"] == "1" {
      try ErrorReference.page().write(
        to: tree.root.appendingPathComponent(path), atomically: true, encoding: .utf8)
    }
    #expect(try tree.read(path) == ErrorReference.page())
  }

  @Test("Names and numbers of errors are unique, and UPLOAD_FAILED_AT_SERVER is -10400")
  func numbersAreUnique() {
    #expect(Set(ErrorCode.allCases.map(\.number)).count == ErrorCode.allCases.count)
    #expect(ErrorCode.uploadFailedAtServer.number == -10400)
  }

  static func page() -> String {
    var lines = [
      "# Errors", "",
      "Made from the catalogue in Modules/SalvorModel/Errors.swift by Tests/HouseTests; change it there.", "",
      "An error has a stable name. It stands in `error.name` of `--json`, in `code` of an HTTP problem (RFC 9457), and in",
      "front of the message that the command line prints. *Again* says whether the same call can go through later without",
      "anything being changed.", "",
      "| name | number | HTTP | exit code | again | what happened, what to do |",
      "| --- | --- | --- | --- | --- | --- |",
    ]
    for code in ErrorCode.allCases {
      lines.append(
        "| `\(code.rawValue)` | \(code.number) | \(code.httpStatus) | \(code.exitCode) | \(code.isRetryable ? "yes" : "no") | \(meaning(of: code)) |"
      )
    }
    lines += [
      "", "## Reasons for a recovery", "",
      "`UPLOAD_FAILED_AT_SERVER`, `recovery-required` and `schema-incompatible` name one of these as `reason`.", "",
      "| reason | what was found |", "| --- | --- |",
    ]
    lines += RecoveryReason.allCases.map { "| `\($0.rawValue)` | \(meaning(of: $0)) |" }
    lines += [
      "", "## Reasons for a refusal", "",
      "Why the server refused one request of an upload; the others are not stopped by it. The request stays on the device",
      "with its values (`salvor queue`).", "",
      "| reason | status | what was found |", "| --- | --- | --- |",
    ]
    lines += RefusalReason.allCases.map { "| `\($0.rawValue)` | \($0.status) | \(meaning(of: $0)) |" }
    return lines.joined(separator: "\n") + "\n"
  }

  private static func meaning(of code: ErrorCode) -> String {
    switch code {
    case .usage: "The command or call is not one there is. `salvor --help` lists them."
    case .configuration:
      "The configuration has mistakes. Each is listed with file, line and key path; nothing was started."
    case .unknownModule: "The configuration names a module that is not there. `salvor modules` lists them."
    case .schemaRefused:
      "The database's tables differ from the schema in a way that is not applied by itself. Each difference is named."
    case .storage: "The database gave an error that is none of the following; the message has its code."
    case .storageFull: "The disk is full. Nothing was half written; make room and go on."
    case .storageBusy: "Another program holds the database. It goes through when that one is done."
    case .storageCorrupt: "The file is not a database, or a damaged one. Put back a copy."
    case .unreachable: "The server was not reached, or the connection broke. Nothing is lost; sync again."
    case .timeout: "The other side was silent for too long (`connectTimeoutMilliseconds`, `idleTimeoutMilliseconds`)."
    case .cancelled: "The call was cancelled by its caller."
    case .protocolVersion: "The two sides speak different versions of the protocol. Update the older one."
    case .malformed: "A message is not one of the protocol, or its body is damaged. Nothing of it was used."
    case .tooLarge: "Something is larger than a limit, which the message names."
    case .notFound: "There is nothing at this path or under this ID."
    case .unsupportedEncoding: "The content coding is not offered. Use one that the message names."
    case .overloaded: "The server has more to do than it takes. Try again later."
    case .unauthenticated: "The credential is missing or wrong."
    case .forbidden: "The credential is right and does not allow this."
    case .remoteBlocked: "An administrator has blocked this remote ID."
    case .remoteOfAnother: "The remote ID is another principal's. A queue is never sent as somebody else."
    case .sessionInUse:
      "Another session of the same remote ID is under way. It ends, or is given up 30 s after it was cut."
    case .sessionUnknown: "The session has ended or was taken over. Begin again; nothing is lost."
    case .chunkMissing: "The upload was processed before all its chunks had come. Send the missing ones."
    case .historyNeeded: "The server asks the device for what it remembers. Devices answer it by themselves."
    case .uploadFailedAtServer:
      "Device and server do not have the same history. `reason` says what was found; the device must be recovered."
    case .recoveryRequired: "A recovery is required before this database synchronizes again."
    case .schemaIncompatible:
      "The server's schema has changed in a way that this database cannot follow. Each difference is named."
    case .inconsistentDownload:
      "What was downloaded does not fit together, or a table of the device's does not take it: the message names row and constraint. Nothing of it was applied; sync again."
    case .historyParted:
      "The server lost commits that this device has applied, and an earlier one is shared. Devices rewind to it by themselves."
    case .massDeletion:
      "A recovery would remove more than half of a table's rows, and stopped. `salvor recover --plan` shows it; by hand it goes through."
    case .conflictResolved:
      "Somebody has resolved this conflict version already; what was kept stands. Change the row itself."
    case .conflictUnresolvable:
      "The client's version of a conflict cannot be written any more; `reason` says why, in the words of a refusal. Change the rows first, or keep the server's."
    case .tooManyListeners:
      "As many devices listen for changes as the server allows (`eventListenersMax`). The device polls, and tries again by itself."
    case .blobMissing:
      "An upload refers to a large value that the server does not have from this principal. The device sends it and goes on by itself."
    case .blobMismatch: "What came of a large value is not what its hash names. It was thrown away; it is sent again."
    case .blobGone:
      "A large value changed at the server while it was being downloaded. The device downloads again by itself."
    case .capturePaused:
      "The application migrates its tables: nothing is synchronized until `salvor capture resume`."
    case .quota:
      "Your principal has as much on the server as one may have: the message names the limit (`principalSessionsMax`, `principalRemotesMax`, `principalStagedBytesMax`, `uploadChunksMax`). Sessions and what is staged end by themselves; else ask the server's operator."
    case .detached:
      "Salvor was taken out of the database: its tables are plain ones. `sync`, `register` and `subscribe` take them in again, each row as a new one."
    case .failed: "Something failed that has no name of its own."
    case .outcomeUnknown:
      "The request belongs to an upload whose outcome is not known yet, and cannot go before it is. Sync first."
    case .cannotStand:
      "The change cannot be made on the tables as they are: its row is gone, or a constraint is in its way. Nothing was changed."
    case .validatorUnavailable:
      "A validator of the server's configuration could not be asked, and none of the upload was processed. Sync again later."
    }
  }

  private static func meaning(of reason: RecoveryReason) -> String {
    switch reason {
    case .serverRestored: "The server was put back from a backup and no longer knows what this device uploaded."
    case .serverReplaced: "The server is another database, or an empty new one."
    case .clientRewound: "The device's database was put back from a copy, or copied to a second device."
    case .historyTrimmed: "The device was away for longer than the server keeps tombstones."
    case .schemaIncompatible: "A table or column was dropped, renamed or changed."
    case .operatorRequested: "The server's operator asked for it."
    case .localCorruption: "The device's file is damaged."
    }
  }

  private static func meaning(of reason: RefusalReason) -> String {
    switch reason {
    case .serverMaintained: "The table is written on the server only."
    case .outOfScope: "The row is outside of what this principal may write, or would be."
    case .conflict: "The row has changed on the server meanwhile, and the table's policy keeps the server's."
    case .conflictPolicy:
      "The table's conflict policy failed, or answered what the row cannot hold. The server's operator corrects it; the change goes through then."
    case .rowDeleted: "The row was deleted on the server meanwhile."
    case .keyExists: "The server has a row of this key already, made by somebody else."
    case .constraint: "A unique, check or not-null constraint of the server's table refuses the row."
    case .missingParent: "The row references one that the server does not have."
    case .notStorable: "A value is not of its column's type."
    case .unknownTable: "The server does not synchronize a table of this name."
    case .unknownColumn: "The server's table has no column of this name."
    case .tooLarge: "The row is larger than `rowBytesMax`."
    case .validator:
      "The application's own validator refuses it; the message says why. A status of its own may stand here."
    case .blocked: "A request that this one depends on was refused. It was not tried."
    }
  }
}
