import ContentHash
import SalvorModel
import SalvorStorage
import SalvorWire

/// Finds the bytes of blobs for one principal: what it has staged, and what stands in rows that it may read.
package struct BlobLookup {
  let queries: RecoveryQueries

  package init(queries: RecoveryQueries) {
    self.queries = queries
  }
  private var hints: BlobHints { BlobHints(connection: queries.connection) }
  private var staging: BlobStaging { BlobStaging(connection: queries.connection) }

  package enum Source {
    case staged, row
  }

  /// Calls `body` once with the content; nil: it is not here.
  package func withContent(
    of reference: BlobReference, at place: BlobPlace?, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws -> Source? {
    if let place, try read(reference, at: place, body) { return .row }
    if try staging.withContent(of: reference, for: queries.scope.principal, body) { return .staged }
    for hinted in try hints.places(reference.hash) where hinted != place {
      if try read(reference, at: hinted, body) { return .row }
    }
    return nil
  }

  /// Stages what rows hold of the blobs of an upload's chunk.
  package func keep(_ chunk: [UInt8], _ limits: Limits) throws {
    var references: Set<BlobReference> = []
    try eachReferredBlob(inUpload: chunk) { reference, _ in references.insert(reference) }
    for reference in references where reference.size <= limits.blobBytesMax {
      if try staging.received(reference, for: queries.scope.principal) == reference.size { continue }
      var content: [UInt8]?
      for place in try hints.places(reference.hash) where content == nil {
        _ = try read(reference, at: place) { content = Array($0) }
      }
      if let content { try staging.keep(content, as: reference, for: queries.scope.principal) }
    }
  }

  package func holding(_ reference: BlobReference) throws -> OversizedRequests.Holding {
    switch try withContent(of: reference, at: nil, { _ in }) {
    case .row: .row
    case .staged: .staged
    case nil: .nothing
    }
  }

  package func needs(_ references: [BlobReference], _ limits: Limits) throws -> [BlobNeed] {
    var needs: [BlobNeed] = []
    var seen: Set<BlobHash> = []
    for reference in references where reference.size <= limits.blobBytesMax && seen.insert(reference.hash).inserted {
      let received = try staging.received(reference, for: queries.scope.principal)
      if received == reference.size { continue }
      var isHeld = false
      for place in try hints.places(reference.hash) where !isHeld {
        isHeld = try read(reference, at: place) { _ in }
      }
      if !isHeld { needs.append(BlobNeed(reference: reference, received: received)) }
    }
    return needs
  }

  /// False: the principal sees no such row, or it holds something else.
  private func read(
    _ reference: BlobReference, at place: BlobPlace, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws -> Bool {
    guard let table = queries.catalog.table(place.table), let column = table.place(place.column),
      place.key.count == table.keyCount
    else { return false }
    var isThere = false
    _ = try queries.read(table, key: place.key) { row in
      guard row.storageClass(column) == .blob else { return }
      row.withBlob(column) { bytes in
        guard bytes.count == reference.size, BlobHash(of: bytes) == reference.hash else { return }
        isThere = true
        body(bytes)
      }
    }
    return isThere
  }
}

/// Gives an upload that is processed the bytes of its blobs.
final class UploadBlobs: BlobResolver {
  private let lookup: BlobLookup
  private let limits: Limits
  private var hints: BlobHints { BlobHints(connection: lookup.queries.connection) }
  private var staging: BlobStaging { BlobStaging(connection: lookup.queries.connection) }
  /// Old values often are the row's, and look-ups cost a hash each.
  private(set) var usesStaging = false

  /// Of requests that are refused whatever their blobs hold.
  private let waived: Set<BlobHash>

  init(_ queries: RecoveryQueries, _ limits: Limits, waiving waived: Set<BlobHash>) {
    lookup = BlobLookup(queries: queries)
    self.limits = limits
    self.waived = waived
  }

  /// In the transaction of the upload. What is too large is refused with its row, whatever its bytes: it is empty here.
  func withContent(
    of reference: BlobReference, _ body: (UnsafeRawBufferPointer) -> Void
  ) throws(SalvorError) {
    if reference.size > limits.blobBytesMax { return body(UnsafeRawBufferPointer(start: nil, count: 0)) }
    do {
      switch try lookup.withContent(of: reference, at: nil, body) {
      case .staged:
        usesStaging = true
        try staging.markUsed(reference, for: lookup.queries.scope.principal)
      case .row: break
      case nil:
        guard waived.contains(reference.hash) else { throw SalvorError.blobMissing(reference) }
        body(UnsafeRawBufferPointer(start: nil, count: 0))
      }
    } catch let error as SalvorError {
      throw error
    } catch {
      throw SalvorError(.storage, "A blob could not be read.")
    }
  }

  /// A row that gets the blob, if its request is accepted.
  func note(_ reference: BlobReference, at place: BlobPlace) throws {
    try hints.note(BlobHint(hash: reference.hash, place: place))
  }

  /// The upload is processed.
  func finish() throws { if usesStaging { try staging.forgetUsed(of: lookup.queries.scope.principal) } }
}
