import SalvorModel
import SalvorWire
import Testing

/// References to blobs in payloads.
@Suite struct BlobReferenceTests {
  private static let text = String(repeating: "0a", count: 32)
  private static let hash = BlobHash(text)!
  private static let sink = BlobSink(bytesMin: 4) { _ in hash }

  private func value(_ text: String, _ blobs: (any BlobResolver)? = nil) throws -> (Value, BlobReference?) {
    try Array(text.utf8).withUnsafeBufferPointer { buffer in
      var reader = PayloadReader(buffer, blobs: blobs)
      let value = try reader.item().value
      guard reader.atEnd() else { throw reader.malformed("something follows") }
      return (value, reader.lastReference)
    }
  }

  @Test("a large blob is written as a reference, a small one and a key are not")
  func written() {
    var writer = PayloadWriter(blobs: Self.sink)
    writer.value(.blob([1, 2, 3]))
    writer.value(.blob([1, 2, 3, 4]))
    writer.value(.blob([1, 2, 3, 4]), isKey: true)
    #expect(
      String(decoding: writer.bytes, as: UTF8.self)
        == #"{"blob":"AQID"}{"ref":"\#(Self.text)","size":4}{"blob":"AQIDBA=="}"#)
    #expect(writer.references == [BlobReference(hash: Self.hash, size: 4)])
  }

  @Test("a reference is read as the blob that it names")
  func read() throws {
    var contents = BlobContents()
    contents.contents[Self.hash] = [9, 8, 7, 6]
    let (found, reference) = try value(#"{ "ref" : "\#(Self.text)" , "size" : 4 }"#, contents)
    #expect(found == .blob([9, 8, 7, 6]))
    #expect(reference == BlobReference(hash: Self.hash, size: 4))
    #expect(try value("1", contents).1 == nil)
  }

  @Test(
    "what is no reference, or cannot be resolved, is refused",
    arguments: [
      #"{"ref":"abc","size":4}"#, #"{"ref":"\#(text)"}"#, #"{"ref":"\#(text)","size":-1}"#,
      #"{"ref":"\#(text)","size":"4"}"#, #"{"ref":"\#(text)","size":4,"x":1}"#,
      #"{"ref":"\#(text.uppercased())","size":4}"#,
      #"{"ref":"\#(text)","size":4"#, #"{"ref":"\#(text)","size":"#,
    ])
  func refused(_ text: String) {
    #expect { try value(text, BlobCollector()) } throws: { ($0 as? SalvorError)?.code == .malformed }
  }

  @Test("without a resolver a reference is malformed; with one that has not the blob it is missing")
  func unresolved() {
    let text = #"{"ref":"\#(Self.text)","size":4}"#
    #expect { try value(text) } throws: { ($0 as? SalvorError)?.code == .malformed }
    #expect { try value(text, BlobContents()) } throws: { ($0 as? SalvorError)?.code == .blobMissing }
  }

  @Test("a download's references are found with their rows; rows that are passed over resolve nothing")
  func placed() throws {
    var writer = DownloadChunkWriter(blobs: Self.sink)
    writer.table("photo", columns: ["image", "id"])
    for id in ["a", "b"] {
      writer.beginRow(version: 1)
      writer.value(.blob([1, 2, 3, 4]))
      writer.value(.text(id))
      writer.endRow()
    }
    let bytes = writer.finish()
    #expect(mentionsBlobs(bytes))
    #expect(!mentionsBlobs(Array(#"{"rows":[["{\"ref\":"]]}"#.utf8)))
    let found = try placedBlobs(inDownload: bytes) { $0 == "photo" ? ["id"] : nil }
    #expect(found.map(\.place) == ["a", "b"].map { BlobPlace(table: "photo", key: [.text($0)], column: "image") })
    try bytes.withUnsafeBufferPointer { buffer in
      var reader = DownloadChunkReader(buffer)
      var rows = 0
      while let event = try reader.next() { if case .row = event { rows += 1 } }
      #expect(rows == 2)
    }
  }

  @Test("an upload's references are told with their changes")
  func outgoing() throws {
    var writer = UploadChunkWriter(blobs: Self.sink)
    let shape = UploadShape(table: "photo", operation: .insert, columns: ["id", "image"])
    let stamp = RequestStamp(from: SystemRandom())
    for counter in Int64(3)...4 {
      writer.beginChange(shape: writer.place(of: shape), stamp: stamp, counter: counter, made: 0)
      writer.value(.integer(counter))
      writer.value(.blob([1, 2, 3, 4]))
      writer.endChange()
    }
    #expect(writer.blobs.map(\.counter) == [3, 4])
    #expect(writer.referredBytes == 8)
    let bytes = writer.finish()
    try bytes.withUnsafeBufferPointer { buffer in
      var reader = UploadChunkReader(buffer)
      var changes = 0
      while let event = try reader.next() { if case .change = event { changes += 1 } }
      #expect(changes == 2)
    }
  }
}
