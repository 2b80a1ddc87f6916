import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

extension MemoryClientStore {
  /// At most `count` bytes from `offset`; empty at the blob's end. Errors: `usage` where the part is outside the blob
  /// or `count` is not positive, `not-found` where the upload under way refers to no such blob.
  public func outgoingBlob(_ blob: OutgoingBlob, from offset: Int64, count: Int) throws -> [UInt8] {
    let changes = try read().outgoing.flatMap(\.changes).filter { $0.counter == blob.counter }
    for column in changes.flatMap(\.columns) {
      guard let bytes = isBlob(column.new, blob.reference) ?? isBlob(column.old, blob.reference) else { continue }
      guard offset >= 0, offset <= bytes.count, count > 0 else {
        throw SalvorError(.usage, "A part of a blob lies within it and has at least one byte.")
      }
      return Array(bytes.dropFirst(Int(offset)).prefix(count))
    }
    throw SalvorError(.notFound, "The upload under way refers to no such blob. Begin a session again.")
  }

  /// In the order of the hashes. Blobs that the device's rows hold already are not among them.
  public func missingBlobs(limit: Int) throws -> [MissingBlob] {
    var state = try read()
    var missing: [BlobHash: MissingBlob] = [:]
    let taken = try files.map { try state.taken(of: $0.file.lines, bytesMax: Int64(limits.blobBytesMax)) }
    for lines in taken + state.staged.map(\.bytes) {
      for (reference, place) in try placedBlobs(
        inDownload: lines, primaryKey: { state.schema.table($0)?.primaryKey })
      {
        if state.blobs[reference.hash]?.isWhole == true { continue }
        let tables = state.schema.synchronized
        if let held = state.view.blob(reference, in: tables, where: { _, _ in true })
          ?? state.bases.blob(reference, in: tables, where: { _, _ in true })
        {
          state.blobs[reference.hash] = StagedBlob(size: reference.size, bytes: held)
          continue
        }
        missing[reference.hash] = MissingBlob(
          reference: reference, place: place, received: Int64(state.blobs[reference.hash]?.bytes.count ?? 0))
      }
    }
    database.state = state
    return Array(missing.values.sorted { $0.reference.hash.text < $1.reference.hash.text }.prefix(limit))
  }

  /// Returns how many bytes of the blob are here. Throws where the whole blob has another hash than the reference says;
  /// what has come of the blob is gone then.
  @discardableResult
  public func stageBlob(_ part: [UInt8], of reference: BlobReference, at offset: Int64) throws -> Int64 {
    var state = try read()
    var staged = state.blobs[reference.hash] ?? StagedBlob(size: reference.size)
    let isRight = try staged.add(part, of: reference, at: offset)
    state.blobs[reference.hash] = isRight ? staged : nil
    database.state = state
    guard isRight else { throw SalvorError.blobMismatch(reference) }
    return Int64(staged.bytes.count)
  }
}
