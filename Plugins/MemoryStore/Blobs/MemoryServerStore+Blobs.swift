import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

extension MemoryServerStore {
  /// Each blob once. A blob over `blobBytesMax` is left out: its request is refused when the upload is processed.
  public func missingBlobs(of references: [BlobReference], for principal: Principal) throws -> [BlobNeed] {
    let state = try read()
    atWork.asked(references, principal, now: clock.now())
    var seen: Set<BlobHash> = []
    return references.compactMap { reference in
      guard reference.size <= limits.blobBytesMax, seen.insert(reference.hash).inserted,
        state.blob(reference, for: principal) == nil
      else { return nil }
      let staged = state.blobs[principal.name]?[reference.hash]
      return BlobNeed(
        reference: reference,
        received: staged?.size == reference.size ? Int64(staged?.bytes.count ?? 0) : 0)
    }
  }

  /// Returns how many bytes of the blob are here. Errors: `too-large` over `blobBytesMax`, `malformed` where the part
  /// is empty or outside the blob. Throws also where the principal's staging has no room (`blobStagingBytesMax`), or
  /// where the whole blob has another hash than the reference says; what has come of the blob is gone then.
  public func stageBlob(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
  ) throws -> Int64 {
    var state = try read()
    let now = clock.now()
    guard reference.size <= limits.blobBytesMax else {
      throw SalvorError(.tooLarge, "The blob is larger than \(limits.blobBytesMax) bytes (blobBytesMax).")
    }
    guard offset >= 0, !part.isEmpty, offset <= reference.size - Int64(part.count) else {
      throw SalvorError(.malformed, "A part of a blob has at least one byte, and lies within the blob.")
    }
    var own = (state.blobs[principal.name] ?? [:]).filter { $0.value.time >= now - blobStagingMilliseconds }
    var staged =
      own[reference.hash].flatMap { $0.size == reference.size ? $0 : nil } ?? StagedBlob(size: reference.size)
    if offset + Int64(part.count) <= Int64(staged.bytes.count) { return Int64(staged.bytes.count) }
    let need = reference.size - Int64(staged.bytes.count)
    let isRight = try staged.add(part, of: reference, at: offset)
    atWork.came(principal, now: now)
    try makeRoom(for: need, &own, besides: reference.hash, principal, state)
    staged.time = now
    own[reference.hash] = isRight ? staged : nil
    state.blobs[principal.name] = own
    write(state)
    guard isRight else { throw SalvorError.blobMismatch(reference) }
    return Int64(staged.bytes.count)
  }

  /// Empties what nobody works with, the least recently staged first.
  private func makeRoom(
    for need: Int64, _ own: inout [BlobHash: StagedBlob], besides hash: BlobHash, _ principal: Principal,
    _ state: ServerState
  ) throws {
    func excess() -> Int64 {
      own.values.reduce(need) { $0 + Int64($1.bytes.count) } - Int64(limits.blobStagingBytesMax)
    }
    guard excess() > 0 else { return }
    let now = clock.now()
    var used = atWork.wanted(by: principal, now: now).union([hash])
    for (id, remote) in state.remotes where remote.record.principal.isSameName(as: principal.name) {
      guard atWork.isUnderWay(id, now: now) else { continue }
      for chunk in remote.staged.values {
        try eachReferredBlob(inUpload: chunk.bytes) { blob, _ in used.insert(blob.hash) }
      }
    }
    for (other, _) in own.sorted(by: { $0.value.time < $1.value.time }) where excess() > 0 && !used.contains(other) {
      own[other] = nil
    }
    guard excess() <= 0 else { throw SalvorError.noRoomForBlob(limits) }
  }

  /// From what the principal has sent, or from a row that the principal may read, wherever `place` points. Nil: neither
  /// holds the blob.
  public func blobContent(
    of reference: BlobReference, at place: BlobPlace?, for principal: Principal
  ) throws -> [UInt8]? {
    // Every row is looked at: the place is no more than where to look first.
    try read().blob(reference, for: principal)
  }
}
