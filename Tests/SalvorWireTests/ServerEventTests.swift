import SalvorModel
import SalvorWire
import Testing

@Suite("Server-sent events")
struct ServerEventTests {
  private let commit = Commit(number: 12, id: CommitID(unchecked: String(repeating: "a", count: 32)))

  private func read(_ pieces: [String]) throws -> [ServerEvent] {
    var reader = ServerEventReader()
    return try pieces.flatMap { try reader.read(Array($0.utf8)) }
  }

  @Test("An event is read as it was written, in whatever pieces it comes")
  func roundTrip() throws {
    let events: [ServerEvent] = [
      .connected(groups: ["visits, all", "ä\"\n"], commit: commit), .changed(groups: [], commit: commit),
      .changed(groups: ["lists"], commit: Commit(number: 0, id: commit.id)),
    ]
    let text = events.flatMap(\.bytes) + ServerEvent.keepAlive
    for size in [1, 2, 7, text.count] {
      var reader = ServerEventReader()
      var found: [ServerEvent] = []
      for start in stride(from: 0, to: text.count, by: size) {
        found += try reader.read(Array(text[start..<min(start + size, text.count)]))
      }
      #expect(found == events)
    }
  }

  @Test("Comments, other fields, other events and CRLF are passed over")
  func passesOver() throws {
    let id = commit.text
    let text =
      ": hello\r\n\r\nretry: 10\nevent: later\ndata: 1\n\nevent:changed\r\nid:\(id)\r\n"
      + "data: {\"groups\":[\"a\"],\r\ndata: \"commit\":12,\"more\":1}\r\n\r\n\n"
    #expect(try read([text]) == [.changed(groups: ["a"], commit: commit)])
  }

  @Test("What is no event of ours under its name is malformed", arguments: ["[]", "{", "{\"groups\":1}", ""])
  func malformed(data: String) {
    #expect(throws: SalvorError.self) { try read(["event: changed\nid: \(commit.text)\ndata: \(data)\n\n"]) }
  }

  @Test("An event without an ID is malformed")
  func withoutID() {
    #expect(throws: SalvorError.self) { try read(["event: changed\ndata: {\"groups\":[]}\n\n"]) }
  }

  @Test("A commit is written NUMBER-ID")
  func commitText() {
    #expect(Commit(text: commit.text) == commit)
    for text in ["", "12", "12-", "-1-\(commit.id)", "12-\(commit.id)-", "x-\(commit.id)", "12-\(commit.id)a"] {
      #expect(Commit(text: text) == nil)
    }
  }

  @Test("Percent-encoding is taken off as it was put on", arguments: ["", "a b", "ü,&=?%", "100%", "%zz%4", "a~b-c._"])
  func percentEncoding(text: String) {
    let encoded = percentEncoded(text)
    #expect(encoded.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != 0x26 && $0 != 0x2C && $0 != 0x3D })
    #expect(percentDecoded(encoded) == text)
    #expect(
      queryParameters("/v1/events?a=1&groups=\(encoded)&b").mapValues(percentDecoded) == ["a": "1", "groups": text])
  }
}
