import SalvorModel
import SalvorStorage
import SalvorWire

/// The faults of blobs.
extension BrokenClientStore {
  /// `sendsTheNewestBlob`: bytes of a blob that stands in a row now, not of the blob that the upload refers to.
  public func outgoingBlob(_ blob: OutgoingBlob, from offset: Int64, count: Int) async throws -> [UInt8] {
    let content = try await base.outgoingBlob(blob, from: offset, count: count)
    guard fault == .sendsTheNewestBlob else { return content }
    for table in try await base.history().tables {
      for value in try await base.rows(of: table.name).joined() {
        if case .blob(let newest) = value { return Array(newest.dropFirst(Int(offset)).prefix(count)) }
      }
    }
    return content
  }

  /// `keepsTakenBackUploads`: does nothing.
  public func takeBackUpload(_ sequence: SequenceID) async throws {
    if fault != .keepsTakenBackUploads { try await base.takeBackUpload(sequence) }
  }

  /// `forgetsBlobParts`: says of each blob that no byte of it is here.
  public func missingBlobs(limit: Int) async throws -> [MissingBlob] {
    try await base.missingBlobs(limit: limit).map { blob in
      MissingBlob(
        reference: blob.reference, place: blob.place, received: fault == .forgetsBlobParts ? 0 : blob.received)
    }
  }

  /// No fault changes it.
  public func stageBlob(_ part: [UInt8], of reference: BlobReference, at offset: Int64) async throws -> Int64 {
    try await base.stageBlob(part, of: reference, at: offset)
  }
}
