import SalvorModel
import Testing

@testable import SalvorConfiguration

@Suite("Column strings of the schema (interfaces.md)")
struct ColumnDeclarationTests {
  @Test(
    "type, ? and = default",
    arguments: [
      ("text", .text, false, nil), ("text?", .text, true, nil), (" text ? ", .text, true, nil),
      ("integer = 1", .integer, false, .integer(1)), ("integer=-1", .integer, false, .integer(-1)),
      ("integer = 9223372036854775807", .integer, false, .integer(.max)),
      ("integer? = +5", .integer, true, .integer(5)),
      ("boolean = 0", .boolean, false, .integer(0)), ("boolean = true", .boolean, false, .integer(1)),
      ("real = 0.5", .real, false, .real(0.5)), ("real = -2", .real, false, .real(-2)),
      ("blob", .blob, false, nil), ("blob = x''", .blob, false, .blob([])),
      ("blob = X'00fF'", .blob, false, .blob([0, 255])),
      ("text = open", .text, false, "open"), ("text =  two words ", .text, false, "two words"),
      ("text? = 'x'", .text, true, "x"), ("text = 'it''s'", .text, false, "it's"),
      ("text = ''", .text, false, ""), ("text = ' a '", .text, false, " a "), ("text = a=b", .text, false, "a=b"),
      ("text = 'null'", .text, false, "null"), ("text = ''''", .text, false, "'"),
      ("text = it's", .text, false, "it's"),
      ("json = {\"a\": [1]}", .json, false, "{\"a\": [1]}"),
      ("timestamp = 2026-01-01T00:00:00Z", .timestamp, false, "2026-01-01T00:00:00Z"),
    ] as [(String, ColumnType, Bool, Value?)])
  func reads(text: String, type: ColumnType, nullable: Bool, defaultValue: Value?) throws {
    let column = try ColumnDeclaration(text)
    #expect(column.type == type)
    #expect(column.nullable == nullable)
    #expect(column.defaultValue == defaultValue)
  }

  private static let types = "allowed: text, integer, real, blob, boolean, timestamp, json"

  @Test(
    "what is none is refused, with the nearest type; no default is shown",
    arguments: [
      ("", "is the type \"\"; \(types)"), ("?", "is the type \"\"; \(types)"),
      ("txt", "is the type \"txt\"; \(types); did you mean \"text\"?"),
      ("Text", "is the type \"Text\"; \(types); did you mean \"text\"?"),
      ("varchar?", "is the type \"varchar\"; \(types); did you mean \"text\"?"),
      ("int = 1", "is the type \"int\"; \(types); did you mean \"integer\"?"),
      ("text??", "is the type \"text?\"; \(types); did you mean \"text\"?"),
      ("integer =", "has no default after ="),
      ("text = ", "has no default after =; the empty text is written ''"),
      ("integer? = null", "has the default NULL; a nullable column starts as NULL without a default"),
      (
        "text? = NULL",
        "has the default NULL; a nullable column starts as NULL without a default, and the text itself is written 'NULL'"
      ),
      ("integer = 1.5", "has a default that is no 64-bit whole number"),
      ("integer = 9223372036854775808", "has a default that is no 64-bit whole number"),
      ("boolean = 2", "has a default that is none of 0, 1, false, true"),
      ("real = inf", "has a default that is no finite number"),
      ("real = 1,5", "has a default that is no finite number"),
      ("text = 'open", "has a default whose quote is not closed"),
      ("text = '''", "has a default whose quote is not closed"),
      (
        "text = 'a' b",
        "has a default that goes on after its closing quote; a quote inside is doubled: 'it''s'"
      ),
      (
        "blob = 00ff", "has a default that is no blob; write x'' with two hexadecimal digits for each byte"
      ),
      ("blob = x'0'", "has a default that is no blob; write x'' with two hexadecimal digits for each byte"),
    ])
  func refuses(text: String, expected: String) {
    #expect(throws: ColumnDeclaration.Failure(expected)) { _ = try ColumnDeclaration(text) }
  }
}
