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
        "| `\(code.rawValue)` | \(code.number) | \(code.httpStatus) | \(code.exitCode) | \(code.isRetryable ? "yes" : "no") | \(code.meaning) |"
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
    case .rowDeleted: "The row was deleted on the server meanwhile, or is not within the sender's scope."
    case .keyExists: "The server has a row of this key already, made by somebody else."
    case .constraint: "A unique, check or not-null constraint of the server's table refuses the row."
    case .missingParent: "The row references one that the server does not have, or that the sender may not see."
    case .notStorable: "A value is not of its column's type."
    case .unknownTable: "The server does not synchronize a table of this name."
    case .unknownColumn: "The server's table has no column of this name."
    case .tooLarge: "The row is larger than `rowBytesMax`."
    case .validator:
      "The application's own validator refuses it; the message says why. A status of its own may stand here."
    case .blocked: "A request that this one depends on was refused. It was not tried."
    case .purged: "The row was erased for good on the server (`salvor server purge`), and its key is not free."
    case .notLost: "An offer of a commit that the server has, or cannot have had: it has lost nothing there."
    case .rejected: "An offer of a lost row that the server's operator has rejected (`salvor server restores reject`)."
    }
  }
}
