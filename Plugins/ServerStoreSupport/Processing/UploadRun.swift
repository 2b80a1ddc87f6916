import SalvorModel
import SalvorStorage
import SalvorWire

/// Processes one upload, whatever the server has of its blobs: in one transaction, and where a blob turns out to be missing in
/// another one that looks for it closely.
package struct UploadRun {
  /// What a store brings, for one transaction.
  package struct Desk {
    let connection: any StoreConnection
    let catalog: Catalog
    let log: CommitLog
    let book: RemoteBook

    package init(_ connection: any StoreConnection, _ catalog: Catalog, _ log: CommitLog, _ book: RemoteBook) {
      self.connection = connection
      self.catalog = catalog
      self.log = log
      self.book = book
    }
  }

  private let limits: Limits
  private let now: Int64
  private let intake: OfferIntake
  /// Throws where the store is about to close.
  private let check: () throws -> Void

  /// - Parameter intake: what becomes of offers.
  package init(
    _ limits: Limits, now: Int64, intake: OfferIntake = OfferIntake(), check: @escaping () throws -> Void
  ) {
    self.limits = limits
    self.now = now
    self.intake = intake
    self.check = check
  }

  /// - Parameters:
  ///   - writing: runs its argument in a transaction that holds the place where commits get their numbers.
  ///   - reading: runs it in one that reads a snapshot.
  package func process(
    _ upload: ProcessRequest, writing: ((Desk) throws -> UploadResults) throws -> UploadResults,
    reading: ((Desk) throws -> OversizedRequests) throws -> OversizedRequests
  ) throws -> UploadResults {
    do {
      return try writing { try attempt(upload, $0, keepsBlobs: false) }
    } catch let error as SalvorError where error.code == .blobMissing {}
    do {
      // A row that held it may have been overwritten by an earlier change of this very upload.
      return try writing { try attempt(upload, $0, keepsBlobs: true) }
    } catch let error as SalvorError where error.code == .blobMissing {
      let oversized = try reading { try self.oversized(upload, $0) }
      if oversized.refusals.isEmpty { throw error }
      var upload = upload
      upload.refused += oversized.refusals
      return try writing { try attempt(upload, $0, waiving: oversized.blobs, keepsBlobs: true) }
    }
  }

  /// - Parameters:
  ///   - waived: blobs that need not be here.
  ///   - keepsBlobs: what rows hold of the upload's blobs is staged before a row is changed.
  private func attempt(
    _ upload: ProcessRequest, _ desk: Desk, waiving waived: Set<BlobHash> = [], keepsBlobs: Bool
  ) throws -> UploadResults {
    _ = try desk.log.sweep()
    try desk.book.requireInTurn(upload)
    if keepsBlobs {
      let lookup = blobLookup(upload.principal, desk)
      try eachChunk(of: upload, desk) { try lookup.keep($0, limits) }
    }
    let processor = try UploadProcessor(
      upload, desk.connection, desk.catalog, log: desk.log, book: desk.book, limits: limits, now: now, waiving: waived,
      intake: intake)
    if upload.chunks == nil { try Staging(connection: desk.connection).requireWhole(upload.remote, upload.sequence) }
    try eachChunk(of: upload, desk) { try processor.add($0) }
    return try processor.finish()
  }

  private func eachChunk(of upload: ProcessRequest, _ desk: Desk, _ body: ([UInt8]) throws -> Void) throws {
    guard let chunks = upload.chunks else {
      return try Staging(connection: desk.connection).forEachChunk(upload.remote, upload.sequence) {
        try check()
        try body($0)
      }
    }
    for chunk in chunks { try body(chunk.bytes) }
  }

  private func blobLookup(_ principal: Principal, _ desk: Desk) -> BlobLookup {
    BlobLookup(
      queries: RecoveryQueries(
        connection: desk.connection, catalog: desk.catalog, scope: ReadScope(principal),
        limits: limits))
  }

  private func oversized(_ upload: ProcessRequest, _ desk: Desk) throws -> OversizedRequests {
    let lookup = blobLookup(upload.principal, desk)
    return try OversizedRequests(limits) { body in
      try eachChunk(of: upload, desk, body)
    } holding: {
      try lookup.holding($0)
    }
  }
}
