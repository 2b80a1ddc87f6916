import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// A file is the lines of a download: taken over, it is staged before the pages.
extension MemoryClientStore: SnapshotTakingClientStore {
  /// False after `snapshot-unusable`, until the store is opened again.
  public var takesSnapshots: Bool { !refusesSnapshots }

  /// Memory is never said to be full.
  public func snapshotsReceived(_ offers: [SnapshotOffer]) -> [String: Int64] {
    let parts = database.besides.parts.filter { part in offers.contains { $0.id == part.key } }
    database.besides.parts = parts
    return Dictionary(offers.map { ($0.id, Int64(parts[$0.id]?.count ?? 0)) }) { first, _ in first }
  }

  /// Errors: `snapshot-unusable` where the piece would end after the offer's length; what has come is gone then.
  public func keepSnapshot(_ piece: [UInt8], of offer: SnapshotOffer, at offset: Int64) throws {
    let here = database.besides.parts[offer.id] ?? []
    guard offset >= 0, offset <= here.count, offset + Int64(piece.count) <= offer.bytes else {
      database.besides.parts[offer.id] = nil
      throw MemorySnapshotFile.unusable("it is longer than the server has said, or has a gap")
    }
    database.besides.parts[offer.id] = here.prefix(Int(offset)) + piece
  }

  public func openSnapshot(
    _ offer: SnapshotOffer, decoding: SnapshotCoding, bytesMax: Int64, as config: SyncConfig?
  ) async throws {
    let coded = database.besides.parts[offer.id] ?? []
    let schema = Schema(tables: (try config ?? read().config).entries.map(\.table))
    do {
      guard Int64(coded.count) == offer.bytes, offer.size <= bytesMax else {
        throw MemorySnapshotFile.unusable("it has not come whole, or is larger than \(bytesMax) bytes")
      }
      guard BlobHash(of: coded).text == offer.id else {
        throw MemorySnapshotFile.unusable("its SHA-256 is another one")
      }
      let file = try MemorySnapshotFile(
        try await Self.decode(coded, decoding, atMost: offer.size), offer,
        schema.tables.filter { $0.group == offer.group })
      files.append((offer, file))
      refusesSnapshots = false
    } catch {
      database.besides.parts[offer.id] = nil
      refusesSnapshots = true
      var unusable = MemorySnapshotFile.unusable((error as? SalvorError)?.message ?? "it cannot be read")
      if BlobHash(of: coded).text == offer.id { unusable.context[SnapshotOffer.itselfUnusable] = offer.id }
      throw unusable
    }
  }

  private static func decode(_ coded: [UInt8], _ decoding: SnapshotCoding, atMost size: Int64) async throws -> [UInt8] {
    let once = Mutex<[UInt8]?>(coded.isEmpty ? nil : coded)
    let pieces = try decoding.code({ once.withLock { $0.take() } }, nil)
    var bytes: [UInt8] = []
    while let piece = try await pieces() {
      bytes += piece
      guard Int64(bytes.count) <= size else {
        throw MemorySnapshotFile.unusable("it becomes larger than the server has said")
      }
    }
    return bytes
  }

  /// Errors: always `snapshot-unusable`. This store reads no files.
  public func openSeed(_ path: String) throws -> SnapshotOffer {
    throw MemorySnapshotFile.unusable("the store in memory reads no files")
  }

  public func closeSnapshots(removing: Bool) {
    for (offer, _) in files { database.besides.parts[offer.id] = nil }
    files = []
    if removing { database.besides.parts = [:] }
  }

  /// What is taken over before the pages: the files of groups that come for the first time, and whose tables no page says to come
  /// whole.
  func filePayloads(_ end: DownloadEnd, _ state: ClientContent) throws -> [[UInt8]] {
    guard !files.isEmpty else { return [] }
    let full = try state.fullTables(in: state.staged.map(\.bytes))
    return try files.filter { file in
      end.groups.contains { $0.name == file.offer.group && $0.scopeDigest == file.offer.scope }
        && state.groups[file.offer.group]?.cursor == nil && !file.offer.tables.contains { full.contains($0.table) }
    }.map { file in
      var state = state
      return try state.taken(of: file.file.lines)
    }
  }

  /// The same for a recovery that makes the tables anew.
  func filePayloads(_ order: RecoveryOrder, _ payloads: [[UInt8]], _ state: ClientContent) throws -> [[UInt8]] {
    guard !files.isEmpty, order.rebuild != .nothing else { return [] }
    let full = try state.fullTables(in: payloads)
    return try files.filter { file in
      order.groups.contains { $0.name == file.offer.group && $0.scopeDigest == file.offer.scope }
        && !file.offer.tables.contains { full.contains($0.table) }
    }.map { file in
      var state = state
      return try state.taken(of: file.file.lines)
    }
  }
}

extension ClientContent {
  /// The tables that these payloads say to come whole.
  fileprivate func fullTables(in payloads: [[UInt8]]) throws -> Set<String> {
    var full: Set<String> = []
    for payload in payloads {
      try payload.withUnsafeBufferPointer { buffer in
        var reader = DownloadChunkReader(buffer, blobs: BlobCollector())
        while let event = try reader.next() { if case .full(let names) = event { full.formUnion(names) } }
      }
    }
    return full
  }
}
