import SalvorModel
import SalvorStorage
import SalvorWire

extension ServerStoreContract {
  private static let anna = Principal(name: "anna")
  private static let ben = Principal(name: "ben")
  private typealias Blobs = ContractBlobs

  /// A case about photographs.
  private static func photos(
    _ name: String, rule: String = "Blobs.swift", _ body: @escaping @Sendable (inout ServerBench) async throws -> Void
  ) -> Case {
    on(Blobs.schema, name, rule: rule, body)
  }

  private static func photo(_ id: String, _ owner: String, _ title: Value, _ image: ContractBlobs.Blob) -> Sent {
    .insert("photo", ["id": .text(id), "owner": .text(owner), "title": title, "image": image.value])
  }

  /// Sends a blob whole.
  private static func send(_ blob: ContractBlobs.Blob, _ bench: ServerBench, as principal: Principal) async throws {
    let received = try await bench.store.stageBlob(blob.bytes, of: blob.reference, at: 0, for: principal)
    try expectEqual(received, blob.reference.size, "what is staged")
  }

  private static func expectNeeds(
    _ blobs: [ContractBlobs.Blob], _ needs: [(ContractBlobs.Blob, Int64)], _ bench: ServerBench,
    as principal: Principal,
    file: String = #fileID, line: Int = #line
  ) async throws {
    try expectEqual(
      try await bench.store.missingBlobs(of: blobs.map(\.reference), for: principal),
      needs.map { BlobNeed(reference: $0.0.reference, received: $0.1) }, "what \(principal.name) must send", file: file,
      line: line)
  }

  static let blobs: [Case] = [
    photos("large blobs are fed as references, small ones as they are") { bench in
      try await bench.write(
        .insert("photo", ["id": "p1", "owner": "anna", "image": Blobs.first.value]),
        .insert("photo", ["id": "p2", "owner": "anna", "image": Blobs.small.value]))
      let device = try await bench.device(download: false)
      let page = try await bench.store.page(
        PageRequest(
          remote: device.remote, principal: device.principal, groups: device.groups, position: nil,
          bytesTarget: 1 << 20))
      let placed = try placedBlobs(inDownload: page.bytes) { _ in ["id"] }
      try expectEqual(placed.map(\.reference), [Blobs.first.reference], "the references")
      try expectEqual(placed.map(\.place), [Blobs.place("p1")], "their places")
      try expect(page.bytes.count < 2000, "the bytes of a large blob must not be in the payload")
      for place in [Blobs.place("p1"), nil] {
        let content = try await bench.store.blobContent(of: Blobs.first.reference, at: place, for: anna)
        try expect(content == Blobs.first.bytes, "the bytes must be those of the row")
      }
    },
    photos("an upload takes its blobs from what was sent before it, in parts, and empties it") { bench in
      var device = try await bench.device()
      try await expectNeeds([Blobs.first, Blobs.second], [(Blobs.first, 0), (Blobs.second, 0)], bench, as: anna)
      let store = bench.store
      let reference = Blobs.first.reference
      for (start, end) in [(0, 10_000), (10_000, 39_999)] {
        let part = Array(Blobs.first.bytes[start..<end])
        let received = try await store.stageBlob(part, of: reference, at: Int64(start), for: anna)
        try expectEqual(received, Int64(end), "what is staged")
        try await expectNeeds([Blobs.first], [(Blobs.first, Int64(end))], bench, as: anna)
      }
      try await expectError(.chunkMissing, "a part that leaves a gap") {
        _ = try await store.stageBlob([1], of: Blobs.second.reference, at: 7, for: anna)
      }
      let again = try await store.stageBlob(Array(Blobs.first.bytes[..<10_000]), of: reference, at: 0, for: anna)
      try expectEqual(again, 39_999, "what is staged after a part came twice")
      _ = try await store.stageBlob([Blobs.first.bytes[39_999]], of: reference, at: 39_999, for: anna)
      try await send(Blobs.second, bench, as: anna)
      try await expectNeeds([Blobs.first, Blobs.second], [], bench, as: anna)
      try expectAccepted(
        try await device.upload(photo("p1", "anna", "a", Blobs.first), photo("p2", "anna", "b", Blobs.second)), 2)
      try await bench.expectRows(
        "photo", [["p1", "anna", "a", Blobs.first.value], ["p2", "anna", "b", Blobs.second.value]])
      try expectEqual(try await store.stats().stagedBytes, 0, "the bytes in staging")
    },
    photos("an upload without one of its blobs changes nothing, and is processed once it is there") { bench in
      var device = try await bench.device()
      let store = bench.store
      let chunk = device.chunk([photo("p1", "anna", "a", Blobs.first), photo("p2", "anna", "b", Blobs.second)])
      let sequence = SequenceID(from: SystemRandom())
      let upload = ProcessRequest(remote: device.remote, sequence: sequence, principal: anna, chunks: [chunk])
      try await send(Blobs.first, bench, as: anna)
      let error = try await expectError(.blobMissing, "an upload without its second blob") {
        _ = try await store.process(upload)
      }
      try expectEqual(error.context["blob"], Blobs.second.reference.hash.text, "the blob that is named")
      try await bench.expectRows("photo", [])
      try expect(try await store.results(device.remote, sequence: sequence) == nil, "nothing is recorded")
      try await expectNeeds([Blobs.first, Blobs.second], [(Blobs.second, 0)], bench, as: anna)
      try await send(Blobs.second, bench, as: anna)
      try expectAccepted(try await store.process(upload), 2)
      try expectEqual(try await store.rows(of: "photo").count, 2, "the rows")
      // Recorded results need no blob.
      try expectAccepted(try await store.process(upload), 2)
    },
    photos("bytes that are not those of the hash are thrown away") { bench in
      let store = bench.store
      let reference = Blobs.first.reference
      _ = try await store.stageBlob(Array(Blobs.first.bytes[..<20_000]), of: reference, at: 0, for: anna)
      try await expectError(.blobMismatch, "a wrong second half") {
        _ = try await store.stageBlob([UInt8](repeating: 0, count: 20_000), of: reference, at: 20_000, for: anna)
      }
      try await expectNeeds([Blobs.first], [(Blobs.first, 0)], bench, as: anna)
      try await send(Blobs.first, bench, as: anna)
      try await expectNeeds([Blobs.first], [], bench, as: anna)
    },
    photos("a part lies within its blob") { bench in
      let store = bench.store
      for (count, offset) in [(0, 0), (1, -1), (2, 39_999)] {
        try await expectError(.malformed, "\(count) bytes at \(offset)") {
          _ = try await store.stageBlob(
            [UInt8](repeating: 1, count: count), of: Blobs.first.reference, at: Int64(offset), for: anna)
        }
      }
    },
    photos("what a principal has sent is nobody else's", rule: "semantics 7") { bench in
      var device = try await bench.device("ben")
      try await send(Blobs.first, bench, as: anna)
      try await expectNeeds([Blobs.first], [(Blobs.first, 0)], bench, as: ben)
      let content = try await bench.store.blobContent(of: Blobs.first.reference, at: nil, for: ben)
      try expect(content == nil, "another's blob must not be readable")
      try await expectError(.blobMissing, "an upload with another's blob") {
        try await device.upload(photo("p1", "ben", "a", Blobs.first))
      }
    },
    photos("a blob in a row is known to those who may read the row", rule: "semantics 7") { bench in
      var device = try await bench.device()
      try await send(Blobs.first, bench, as: anna)
      try expectAccepted(try await device.upload(photo("p1", "anna", "a", Blobs.first)), 1)
      try await expectNeeds([Blobs.first], [], bench, as: anna)
      try await expectNeeds([Blobs.first], [(Blobs.first, 0)], bench, as: ben)
      for place in [Blobs.place("p1"), nil] {
        let content = try await bench.store.blobContent(of: Blobs.first.reference, at: place, for: ben)
        try expect(content == nil, "a blob of a row out of scope must not be readable")
      }
      // Sent once, and in as many rows as wanted.
      try await device.download()
      try expectAccepted(
        try await device.upload(photo("p2", "anna", "b", Blobs.first), photo("p3", "anna", "c", Blobs.first)), 2)
      try await bench.expectRows(
        "photo",
        [
          ["p1", "anna", "a", Blobs.first.value], ["p2", "anna", "b", Blobs.first.value],
          ["p3", "anna", "c", Blobs.first.value],
        ])
    },
    photos("the old value of a change is taken from its row") { bench in
      var device = try await bench.device()
      try await send(Blobs.first, bench, as: anna)
      try expectAccepted(try await device.upload(photo("p1", "anna", "a", Blobs.first)), 1)
      try await device.download()
      try await expectNeeds([Blobs.first, Blobs.second], [(Blobs.second, 0)], bench, as: anna)
      try await send(Blobs.second, bench, as: anna)
      try expectAccepted(
        try await device.upload(.update("photo", ["p1"], [("image", Blobs.first.value, Blobs.second.value)])), 1)
      try await bench.expectRows("photo", [["p1", "anna", "a", Blobs.second.value]])
      let gone = try await bench.store.blobContent(of: Blobs.first.reference, at: Blobs.place("p1"), for: anna)
      try expect(gone == nil, "a blob that was overwritten is gone")
    },
    photos("rows that change their blobs among themselves in one upload need none of them again") { bench in
      var device = try await bench.device()
      for (id, blob) in [("p1", Blobs.first), ("p2", Blobs.second), ("p3", Blobs.third)] {
        try await send(blob, bench, as: anna)
        try expectAccepted(try await device.upload(photo(id, "anna", "a", blob)), 1)
      }
      try await device.download()
      try await expectNeeds([Blobs.first, Blobs.second, Blobs.third], [], bench, as: anna)
      try expectAccepted(
        try await device.upload(
          .update("photo", ["p1"], [("image", Blobs.first.value, Blobs.second.value)]),
          .update("photo", ["p2"], [("image", Blobs.second.value, Blobs.first.value)]), .delete("photo", ["p3"]),
          photo("p4", "anna", "a", Blobs.third)), 4)
      try await bench.expectRows(
        "photo",
        [
          ["p1", "anna", "a", Blobs.second.value], ["p2", "anna", "a", Blobs.first.value],
          ["p4", "anna", "a", Blobs.third.value],
        ])
      try expectEqual(try await bench.store.stats().stagedBytes, 0, "the bytes in staging")
    },
    photos("a change with a blob above the limit is refused without its bytes; others go on", rule: "semantics 7") {
      bench in
      var device = try await bench.device()
      let huge = BlobReference(hash: ContractBlobs.unknown, size: 1 << 40)
      try expectEqual(
        try await bench.store.missingBlobs(of: [huge], for: anna), [], "a blob above the limit is not asked for")
      let store = bench.store
      try await expectError(.tooLarge, "a part of it") {
        _ = try await store.stageBlob([1], of: huge, at: 0, for: anna)
      }
      try await send(Blobs.first, bench, as: anna)
      var writer = UploadChunkWriter()
      let shape = UploadShape(
        table: "photo", operation: .insert, columns: ["id", "owner", "title", "image"])
      for (id, reference) in [("p1", huge), ("p2", Blobs.first.reference)] {
        device.counter += 1
        writer.beginChange(shape: writer.place(of: shape), stamp: device.stamp, counter: device.counter, made: 0)
        for value in [Value.text(id), "anna", .null] { writer.value(value) }
        writer.value { $0.reference(reference) }
        writer.endChange()
      }
      let chunk = UploadChunk(bytes: writer.finish(), firstCounter: 1, lastCounter: 2, changeCount: 2, isLast: true)
      let results = try await device.process([chunk], as: SequenceID(from: SystemRandom()))
      try expectRefused(results, [1: .tooLarge], accepted: 1)
      try await bench.expectRows("photo", [["p2", "anna", .null, Blobs.first.value]])
    },
    on(
      ContractSchemas.notes(), "an upload that is given up is not processed any more, and another takes its place",
      rule: "ServerStore.swift, unstage"
    ) { bench in
      var device = try await bench.device()
      let store = bench.store
      let (given, other) = (SequenceID(from: SystemRandom()), SequenceID(from: SystemRandom()))
      let chunk = device.chunk([.insert("note", ["id": "n1", "title": "a"])])
      try await store.stage(chunk, index: 0, remote: device.remote, sequence: given)
      try await store.unstage(device.remote, sequence: other)
      try expect(try await store.staged(device.remote, sequence: given).isWhole, "another upload stays")
      try await store.unstage(device.remote, sequence: given)
      try expectEqual(try await store.staged(device.remote, sequence: given), StagedUpload(), "what is staged")
      let upload = ProcessRequest(remote: device.remote, sequence: given, principal: device.principal)
      try await expectError(.chunkMissing, "processing it") { _ = try await store.process(upload) }
      try await store.stage(chunk, index: 0, remote: device.remote, sequence: other)
      try expectAccepted(try await device.process(nil, as: other), 1)
      try await store.unstage(device.remote, sequence: other)
      try expect(try await store.results(device.remote, sequence: other) != nil, "what was processed stays")
      try await bench.expectRows("note", [["n1", "a", .null]])
    },
    photos("a row that a recovery asks for refers to its blobs", rule: "semantics 9") { bench in
      guard let store = bench.store as? any RecoveringServerStore else { return }
      try await bench.write(.insert("photo", ["id": "p1", "owner": "anna", "image": Blobs.first.value]))
      let payload = try await store.rows(matching: RowQuery(table: "photo", keys: [["p1"]]), for: ReadScope(anna))
      let placed = try placedBlobs(inDownload: payload) { _ in ["id"] }
      try expectEqual(placed.map(\.reference), [Blobs.first.reference], "the references")
    },
  ]
}
