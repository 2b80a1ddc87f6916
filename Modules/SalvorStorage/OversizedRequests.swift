import SalvorModel
import SalvorWire

/// Requests of an upload that lack a blob and can never be processed: the server holds so many of their blobs in no row that
/// these are more than `blobStagingBytesMax`.
public struct OversizedRequests: Sendable {
  /// One for each of them, as `too-large`, in the order of their counters.
  public private(set) var refusals: [Refusal] = []
  /// The blobs that they alone refer to: nobody sends them.
  public private(set) var blobs: Set<BlobHash> = []

  /// Where the server has a blob: in a row that the principal may read, in the principal's staging, or not at all.
  public enum Holding: Sendable {
    case row, staged, nothing
  }

  /// Looks through an upload. Throws what `eachChunk` and `holding` throw, and where a chunk cannot be read.
  ///
  /// - Parameters:
  ///   - eachChunk: calls what it is given with every chunk of the upload, in order; called up to twice.
  ///   - holding: where the server has a blob.
  public init(
    _ limits: Limits, eachChunk: (([UInt8]) throws -> Void) throws -> Void,
    holding: (BlobReference) throws -> Holding
  ) throws {
    var large: [RequestID: Set<BlobReference>] = [:]
    var current: (id: RequestID, blobs: Set<BlobReference>, bytes: Int64)?
    func finish() {
      if let current, current.bytes > limits.blobStagingBytesMax { large[current.id] = current.blobs }
    }
    try eachChunk { chunk in
      try eachReferredBlob(inUpload: chunk) { reference, request in
        if current?.id != request {
          finish()
          current = (request, [], 0)
        }
        guard reference.size <= limits.blobBytesMax, current?.blobs.insert(reference).inserted == true else { return }
        current?.bytes += reference.size
      }
    }
    finish()
    for (id, references) in large.sorted(by: { $0.key.counter < $1.key.counter }) {
      let unheld = try references.map { ($0, try holding($0)) }.filter { $0.1 != .row }
      let bytes = unheld.reduce(0) { $0 + $1.0.size }
      guard bytes > limits.blobStagingBytesMax, unheld.contains(where: { $0.1 == .nothing }) else {
        large[id] = nil
        continue
      }
      refusals.append(
        Refusal(
          counter: id.counter, stamp: id.stamp, reason: .tooLarge,
          message:
            "Blobs of the request that the server lacks have \(bytes) bytes together, more than \(limits.blobStagingBytesMax) (blobStagingBytesMax). Make them smaller, or split the request."
        ))
    }
    if large.isEmpty { return }
    blobs = Set(large.values.flatMap { $0.map(\.hash) })
    try eachChunk { chunk in
      try eachReferredBlob(inUpload: chunk) { reference, request in
        if large[request] == nil { blobs.remove(reference.hash) }
      }
    }
  }
}
