import SalvorModel
import Testing

@testable import SalvorWire

private func written(_ value: Value) -> String {
  var writer = PayloadWriter()
  writer.value(value)
  return String(decoding: writer.bytes, as: UTF8.self)
}

private func read(_ text: String) throws -> Value {
  let bytes = Array(text.utf8)
  return try bytes.withUnsafeBufferPointer { buffer in
    var reader = PayloadReader(buffer)
    let value = try reader.item().value
    guard reader.atEnd() else { throw reader.malformed("rest") }
    return value
  }
}

@Suite("Values on the wire")
struct PayloadValueTests {
  static let values: [Value] = [
    nil, 0, 1, -1, 9, 10, 9_007_199_254_740_992, 9_007_199_254_740_993, .integer(.max), .integer(.min), 0.0, -0.0, 1.0,
    0.1, 1e300, .real(.leastNonzeroMagnitude), .real(.infinity), .real(-.infinity), "", "a",
    "quote \" backslash \\ slash /",
    "line\nfeed\ttab\r\u{0}\u{1F}\u{7F}", "é e\u{301} 日本 🛟", .text([0xFF, 0xFE]), .text([0x61, 0xC3]), .blob([]),
    .blob([0]),
    .blob([0, 1]), .blob([0, 1, 2]), .blob(Array(0...255)),
  ]

  @Test("every value comes back with its storage class and its bytes", arguments: values)
  func roundTrip(value: Value) throws {
    #expect(try read(written(value)) == value)
  }

  @Test("how a value is written is fixed")
  func forms() {
    #expect(written(9_007_199_254_740_992) == "9007199254740992")
    #expect(written(9_007_199_254_740_993) == "{\"integer\":\"9007199254740993\"}")
    #expect(written(3.0) == "3.0")
    #expect(written(.real(.nan)) == "null")
    #expect(written(.real(-.infinity)) == "{\"real\":\"-inf\"}")
    #expect(written("a\u{1}\"") == "\"a\\u0001\\\"\"")
    #expect(written(.text([0xFF])) == "{\"text\":\"/w==\"}")
    #expect(written(.blob([1, 2])) == "{\"blob\":\"AQI=\"}")
  }

  @Test("text in another's way of writing is understood")
  func otherWriters() throws {
    #expect(try read(" \"\\u00e9\\ud83d\\udedf\\/\\b\\f\" ") == "é🛟/\u{8}\u{C}")
    #expect(try read("1E2") == 100.0)
    #expect(try read("-0") == 0)
  }

  @Test(
    "what is malformed is refused, and never crashes",
    arguments: [
      "", "x", "nul", "01", "-", "1.", "1e", "1e999", "99999999999999999999", "\"", "\"\\", "\"\\u12\"", "\"\\ud800\"",
      "\"\\ud800\\u0041\"", "\"\\q\"", "\"a\nb\"", "{}", "{\"blob\":1}", "{\"blob\":\"AQ\"}", "{\"blob\":\"A===\"}",
      "{\"blob\":\"AQ==\"", "{\"integer\":\"1.5\"}", "{\"real\":\"nan\"}", "{\"other\":\"x\"}", "[1", "true",
    ])
  func malformed(text: String) {
    #expect(throws: SalvorError.self) { try read(text) }
  }

  @Test("a string that is not UTF-8 is refused")
  func notUTF8() {
    let bytes: [UInt8] = [0x22, 0xFF, 0x22]
    #expect(throws: SalvorError.self) {
      try bytes.withUnsafeBufferPointer { buffer in
        var reader = PayloadReader(buffer)
        _ = try reader.item()
      }
    }
  }

  @Test("nesting is limited")
  func nesting() throws {
    let deep = Array((String(repeating: "[", count: 100_000)).utf8)
    #expect(throws: SalvorError.self) { try JSONValue(parsing: deep) }
    let allowed = Array((String(repeating: "[", count: 15) + "1" + String(repeating: "]", count: 15)).utf8)
    #expect(try JSONValue(parsing: allowed).text == String(decoding: allowed, as: UTF8.self))
  }

  @Test("random bytes are read or refused, never crash")
  func randomBytes() throws {
    var generator = SplitMix(seed: 7)
    let alphabet = Array("[]{}\",:0123456789.eE+-\\utrfalsn \n\u{FF}".utf8)
    for _ in 0..<20_000 {
      let bytes = (0..<Int.random(in: 0...40, using: &generator)).map { _ in alphabet.randomElement(using: &generator)!
      }
      _ = try? JSONValue(parsing: bytes)
      bytes.withUnsafeBufferPointer { buffer in
        var upload = UploadChunkReader(buffer)
        while (try? upload.next()) ?? nil != nil {}
        var download = DownloadChunkReader(buffer)
        while (try? download.next()) ?? nil != nil {}
      }
    }
  }
}

/// A small seeded generator for tests.
struct SplitMix: RandomNumberGenerator {
  private var state: UInt64
  init(seed: UInt64) { state = seed }
  mutating func next() -> UInt64 {
    state &+= 0x9E37_79B9_7F4A_7C15
    var z = state
    z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ (z >> 27)) &* 0x94D0_49BB_1331_11EB
    return z ^ (z >> 31)
  }
}

@Suite("Chunks")
struct ChunkTests {
  private let stamp = RequestStamp(unchecked: String(repeating: "a", count: 32))
  private let other = RequestStamp(unchecked: String(repeating: "b", count: 32))

  @Test("an upload chunk comes back change by change, with counters, stamps, requests and versions")
  func upload() throws {
    var writer = UploadChunkWriter()
    let update = UploadShape(table: "t \"q\"", operation: .update, columns: ["a", "ä"])
    let delete = UploadShape(table: "u", operation: .delete, columns: [])
    func change(_ shape: UploadShape, _ stamp: RequestStamp, _ counter: Int64, _ made: Int64, _ values: [Value]) {
      let place = writer.place(of: shape)
      writer.beginChange(shape: place, stamp: stamp, counter: counter, made: made)
      for value in values { writer.value(value) }
      writer.endChange()
    }
    change(update, stamp, 7, 57, ["k", 1, 2, nil, "x"])
    change(update, stamp, 8, 57, ["l", 1, 2, .blob([1]), "y"])
    writer.former(first: 10, [FormerContent(first: 9, content: .max), FormerContent(first: 10, content: 1)])
    writer.request(first: 10, last: 11, tag: "visit 17")
    change(delete, stamp, 10, 57, ["k"])
    change(update, other, 11, 58, ["m", 1, 2, 3, 4])
    let incarnations = ["c", "d"].compactMap { IncarnationID(String(repeating: $0, count: 32)) }
    writer.lost(incarnations)
    writer.offer(
      first: 12, last: 13,
      Offer(
        LostVersion(incarnation: incarnations[1], number: 105, parting: 100), written: ["ä"], isForReview: true,
        isVersion: true))
    change(delete, other, 12, 58, ["n"])
    let bytes = writer.finish() + Array("{\"context\":\"p\",\"made\":57,\"keys\":[[\"k\",1],[\"l\",2]]}\n".utf8)
    #expect(writer.firstCounter == 7)
    #expect(writer.lastCounter == 12)

    var found: [String] = []
    try bytes.withUnsafeBufferPointer { buffer in
      var reader = UploadChunkReader(buffer)
      while let event = try reader.next() {
        switch event {
        case .shape(let place): found.append("shape \(place) \(reader.shapes[place].table)")
        case .request(let first, let last, let tag): found.append("request \(first)-\(last) \(tag ?? "")")
        case .former(let first, let contents):
          found.append("former \(first) \(contents.map { "\($0.first) \($0.content)" })")
        case .lost(let incarnations, let order):
          found.append("lost \(incarnations.map { $0.text.prefix(1) }) \(order.count)")
        case .offer(let first, let last, let offer):
          found.append(
            "offer \(first)-\(last) \(offer.version.incarnation.text.prefix(1)) \(offer.version.number) \(offer.version.parting) \(offer.written) \(offer.isForReview) \(offer.isVersion)"
          )
        case .change(let shape, let stamp, let counter, let made):
          var values: [String] = []
          while let item = try reader.item() { values.append(item.value.description) }
          let head = "\(counter) \(stamp.text.prefix(1)) \(made) \(reader.shapes[shape].operation) "
          found.append(head + values.joined(separator: ","))
        }
      }
    }
    #expect(
      found == [
        "shape 0 t \"q\"",
        "7 a 57 update k,1,2,null,x",
        "8 a 57 update l,1,2,x'01',y",
        "former 10 [\"9 4294967295\", \"10 1\"]",
        "request 10-11 visit 17",
        "shape 1 u",
        "10 a 57 delete k",
        "11 b 58 update m,1,2,3,4",
        "lost [\"c\", \"d\"] 1",
        "offer 12-13 d 105 100 [\"ä\"] true true",
        "12 b 58 delete n",
      ])
  }

  @Test("a value that is repeated comes as it came before; nothing is before the first one of a row")
  func sameValue() throws {
    var writer = UploadChunkWriter()
    let shape = writer.place(of: UploadShape(table: "t", operation: .update, columns: ["a", "b"]))
    for counter in 1...2 {
      writer.beginChange(shape: shape, stamp: stamp, counter: Int64(counter), made: 1)
      writer.value("k")
      writer.value("one \"escaped\"")
      writer.sameValue()
      writer.value(nil)
      writer.sameValue()
      writer.endChange()
    }
    let bytes = writer.finish()
    func read(_ bytes: [UInt8], readsValues: Bool = true) throws -> [[Value]] {
      var rows: [[Value]] = []
      try bytes.withUnsafeBufferPointer { buffer in
        var reader = UploadChunkReader(buffer)
        while let event = try reader.next() {
          guard case .change = event else { continue }
          rows.append([])
          while readsValues, let item = try reader.item() { rows[rows.count - 1].append(item.value) }
        }
      }
      return rows
    }
    let row: [Value] = ["k", "one \"escaped\"", "one \"escaped\"", nil, nil]
    #expect(try read(bytes) == [row, row])
    #expect(try read(bytes, readsValues: false).count == 2)
    for wrong in ["[0,[]]", "[0,\"k\",[1]]", "[0,\"k\",[[]]]", "[0,\"k\",[\"k\"]]"] {
      let text =
        "{\"stamp\":\"\(stamp.text)\"}\n{\"shape\":0,\"table\":\"t\",\"operation\":\"update\",\"columns\":[\"a\"]}\n{\"first\":1,\"made\":1,\"changes\":[\(wrong)]}\n"
      #expect(throws: SalvorError.self, "\(wrong)") { try read(Array(text.utf8)) }
    }
  }

  @Test("values that the caller does not read are passed over")
  func skipping() throws {
    var writer = DownloadChunkWriter()
    writer.table("t", columns: ["a", "b"])
    for index in 0..<3 {
      writer.beginRow(version: nil)
      writer.value(.integer(Int64(index)))
      writer.value("x")
      writer.endRow()
    }
    var rows = 0
    try writer.finish().withUnsafeBufferPointer { buffer in
      var reader = DownloadChunkReader(buffer)
      while let event = try reader.next() {
        if case .row = event { rows += 1 }
      }
    }
    #expect(rows == 3)
  }

  @Test("a download chunk comes back with tables, versions, rows and departures")
  func download() throws {
    var writer = DownloadChunkWriter()
    writer.full(["t"])
    writer.table("t", columns: ["id", "a"])
    writer.beginRow(version: nil)
    writer.value("k")
    writer.value(1)
    writer.endRow()
    writer.beginRow(version: 58)
    writer.value("l")
    writer.value(nil)
    writer.endRow()
    writer.beginKey(.deleted, version: 58)
    writer.value("m")
    writer.endRow()
    writer.beginKey(.left, version: 58)
    writer.value("n")
    writer.endRow()
    var found: [String] = []
    try writer.finish().withUnsafeBufferPointer { buffer in
      var reader = DownloadChunkReader(buffer)
      while let event = try reader.next() {
        var values: [String] = []
        while let item = try reader.item() { values.append(item.value.description) }
        found.append("\(event) \(values)")
      }
    }
    #expect(found.count == 6)
    #expect(found[0].contains("full"))
    #expect(found[2].hasSuffix("[\"k\", \"1\"]"))
    #expect(found[5].contains("left"))
    #expect(writer.upserts == 2)
    #expect(writer.deletes == 2)
  }

  @Test("lines are cut wherever the pieces are cut, and their length is limited")
  func lines() throws {
    let text = Array("one\ntwo\n\nthree\nrest".utf8)
    for size in 1...text.count {
      var splitter = LineSplitter(lineBytesMax: 100)
      var lines: [String] = []
      for start in stride(from: 0, to: text.count, by: size) {
        try splitter.split(Array(text[start..<min(text.count, start + size)])) {
          lines.append(String(decoding: $0, as: UTF8.self))
        }
      }
      #expect(lines == ["one", "two", "", "three"])
      #expect(splitter.rest() == Array("rest".utf8))
    }
    var splitter = LineSplitter(lineBytesMax: 3)
    #expect(throws: SalvorError.self) { try splitter.split(Array("long".utf8)) { _ in } }
  }
}
