import SalvorModel
import SalvorStorage
import SalvorWire

/// Gives an upload that is processed the bytes of its blobs.
final class UploadedBlobs: BlobResolver {
  private let principal: Principal
  private let state: ServerState
  private let limits: Limits
  private(set) var used: [BlobReference] = []
  /// Of requests that are refused whatever their blobs hold.
  private var waived: Set<BlobHash> = []

  init(principal: Principal, state: ServerState, limits: Limits) {
    self.principal = principal
    self.state = state
    self.limits = limits
  }

  func withContent(
    of reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws(SalvorError) {
    if reference.size > limits.blobBytesMax { return body(UnsafeRawBufferPointer(start: nil, count: 0)) }
    guard let content = state.blob(reference, for: principal) else {
      if waived.contains(reference.hash) { return body(UnsafeRawBufferPointer(start: nil, count: 0)) }
      throw SalvorError.blobMissing(reference)
    }
    used.append(reference)
    content.withUnsafeBytes { body($0) }
  }

  /// Requests with a blob above the limit, and those whose blobs can never be there together.
  func tooLarge(in chunks: [[UInt8]]) throws -> [Refusal] {
    var refusals: [Refusal] = []
    for chunk in chunks {
      try eachReferredBlob(inUpload: chunk) { reference, request in
        guard reference.size > limits.blobBytesMax else { return }
        refusals.append(
          Refusal(
            counter: request.counter, stamp: request.stamp, reason: .tooLarge,
            message: "A blob has \(reference.size) bytes, more than \(limits.blobBytesMax). Make it smaller."))
      }
    }
    let oversized = try OversizedRequests(limits) { body in
      for chunk in chunks { try body(chunk) }
    } holding: { reference in
      state.holding(reference, for: principal)
    }
    waived = oversized.blobs
    return refusals + oversized.refusals
  }
}

extension ServerState {
  func holding(_ reference: BlobReference, for principal: Principal) -> OversizedRequests.Holding {
    if staged(reference, by: principal) != nil { return .staged }
    return blob(reference, for: principal) == nil ? .nothing : .row
  }

  private func staged(_ reference: BlobReference, by principal: Principal) -> [UInt8]? {
    guard let staged = blobs[principal.name]?[reference.hash], staged.isWhole, staged.size == reference.size else {
      return nil
    }
    return staged.bytes
  }

  /// From what the principal has sent, or from a row that it may read.
  func blob(_ reference: BlobReference, for principal: Principal) -> [UInt8]? {
    if let staged = staged(reference, by: principal) { return staged }
    let scope = ScopeCheck(schema: schema, scope: ReadScope(principal))
    return tables.blob(reference, in: schema.synchronized) { scope.finding($1, of: $0, in: tables) == .inside }
  }
}
