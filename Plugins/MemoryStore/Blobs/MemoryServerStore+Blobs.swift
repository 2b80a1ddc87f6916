import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

extension MemoryServerStore {
  public func missingBlobs(of references: [BlobReference], for principal: Principal) throws -> [BlobNeed] {
    let state = try read()
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

  public func stageBlob(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
  ) throws -> Int64 {
    var state = try read()
    let now = clock.now()
    guard reference.size <= limits.blobBytesMax else {
      throw SalvorError(.tooLarge, "The blob is larger than \(limits.blobBytesMax) bytes (blobBytesMax).")
    }
    guard offset >= 0, !part.isEmpty, offset + Int64(part.count) <= reference.size else {
      throw SalvorError(.malformed, "A part of a blob has at least one byte, and lies within the blob.")
    }
    var own = (state.blobs[principal.name] ?? [:]).filter { $0.value.time >= now - blobStagingMilliseconds }
    var staged =
      own[reference.hash].flatMap { $0.size == reference.size ? $0 : nil } ?? StagedBlob(size: reference.size)
    if offset + Int64(part.count) <= Int64(staged.bytes.count) { return Int64(staged.bytes.count) }
    let isRight = try staged.add(part, of: reference, at: offset)
    guard own.values.reduce(part.count, { $0 + $1.bytes.count }) <= limits.blobStagingBytesMax else {
      throw SalvorError(
        .tooLarge, "Blobs that wait for their upload have more than \(limits.blobStagingBytesMax) bytes in all.")
    }
    staged.time = now
    own[reference.hash] = isRight ? staged : nil
    state.blobs[principal.name] = own
    write(state)
    guard isRight else { throw SalvorError.blobMismatch(reference) }
    return Int64(staged.bytes.count)
  }

  public func blobContent(
    of reference: BlobReference, at place: BlobPlace?, for principal: Principal
  ) throws -> [UInt8]? {
    // Every row is looked at: the place is no more than where to look first.
    try read().blob(reference, for: principal)
  }
}
