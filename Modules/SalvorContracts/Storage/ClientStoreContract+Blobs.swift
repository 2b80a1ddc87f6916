import SalvorModel
import SalvorStorage
import SalvorWire

extension ClientStoreContract {
  private typealias Blobs = ContractBlobs

  /// A case about photographs.
  private static func photos(
    _ name: String, rule: String = "Blobs.swift", _ body: @escaping @Sendable (inout ClientBench) async throws -> Void
  ) -> Case {
    on(Blobs.schema, name, rule: rule, body)
  }

  private static func row(_ id: String, _ title: String, _ image: ContractBlobs.Blob) -> Row {
    [.text(id), "anna", .text(title), image.value]
  }

  private static func insert(_ id: String, _ image: ContractBlobs.Blob) -> ApplicationWrite {
    .insert(
      table: "photo",
      values: [
        NamedValue("id", .text(id)), NamedValue("owner", "anna"), NamedValue("title", "a"),
        NamedValue("image", image.value),
      ])
  }

  /// The bytes of a blob of the upload, in parts.
  private static func content(_ blob: OutgoingBlob, _ bench: ClientBench) async throws -> [UInt8] {
    var content: [UInt8] = []
    while Int64(content.count) < blob.reference.size {
      let part = try await bench.store.outgoingBlob(blob, from: Int64(content.count), count: 15_000)
      try expect(!part.isEmpty && part.count <= 15_000, "a part has from 1 to as many bytes as were asked for")
      content += part
    }
    return content
  }

  private static func chunk(_ bench: ClientBench) async throws -> UploadChunk {
    await bench.store.endSession()
    _ = try await bench.store.beginSession(groups: nil)
    return try expectSome(try await bench.store.uploadChunk(after: 0, bytesTarget: 1 << 20), "a chunk")
  }

  private static func expectContents(
    _ chunk: UploadChunk, _ blobs: [ContractBlobs.Blob], _ bench: ClientBench, file: String = #fileID,
    line: Int = #line
  ) async throws {
    try expectEqual(
      chunk.blobs.map(\.reference), blobs.map(\.reference), "the blobs of the chunk", file: file, line: line)
    for (blob, expected) in zip(chunk.blobs, blobs) {
      let found = try await content(blob, bench)
      try expect(found == expected.bytes, "a blob of the upload must have its bytes", file: file, line: line)
    }
  }

  private static func expectMissing(
    _ blobs: [(ContractBlobs.Blob, Int64)], _ bench: ClientBench, file: String = #fileID, line: Int = #line
  ) async throws {
    let found = try await bench.store.missingBlobs(limit: 100)
    try expectEqual(
      Set(found.map { BlobNeed(reference: $0.reference, received: $0.received) }),
      Set(blobs.map { BlobNeed(reference: $0.0.reference, received: $0.1) }), "the missing blobs", file: file,
      line: line)
    try expectEqual(found.count, blobs.count, "the number of missing blobs", file: file, line: line)
  }

  static let blobs: [Case] = [
    photos("large blobs of an upload are referred to, small ones stand in it") { bench in
      try await bench.store.write([insert("p1", Blobs.first), insert("p2", Blobs.small), insert("p3", Blobs.second)])
      let chunk = try await chunk(bench)
      try expect(chunk.bytes.count < 3000, "the bytes of a large blob must not be in the payload")
      try await expectContents(chunk, [Blobs.first, Blobs.second], bench)
      let store = bench.store
      let unknown = OutgoingBlob(
        reference: BlobReference(hash: ContractBlobs.unknown, size: 40_000), counter: chunk.firstCounter)
      try await expectError(.notFound, "a blob that the upload does not refer to") {
        _ = try await store.outgoingBlob(unknown, from: 0, count: 10)
      }
    },
    photos("an upload that is sent again has the same blobs, whatever was written since", rule: "semantics 5") {
      bench in
      try await bench.store.write([insert("p1", Blobs.first)])
      let before = try await chunk(bench)
      try await bench.write(.update("photo", ["p1"], ["image": Blobs.second.value]))
      try await expectContents(before, [Blobs.first], bench)
      try await bench.restart()
      let again = try await chunk(bench)
      try expectEqual(again.bytes, before.bytes, "the bytes sent again")
      try await bench.write(.update("photo", ["p1"], ["image": Blobs.third.value]))
      try await expectContents(again, [Blobs.first], bench)
      await bench.store.endSession()
      let upload = try expectSome(try await bench.store.beginSession(groups: nil).upload, "the upload")
      _ = try await bench.store.settle(
        sequence: upload.sequence, results: UploadResults(commit: bench.nextCommit(), acceptedRequests: 1, refused: []))
      // What the row was, and what it became, step by step.
      let next = try await chunk(bench)
      try await expectContents(next, [Blobs.first, Blobs.second, Blobs.second, Blobs.third], bench)
    },
    photos("an upload that the server has given up waits again, under its request IDs", rule: "ClientStore.swift") {
      bench in
      try await bench.store.write([insert("p1", Blobs.first), insert("p2", Blobs.second)])
      let drawn = try await bench.begin()
      let upload = try expectSome(drawn.session.upload, "the upload")
      let store = bench.store
      try await expectError(.usage, "another upload") {
        try await store.takeBackUpload(SequenceID(from: SystemRandom()))
      }
      try await store.takeBackUpload(upload.sequence)
      try expectEqual(try await bench.queued().map(\.state), [.queued, .queued], "what waits")
      try await bench.restart()
      try expect(try await !bench.store.status().state.isOlderThanIdentityFile, "the identity file is in step")
      let again = try await bench.begin()
      let next = try expectSome(again.session.upload, "the next upload")
      try expect(next.sequence != upload.sequence && !next.isResend, "it is another upload")
      try expectEqual(again.session.state.previous, drawn.session.state.previous, "the previous sequence ID")
      try expectEqual(again.changes.map(\.id), drawn.changes.map(\.id), "the request IDs")
      try await bench.settle(again)
      try await bench.expectRows("photo", [row("p1", "a", Blobs.first), row("p2", "a", Blobs.second)])
    },
    photos(
      "an upload refers to no more blobs than asked for, requests in order; what is more by itself comes alone, at last",
      rule: "ClientStore.swift, beginSession"
    ) { bench in
      try await bench.store.write([insert("p1", Blobs.first), insert("p2", Blobs.second)])
      try await bench.write(
        .update("photo", ["p1"], ["title": "b"]), .update("photo", ["p2"], ["title": "b"]))
      try await bench.store.write([insert("p3", Blobs.third), insert("p4", Blobs.small)])
      var uploads: [[String]] = []
      while uploads.count < 10 {
        let begun = try await bench.begin(room: UploadRoom(blobBytes: 45_000))
        guard begun.session.upload != nil else { break }
        uploads.append(begun.changes.map { "\($0.operation.rawValue) \($0.values[0])" })
        try await bench.settle(begun, commit: bench.nextCommit())
      }
      try expectEqual(
        uploads,
        [["insert p1"], ["update p1", "insert p3", "insert p4"], ["insert p2"], ["update p2"]], "the uploads")
      try await bench.expectRows(
        "photo",
        [
          row("p1", "b", Blobs.first), row("p2", "b", Blobs.second), row("p3", "a", Blobs.third),
          row("p4", "a", Blobs.small),
        ])
      // Old values count, too.
      try await bench.write(
        .update("photo", ["p1"], ["image": Blobs.third.value]), .update("photo", ["p3"], ["title": "c"]),
        .update("photo", ["p3"], ["image": .null]))
      let begun = try await bench.begin(room: UploadRoom(blobBytes: 70_000))
      try expectEqual(begun.changes.map(\.columns), [["title"], ["image"]], "the changes of the next upload")
    },
    photos(
      "an upload goes up to a counter that is asked for; the first request alone where it is beyond",
      rule: "UploadRoom.swift, lastCounter"
    ) { bench in
      try await bench.store.write([insert("p1", Blobs.small), insert("p2", Blobs.small), insert("p3", Blobs.small)])
      let counters = try await bench.queued().map(\.id.counter)
      var uploads: [[String]] = []
      for last in [counters[1], 0] {
        let begun = try await bench.begin(room: UploadRoom(lastCounter: last))
        uploads.append(begun.changes.map { "\($0.values[0])" })
        try await bench.settle(begun, commit: bench.nextCommit())
      }
      try expectEqual(uploads, [["p1", "p2"], ["p3"]], "the uploads")
    },
    photos("a download is applied once its blobs are here, and not before") { bench in
      try await bench.stage(full: ["photo"], rows: [("photo", row("p1", "a", Blobs.first))])
      let store = bench.store
      try await expectMissing([(Blobs.first, 0)], bench)
      let missing = try await store.missingBlobs(limit: 10)
      try expectEqual(missing.map(\.place), [Blobs.place("p1")], "where the server has it")
      let cursor = bench.nextCommit()
      let end = DownloadEnd(
        groups: bench.schema.groups.map { GroupState(name: $0.name, cursor: cursor, scopeDigest: "all") })
      try await expectError(.blobMissing, "applying without a blob") { _ = try await store.apply(end) }
      try await bench.expectRows("photo", [])
      let received = try await store.stageBlob(Array(Blobs.first.bytes[..<9000]), of: Blobs.first.reference, at: 0)
      try expectEqual(received, 9000, "what is staged")
      try await bench.restart()
      try await expectMissing([(Blobs.first, 9000)], bench)
      try await bench.store.stageBlob(Array(Blobs.first.bytes[9000...]), of: Blobs.first.reference, at: 9000)
      try await expectMissing([], bench)
      try expectEqual(try await bench.apply().upserts, 1, "the rows applied")
      try await bench.expectRows("photo", [row("p1", "a", Blobs.first)])
      try expectEqual(try await bench.store.status().queued, 0, "the queue")
    },
    photos(
      "a row with a blob above the store's own limit is left out, and named; others come", rule: "decision 201"
    ) { bench in
      let large = BlobReference(hash: Blobs.first.reference.hash, size: Int64(Limits().blobBytesMax) + 1)
      var writer = DownloadChunkWriter()
      writer.table("photo", columns: bench.schema.tables[0].columns.map(\.name))
      for reference in [large, nil] {
        writer.beginRow(version: nil)
        for column in bench.schema.tables[0].columns {
          writer.value { payload in
            if column.name == "image" {
              if let reference { payload.reference(reference) } else { payload.value(.null) }
            } else {
              payload.value(column.name == "id" ? (reference == nil ? "p2" : "p1") : "a")
            }
          }
        }
        writer.endRow()
      }
      try await bench.store.stage(StagedChunk(download: "one", bytes: writer.finish(), position: "1"))
      try await expectMissing([], bench)
      let report = try await bench.apply()
      let isNamed = report.notices.contains { $0.contains("p1") && $0.contains("blobBytesMax") }
      try expect(isNamed, "the row that is left out is named")
      try expectEqual(try await bench.store.rows(of: "photo").map { $0[0] }, ["p2"], "the rows")
    },
    photos("a part that does not follow on, and bytes that are not those of the hash, are not taken") { bench in
      try await bench.stage(full: ["photo"], rows: [("photo", row("p1", "a", Blobs.first))])
      try await expectMissing([(Blobs.first, 0)], bench)
      let store = bench.store
      try await expectError(.chunkMissing, "a part that leaves a gap") {
        _ = try await store.stageBlob([1], of: Blobs.first.reference, at: 5)
      }
      try await expectError(.blobMismatch, "wrong bytes") {
        _ = try await store.stageBlob([UInt8](repeating: 0, count: 40_000), of: Blobs.first.reference, at: 0)
      }
      try await expectMissing([(Blobs.first, 0)], bench)
      try await store.stageBlob(Blobs.first.bytes, of: Blobs.first.reference, at: 0)
      _ = try await bench.apply()
      try await bench.expectRows("photo", [row("p1", "a", Blobs.first)])
    },
    photos("a blob that the database holds is not fetched again") { bench in
      try await bench.stage(
        full: ["photo"],
        rows: [
          ("photo", row("p1", "a", Blobs.first)), ("photo", row("p2", "b", Blobs.first)),
          ("photo", row("p3", "c", Blobs.second)),
        ])
      try await expectMissing([(Blobs.first, 0), (Blobs.second, 0)], bench)
      for blob in [Blobs.first, Blobs.second] {
        try await bench.store.stageBlob(blob.bytes, of: blob.reference, at: 0)
      }
      _ = try await bench.apply()
      // Another column of the row; another row with the blob; rows that change places.
      try await bench.stage(
        rows: [
          ("photo", row("p1", "z", Blobs.second)), ("photo", row("p3", "y", Blobs.first)),
          ("photo", row("p4", "x", Blobs.first)), ("photo", row("p5", "w", Blobs.third)),
        ])
      try await expectMissing([(Blobs.third, 0)], bench)
      try await bench.store.stageBlob(Blobs.third.bytes, of: Blobs.third.reference, at: 0)
      _ = try await bench.apply()
      try await bench.expectRows(
        "photo",
        [
          row("p1", "z", Blobs.second), row("p2", "b", Blobs.first), row("p3", "y", Blobs.first),
          row("p4", "x", Blobs.first), row("p5", "w", Blobs.third),
        ])
    },
    photos("a download that is given up leaves what has come of its blobs") { bench in
      try await bench.stage(full: ["photo"], rows: [("photo", row("p1", "a", Blobs.first))])
      try await expectMissing([(Blobs.first, 0)], bench)
      try await bench.store.stageBlob(Array(Blobs.first.bytes[..<9000]), of: Blobs.first.reference, at: 0)
      try await bench.store.discardStaged()
      try await expectMissing([], bench)
      try await bench.stage(
        full: ["photo"], rows: [("photo", row("p1", "b", Blobs.first)), ("photo", row("p2", "b", Blobs.second))])
      try await expectMissing([(Blobs.first, 9000), (Blobs.second, 0)], bench)
    },
    photos("a blob that waits and one that comes are told apart", rule: "semantics 2") { bench in
      try await bench.stage(full: ["photo"], rows: [("photo", row("p1", "a", Blobs.first))])
      try await expectMissing([(Blobs.first, 0)], bench)
      try await bench.store.stageBlob(Blobs.first.bytes, of: Blobs.first.reference, at: 0)
      _ = try await bench.apply()
      try await bench.write(.update("photo", ["p1"], ["image": Blobs.third.value]))
      try await bench.stage(rows: [("photo", row("p1", "b", Blobs.second))])
      try await expectMissing([(Blobs.second, 0)], bench)
      try await bench.store.stageBlob(Blobs.second.bytes, of: Blobs.second.reference, at: 0)
      _ = try await bench.apply()
      try await bench.expectRows("photo", [row("p1", "b", Blobs.third)])
      try await expectContents(try await chunk(bench), [Blobs.first, Blobs.third], bench)
    },
  ]
}
