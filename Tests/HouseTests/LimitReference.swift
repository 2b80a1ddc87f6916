import Foundation
import SalvorHost
import Testing

/// The table of limits in docs/reference/configuration.md, made from `LimitSetting.all`.
@Suite struct LimitReference {
  @Test("docs/reference/configuration.md has every limit with its default (write it anew with SALVOR_WRITE_DOCS=1)")
  func everyLimitIsInTheReference() throws {
    let tree = SourceTree()
    let path = "docs/reference/configuration.md"
    if ProcessInfo.processInfo.environment["SALVOR_WRITE_DOCS"] == "1" {
      let page = try tree.read(path)
      let start = try #require(page.range(of: "## Limits\n\n")).upperBound
      let end = try #require(page.range(of: "\n\n## The schema")).lowerBound
      try (page[..<start] + LimitReference.table() + page[end...]).write(
        to: tree.root.appendingPathComponent(path), atomically: true, encoding: .utf8)
    }
    #expect(try tree.read(path).contains("## Limits\n\n" + LimitReference.table() + "\n\n"))
  }

  static func table() -> String {
    var lines = ["| limit | default | allowed | what meets it |", "| --- | --- | --- | --- |"]
    for limit in LimitSetting.all {
      lines.append(
        "| `\(limit.name)` | \(limit.defaultValue) | \(limit.range.lowerBound) to \(limit.range.upperBound) | \(limit.summary) |"
      )
    }
    return lines.joined(separator: "\n")
  }
}
