import MemoryStore
import SQLiteServerStore
import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

/// `blobStagingBytesMax`: which staged blobs make room for others, and what can never be staged. The store and its
/// specification.
@Suite("Room for staged blobs") struct BlobRoomTests {
  enum Kind: String, CaseIterable, Sendable { case sqlite, memory }

  private final class SetClock: Clock {
    private let time = Mutex<Int64>(1_700_000_000_000)
    func now() -> Int64 { time.withLock { $0 } }
    func sleep(milliseconds: Int64) async throws { pass(milliseconds) }
    func pass(_ milliseconds: Int64) { time.withLock { $0 += milliseconds } }
  }

  private struct Blob {
    let bytes: [UInt8]
    let reference: BlobReference
    init(_ byte: UInt8, _ hash: String) throws {
      bytes = [UInt8](repeating: byte, count: 40)
      reference = BlobReference(hash: try #require(BlobHash(hash)), size: 40)
    }
  }

  private let a, b, c, d: Blob
  private let clock = SetClock()
  private let anna = Principal(name: "anna")
  private let remote = RemoteID(from: SystemRandom())
  private let sequence = SequenceID(from: SystemRandom())
  private let stamp = RequestStamp(from: SystemRandom())

  init() throws {
    a = try Blob(1, "2432dbb70926df292595fa1c2dee4933cf81130572a2e29a27256d3bdb8e07e5")
    b = try Blob(2, "44e5745422d80e5a5d4798e100c4924ac6322a8320d0deae0599c15926f46c15")
    c = try Blob(3, "250f9a28671e989a763510589e3d32803741e457384c0785c0b0c4dbff536b89")
    d = try Blob(4, "a2918d697814fff72dcd7049bc853cafd2c5bf6a239c8e27986401c674112c85")
  }

  /// Room for two blobs and a half.
  private func open(_ kind: Kind) async throws -> any ServerStore {
    var limits = Limits()
    limits.blobStagingBytesMax = 100
    limits.blobReferenceBytesMin = 16
    let store: any ServerStore =
      switch kind {
      case .sqlite: SQLiteServerStore(SQLiteServerStore.Options(path: ":memory:", limits: limits, clock: clock))
      case .memory: MemoryServerStore(clock: clock, limits: limits)
      }
    let schema = Schema(tables: [
      Table("photo", primaryKey: ["id"], columns: [Column("id", .text), Column("image", .blob, nullable: true)])
    ])
    _ = try await store.open(ServerSetup(schema: schema))
    try await store.register(remote, principal: anna.name)
    return store
  }

  private func send(_ blob: Blob, to store: any ServerStore) async throws {
    clock.pass(1)
    _ = try await store.stageBlob(blob.bytes, of: blob.reference, at: 0, for: anna)
  }

  /// Asks as a device does that is about to send these.
  private func ask(_ blobs: [Blob], _ store: any ServerStore) async throws {
    _ = try await store.missingBlobs(of: blobs.map(\.reference), for: anna)
  }

  private func staged(_ store: any ServerStore) async throws -> [Bool] {
    var found: [Bool] = []
    for blob in [a, b, c, d] {
      found.append(try await store.blobContent(of: blob.reference, at: nil, for: anna) == blob.bytes)
    }
    return found
  }

  /// Inserts, one request for each list.
  private func chunk(_ requests: [[Blob]]) -> UploadChunk {
    var writer = UploadChunkWriter()
    let shape = UploadShape(table: "photo", operation: .insert, columns: ["id", "image"])
    var counter: Int64 = 0
    for blobs in requests {
      writer.request(first: counter + 1, last: counter + Int64(blobs.count), tag: nil)
      for blob in blobs {
        counter += 1
        writer.beginChange(shape: writer.place(of: shape), stamp: stamp, counter: counter, made: 0)
        writer.value(.text("p\(counter)"))
        writer.value { $0.reference(blob.reference) }
        writer.endChange()
      }
    }
    return UploadChunk(
      bytes: writer.finish(), firstCounter: 1, lastCounter: counter, changeCount: Int(counter), isLast: true)
  }

  private func expectNoRoom(_ blob: Blob, _ store: any ServerStore) async {
    let error = await #expect(throws: SalvorError.self) { try await send(blob, to: store) }
    #expect(error?.code == .tooLarge)
    #expect(error?.blobRoom == 100)
  }

  @Test("what nobody works with makes room, the least recently staged first", arguments: Kind.allCases)
  func makesRoom(_ kind: Kind) async throws {
    let store = try await open(kind)
    try await send(a, to: store)
    try await send(b, to: store)
    try await ask([c], store)
    try await send(c, to: store)
    #expect(try await staged(store) == [false, true, true, false])
    await store.close()
  }

  @Test("what was asked about last makes no room, and is given up in time", arguments: Kind.allCases)
  func wanted(_ kind: Kind) async throws {
    let store = try await open(kind)
    try await ask([a, b, c], store)
    try await send(a, to: store)
    try await send(b, to: store)
    await expectNoRoom(c, store)
    #expect(try await staged(store) == [true, true, false, false])
    clock.pass(20 * Limits().sessionIdleMilliseconds)
    try await send(c, to: store)
    #expect(try await staged(store) == [false, true, true, false])
    await store.close()
  }

  @Test("what an upload under way refers to makes no room, until it is given up", arguments: Kind.allCases)
  func underWay(_ kind: Kind) async throws {
    let store = try await open(kind)
    try await ask([a, b], store)
    try await send(a, to: store)
    try await send(b, to: store)
    try await store.stage(chunk([[a], [b]]), index: 0, remote: remote, sequence: sequence)
    try await ask([c], store)
    await expectNoRoom(c, store)
    try await store.unstage(remote, sequence: sequence)
    try await send(c, to: store)
    #expect(try await staged(store) == [false, true, true, false])
    await store.close()
  }

  @Test("an upload that goes on after a long while is under way again", arguments: Kind.allCases)
  func goesOn(_ kind: Kind) async throws {
    let store = try await open(kind)
    try await ask([a, b], store)
    try await send(a, to: store)
    try await send(b, to: store)
    try await store.stage(chunk([[a], [b], [c]]), index: 0, remote: remote, sequence: sequence)
    clock.pass(20 * Limits().sessionIdleMilliseconds)
    await #expect(throws: SalvorError.self) {
      _ = try await store.process(ProcessRequest(remote: remote, sequence: sequence, principal: anna))
    }
    try await ask([d], store)
    await expectNoRoom(d, store)
    await store.close()
  }

  @Test(
    "a request whose blobs can never be staged together is refused; the others are processed", arguments: Kind.allCases)
  func oversized(_ kind: Kind) async throws {
    let store = try await open(kind)
    try await send(d, to: store)
    let results = try await store.process(
      ProcessRequest(remote: remote, sequence: sequence, principal: anna, chunks: [chunk([[a, b, c], [d]])]))
    #expect(results.acceptedRequests == 1)
    #expect(results.refused.map(\.reason) == [.tooLarge])
    #expect(results.refused.first?.message.contains("120 bytes together") == true)
    #expect(try await store.rows(of: "photo") == [["p4", .blob(d.bytes)]])
    #expect(try await store.stats().stagedBytes == 0)
    await store.close()
  }

  @Test("a blob that another request refers to, too, must be there all the same", arguments: Kind.allCases)
  func shared(_ kind: Kind) async throws {
    let store = try await open(kind)
    let upload = ProcessRequest(
      remote: remote, sequence: sequence, principal: anna, chunks: [chunk([[a, b, c], [a]])])
    let error = await #expect(throws: SalvorError.self) { _ = try await store.process(upload) }
    #expect(error?.code == .blobMissing)
    try await send(a, to: store)
    let results = try await store.process(upload)
    #expect(results.refused.map(\.reason) == [.tooLarge])
    #expect(try await store.rows(of: "photo") == [["p4", .blob(a.bytes)]])
    await store.close()
  }

  @Test("what rows hold counts for nothing: a request that lacks little is asked for it", arguments: Kind.allCases)
  func held(_ kind: Kind) async throws {
    let store = try await open(kind)
    for blob in [a, b] { try await send(blob, to: store) }
    _ = try await store.process(
      ProcessRequest(remote: remote, sequence: sequence, principal: anna, chunks: [chunk([[a], [b]])]))
    var upload = ProcessRequest(
      remote: remote, sequence: SequenceID(from: SystemRandom()), principal: anna, chunks: [chunk([[c]])])
    var writer = UploadChunkWriter()
    let shape = UploadShape(table: "photo", operation: .insert, columns: ["id", "image"])
    writer.request(first: 11, last: 13, tag: nil)
    for (place, blob) in [a, b, c].enumerated() {
      writer.beginChange(shape: writer.place(of: shape), stamp: stamp, counter: Int64(11 + place), made: 0)
      writer.value(.text("q\(place)"))
      writer.value { $0.reference(blob.reference) }
      writer.endChange()
    }
    upload.chunks = [
      UploadChunk(bytes: writer.finish(), firstCounter: 11, lastCounter: 13, changeCount: 3, isLast: true)
    ]
    let once = upload
    let error = await #expect(throws: SalvorError.self) { _ = try await store.process(once) }
    #expect(error?.code == .blobMissing)
    try await send(c, to: store)
    #expect(try await store.process(upload).acceptedRequests == 1)
    #expect(try await store.rows(of: "photo").count == 5)
    await store.close()
  }
}
