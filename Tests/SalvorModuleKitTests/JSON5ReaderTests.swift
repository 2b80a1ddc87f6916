import SalvorModuleKit
import Testing

@Suite("JSON5 reader")
struct JSON5ReaderTests {
  private func read(_ text: String) throws -> ConfigurationValue {
    try JSON5Reader.read(Array(text.utf8), file: "f.json5")
  }

  private func refusal(_ bytes: [UInt8]) -> String {
    do throws(Diagnostic) {
      _ = try JSON5Reader.read(bytes, file: "f")
      return "accepted"
    } catch {
      return render([error])
    }
  }

  @Test(
    "json5.org: numbers",
    arguments: [
      ("0", .integer(0)), ("+1", .integer(1)), ("-17", .integer(-17)), ("0x1F", .integer(31)),
      ("-0xdecaf", .integer(-912559)), ("9223372036854775807", .integer(.max)),
      ("-9223372036854775808", .integer(.min)), ("-0x8000000000000000", .integer(.min)),
      ("9007199254740993", .integer(9_007_199_254_740_993)), (".5", .number(0.5)), ("5.", .number(5)),
      ("-1.25e2", .number(-125)), ("1E-1", .number(0.1)), ("Infinity", .number(.infinity)),
      ("-Infinity", .number(-.infinity)), ("+Infinity", .number(.infinity)),
    ] as [(String, ConfigurationValue.Content)])
  func numbers(text: String, expected: ConfigurationValue.Content) throws {
    #expect(try read(text).content == expected)
  }

  @Test("json5.org: NaN is a number")
  func notANumber() throws {
    guard case .number(let number) = try read("-NaN").content else {
      Issue.record("no number")
      return
    }
    #expect(number.isNaN)
  }

  @Test(
    "json5.org: strings, escapes and line continuations",
    arguments: [
      (#""a'b""#, "a'b"), (#"'a"b'"#, "a\"b"), (#"'\b\f\n\r\t\v\0'"#, "\u{8}\u{C}\n\r\t\u{B}\0"),
      (#"'\x41é'"#, "A\u{E9}"), (#"'\ud83d\ude00'"#, "\u{1F600}"), (#"'\A\q\'\"\\\/'"#, "Aq'\"\\/"),
      ("'one \\\ntwo'", "one two"), ("'one \\\r\ntwo'", "one two"), ("'one \\\u{2028}two'", "one two"),
      ("'a\u{2028}b'", "a\u{2028}b"), ("'tab\there'", "tab\there"), ("'größer 表'", "größer 表"), ("''", ""),
    ])
  func strings(text: String, expected: String) throws {
    guard case .string(let found) = try read(text).content else {
      Issue.record("no string")
      return
    }
    #expect(Array(found.utf8) == Array(expected.utf8))
  }

  @Test("json5.org: comments, trailing commas, and keys without quotes")
  func structure() throws {
    let text = """
      // a comment
      { unquoted: 1, 'single': [1, 2,], /* in
        between */ $a_1: null, \\u0061b: true, größe: false, "": {}, while: [], }
      """
    let value = try read("\u{FEFF}" + text + "\n// the end")
    guard case .object(let members) = value.content else {
      Issue.record("no object")
      return
    }
    #expect(members.map(\.key) == ["unquoted", "single", "$a_1", "ab", "größe", "", "while"])
    #expect(members.map(\.keyLine) == [2, 2, 3, 3, 3, 3, 3])
    #expect(members[1].value.content == .array([1, 2].map { ConfigurationValue(.integer($0), line: 2) }))
  }

  @Test(
    "every space of JSON5 separates", arguments: ["\t", "\u{B}", "\u{C}", "\u{A0}", "\u{FEFF}", "\u{2003}", "\u{3000}"])
  func spaces(space: String) throws {
    #expect(try read("[\(space)1\(space),\(space)]").content == .array([ConfigurationValue(.integer(1), line: 1)]))
  }

  @Test("lines are counted over every kind of line end", arguments: ["\n", "\r", "\r\n", "\u{2028}", "\u{2029}"])
  func lines(end: String) throws {
    guard case .array(let items) = try read("[1,\(end)2, // x\(end)/* \(end) */ 3]").content else {
      Issue.record("no list")
      return
    }
    #expect(items.map(\.line) == [1, 2, 4])
  }

  @Test("duplicate keys are kept, in the order of the file")
  func duplicates() throws {
    guard case .object(let members) = try read("{a: 1,\n b: 2,\n a: 3}").content else {
      Issue.record("no object")
      return
    }
    #expect(members.map(\.key) == ["a", "b", "a"])
    #expect(members.map(\.keyLine) == [1, 2, 3])
    var reader = OptionReader(try read("{a: 1,\n b: 2,\n a: 3}"), file: "f", path: "x")
    #expect(reader.integer("a", in: 0...9, default: 0) == 1)
    _ = reader.value("b")
    reader.reportUnknownKeys()
    #expect(render(reader.diagnostics) == "f:3: x.a: stands here again, first in line 1; keep one of them")
  }

  @Test(
    "what is not JSON5 is refused with line, column and what was expected",
    arguments: [
      ("", "f:1:1: expected an object { … }, found the end of the file"),
      ("{a: 1} x", "f:1:8: expected the end of the file, found “x”"),
      ("{a 1}", "f:1:4: expected a : after the key, found “1”"),
      ("{a: 1\n b: 2}", "f:2:2: expected a comma or }, found “b”"),
      ("{a: 1,\n\n", "f:3:1: the { of line 1 is never closed"),
      ("[1\n", "f:2:1: the [ of line 1 is never closed"),
      ("[,]", "f:1:2: expected a value, found “,”"),
      ("{,}", "f:1:2: expected a key or }, found “,”"),
      ("{1: 2}", "f:1:2: expected a key or }, found “1”"),
      (
        "{a: http}",
        "f:1:5: expected a value, found a word without quotes; a text stands in \"quotes\", the words are true, false and null"
      ),
      (
        "{a: True}",
        "f:1:5: expected a value, found a word without quotes; a text stands in \"quotes\", the words are true, false and null"
      ),
      ("010", "f:1:1: a number does not begin with 0, but for 0 itself, 0.5 and 0x1F"),
      ("-", "f:1:2: expected digits, found the end of the file"),
      ("0x", "f:1:3: expected hexadecimal digits after 0x, found the end of the file"),
      ("1e+", "f:1:4: expected digits of the exponent, found the end of the file"),
      ("5px", "f:1:2: expected the end of the number, found “p”"),
      ("1.2.3", "f:1:4: expected the end of the number, found “.”"),
      ("+x", "f:1:1: expected a number after the sign"),
      (
        "9223372036854775808",
        "f:1:1: is a whole number outside of 64 bits (-9223372036854775808 to 9223372036854775807)"
      ),
      (
        "0x8000000000000000",
        "f:1:1: is a whole number outside of 64 bits (-9223372036854775808 to 9223372036854775807)"
      ),
      ("1e999", "f:1:1: is a number too large for 64 bits"),
      ("'abc", "f:1:1: this text is never closed with a quote"),
      ("['ab\nc']", "f:1:2: this text is not closed on its line; end it with a quote, or the line with \\ to go on"),
      ("'\\1'", "f:1:2: JSON5 has no escape \\1 to \\9 and no octal ones; write \\u and four digits"),
      ("'\\01'", "f:1:2: JSON5 has no escape \\1 to \\9 and no octal ones; write \\u and four digits"),
      ("'\\xg1'", "f:1:2: expected 2 hexadecimal digits in this escape"),
      ("'\\ud83d'", "f:1:2: this \\u escape is half of a surrogate pair; give both halves"),
      ("'\\ude00'", "f:1:2: this \\u escape is half of a surrogate pair; give both halves"),
      ("{\\u0031a: 1}", "f:1:2: this escape cannot stand in a key without quotes"),
      ("/* open", "f:1:1: this comment is never closed with */"),
      ("/ 1", "f:1:1: expected a comment, // … or /* … */"),
      ("\u{1}", "f:1:1: expected a value, found the control character U+1"),
      ("{\"a\":\r\n  \"表\" \"b\"}", "f:2:7: expected a comma or }, found “\"”"),
    ])
  func refused(text: String, expected: String) {
    #expect(refusal(Array(text.utf8)) == expected)
  }

  @Test("a file that is not UTF-8 is refused with its line")
  func invalidUTF8() {
    #expect(
      refusal(Array("{a:\n'".utf8) + [0xFF] + Array("'}".utf8))
        == "f:2: is not valid UTF-8 here; save the file as UTF-8")
  }

  @Test("limits: nesting and size are bounded")
  func limits() throws {
    let deepest = String(repeating: "[", count: 16) + String(repeating: "]", count: 16)
    _ = try read(deepest)
    #expect(refusal(Array("[\(deepest)]".utf8)) == "f:1:17: is nested deeper than 16 levels")
    #expect(refusal([UInt8](repeating: 0x5B, count: 1_000_000)) == "f:1:17: is nested deeper than 16 levels")
    #expect(
      refusal([UInt8](repeating: 0x20, count: JSON5Reader.fileBytesMax + 1))
        == "f: is larger than 8388608 bytes, the most that a configuration may have")
  }

  @Test("every prefix of a file is read or refused, never more")
  func prefixes() throws {
    let text = #"{ "a": [1, -2.5e3, 0x1f, 'x\u0041\ud83d\ude00'], b: { c: null, // d"# + "\n } /* e */ }"
    let bytes = Array(text.utf8)
    _ = try JSON5Reader.read(bytes, file: "f")
    for count in 0..<bytes.count {
      #expect(refusal(Array(bytes[..<count])) != "accepted", "the first \(count) bytes")
    }
  }
}
