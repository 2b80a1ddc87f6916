import SalvorModel
import SalvorStorage
import SalvorWire

/// The faults of blobs.
extension BrokenServerStore {
  /// `forgetsBlobParts`: says of each blob that no byte of it is staged.
  public func missingBlobs(of references: [BlobReference], for principal: Principal) async throws -> [BlobNeed] {
    try await base.missingBlobs(of: references, for: principal).map { need in
      BlobNeed(reference: need.reference, received: fault == .forgetsBlobParts ? 0 : need.received)
    }
  }

  /// No fault changes it.
  public func stageBlob(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
  ) async throws -> Int64 {
    try await base.stageBlob(part, of: reference, at: offset, for: principal)
  }

  /// `leaksBlobs`: any blob of the table and of this size, also from a row that the principal may not read.
  public func blobContent(
    of reference: BlobReference, at place: BlobPlace?, for principal: Principal
  ) async throws -> [UInt8]? {
    if let content = try await base.blobContent(of: reference, at: place, for: principal) { return content }
    guard fault == .leaksBlobs, let place else { return nil }
    for value in try await base.rows(of: place.table).joined() {
      if case .blob(let content) = value, Int64(content.count) == reference.size { return content }
    }
    return nil
  }
}
