import Foundation
import SalvorHost
import SalvorModel
import StandardModules
import Testing

@Suite("docs/reference/configuration.md")
struct ConfigurationReferenceTests {
  private let text: String

  init() throws {
    let root = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
      .deletingLastPathComponent()
    text = try String(contentsOf: root.appendingPathComponent("docs/reference/configuration.md"), encoding: .utf8)
  }

  @Test("the table of limits is the code's")
  func limits() {
    let rows = text.split(separator: "\n").filter { $0.hasPrefix("| `") && $0.contains(" to ") }.map(String.init)
    for limit in LimitSetting.all {
      let row =
        "| `\(limit.name)` | \(limit.defaultValue) | \(limit.range.lowerBound) to \(limit.range.upperBound) | \(limit.summary) |"
      #expect(rows.contains(row))
    }
  }

  @Test("strategies and reasons are the code's")
  func names() {
    let strategies = StandardModules.all.filter { $0.descriptor.kind == .recoveryStrategy }
      .map { "`\($0.descriptor.name)`" }
    let reasons = RecoveryReason.allCases.map { "`\($0.rawValue)`" }
    let flat = text.split(separator: "\n").joined(separator: " ")
    let line = text.split(separator: "\n\n").first { $0.hasPrefix("Strategies: ") } ?? ""
    for strategy in strategies { #expect(line.contains(strategy)) }
    #expect(flat.contains("Reasons: " + reasons.joined(separator: ", ") + "."))
  }
}
