import SalvorModel
import SalvorWire
import Testing

/// Numbers of the other side are added up: none that a message may name makes a sum that is no number any more.
@Suite("Numbers of messages have bounds")
struct NumberTests {
  static let large: [Int64] = [.max, 1 << 62, JSONValue.countMax + 1, -1, .min]

  private func offer(bytes: Int64 = 10, size: Int64 = 10, count: Int64 = 10) throws -> SnapshotOffer {
    let id = String(repeating: "a", count: 64)
    let text =
      #"{"id":"\#(id)","group":"g","commit":[1,"\#(id.prefix(32))"],"scope":"s","coding":"gzip","bytes":\#(bytes),"size":\#(size),"tables":[["a",\#(count),"0"],["b",\#(count),"0"]],"link":"/"}"#
    return try SnapshotOffer(JSONValue(parsing: Array(text.utf8)))
  }

  @Test(
    "a snapshot's offer with a size, a length or a count that no file has is malformed", arguments: NumberTests.large)
  func offers(number: Int64) throws {
    #expect(try offer(bytes: JSONValue.countMax, size: JSONValue.countMax, count: JSONValue.countMax).rows > 0)
    for wrong in [{ try offer(bytes: number) }, { try offer(size: number) }, { try offer(count: number) }] {
      #expect { try wrong() } throws: { ($0 as? SalvorError)?.code == .malformed }
    }
  }

  @Test("a shape that names a column twice is malformed: one value would be looked at and the other written")
  func doubledColumn() throws {
    let chunk = Array(
      (#"{"stamp":"\#(String(repeating: "a", count: 32))"}"# + "\n"
        + #"{"shape":0,"table":"t","operation":"insert","columns":["id","v","id"]}"#).utf8)
    #expect {
      try chunk.withUnsafeBufferPointer { buffer in
        var reader = UploadChunkReader(buffer)
        while try reader.next() != nil {}
      }
    } throws: { ($0 as? SalvorError)?.code == .malformed }
  }

  @Test(
    "a change, a request or an offer whose counter is near the end of the numbers is malformed",
    arguments: [
      #"{"first":9223372036854775807,"made":1,"changes":[[0,"a"]]}"#,
      #"{"request":1,"last":9223372036854775807}"#,
    ])
  func counters(line: String) throws {
    let stamp = String(repeating: "a", count: 32)
    let chunk = Array(
      (#"{"stamp":"\#(stamp)"}"# + "\n" + #"{"shape":0,"table":"t","operation":"insert","columns":["id"]}"# + "\n"
        + line)
        .utf8)
    #expect {
      try chunk.withUnsafeBufferPointer { buffer in
        var reader = UploadChunkReader(buffer)
        while try reader.next() != nil {}
      }
    } throws: { ($0 as? SalvorError)?.code == .malformed }
  }
}
