import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

extension SQLiteServerStore {
  public func missingBlobs(
    of references: [BlobReference], for principal: Principal
  ) async throws -> [BlobNeed] {
    let limits = options.limits
    atWork.asked(references, principal, now: options.clock.now())
    return try await ask(ReadScope(principal)) { try BlobLookup(queries: $0).needs(references, limits) }
  }

  /// Returns how many bytes of the blob are here. Throws where the whole blob has another hash than the reference says.
  public func stageBlob(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
  ) async throws -> Int64 {
    switch try await writer.stageBlob(part, of: reference, at: offset, for: principal) {
    case .staged(let received): return received
    case .mismatch: throw SalvorError.blobMismatch(reference)
    }
  }

  public func blobContent(
    of reference: BlobReference, at place: BlobPlace?, for principal: Principal
  ) async throws -> [UInt8]? {
    try await ask(ReadScope(principal)) { queries in
      var content: [UInt8]?
      _ = try BlobLookup(queries: queries).withContent(of: reference, at: place) { content = Array($0) }
      return content
    }
  }
}
