import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire
import ServerStoreSupport

/// Staged blobs, and uploads that refer to them.
extension ServerWriter {
  func stageBlob(
    _ part: [UInt8], of reference: BlobReference, at offset: Int64, for principal: Principal
  ) throws -> BlobStaging.Outcome {
    let (limits, now) = (options.limits, options.clock.now())
    atWork.came(principal, now: now)
    return try transaction(durable: false) { open in
      try BlobStaging(connection: open.connection).stage(
        part, of: reference, at: offset, for: principal, limits, now: now
      ) {
        var used = Set(atWork.wanted(by: principal, now: now).map(\.text))
        try Staging(connection: open.connection).forEachChunk(ofPrincipal: principal) { remote, chunk in
          guard atWork.isUnderWay(remote, now: now) else { return }
          try eachReferredBlob(inUpload: chunk) { blob, _ in used.insert(blob.hash.text) }
        }
        return used
      }
    }
  }

  func note(_ hints: [BlobHint]) throws {
    try transaction(durable: false) { open in
      for hint in hints { try BlobHints(connection: open.connection).note(hint) }
    }
  }

  /// Processes an upload, whatever the server has of its blobs.
  func processWithBlobs(_ upload: ProcessRequest) throws -> UploadResults {
    do {
      return try attempt(upload)
    } catch let error as SalvorError where error.code == .blobMissing {}
    do {
      // A row that held it may have been overwritten by an earlier change of this very upload.
      return try attempt(upload) { try keepBlobs(of: upload, $0) }
    } catch let error as SalvorError where error.code == .blobMissing {
      let oversized = try oversized(upload)
      if oversized.refusals.isEmpty { throw error }
      var upload = upload
      upload.refused += oversized.refusals
      return try attempt(upload, waiving: oversized.blobs) { try keepBlobs(of: upload, $0) }
    }
  }

  /// - Parameter waived: blobs that need not be here.
  private func attempt(
    _ upload: ProcessRequest, waiving waived: Set<BlobHash> = [], after prepare: (Open) throws -> Void = { _ in }
  ) throws -> UploadResults {
    let options = options
    let intake = try offerIntake(opened())
    let results = try transaction(durable: true) { open in
      _ = try open.log.sweep()
      _ = try open.book.registered(upload.remote)
      try prepare(open)
      let processor = try UploadProcessor(
        upload, open.connection, open.catalog, log: open.log, book: open.book, limits: options.limits,
        now: options.clock.now(), waiving: waived, intake: intake)
      if upload.chunks == nil { try Staging(connection: open.connection).requireWhole(upload.remote, upload.sequence) }
      try eachChunk(of: upload, open) { try processor.add($0) }
      return try processor.finish()
    }
    noteOffers(results, intake)
    return results
  }

  private func eachChunk(of upload: ProcessRequest, _ open: Open, _ body: ([UInt8]) throws -> Void) throws {
    guard let chunks = upload.chunks else {
      return try Staging(connection: open.connection).forEachChunk(upload.remote, upload.sequence) {
        try interruption.check()
        try body($0)
      }
    }
    for chunk in chunks { try body(chunk.bytes) }
  }

  private func blobLookup(_ principal: Principal, _ open: Open) -> BlobLookup {
    BlobLookup(
      queries: RecoveryQueries(
        connection: open.connection, catalog: open.catalog, scope: ReadScope(principal),
        blobReferenceBytesMin: options.limits.blobReferenceBytesMin))
  }

  /// What rows hold of the upload's blobs is staged, before a row is changed.
  private func keepBlobs(of upload: ProcessRequest, _ open: Open) throws {
    let lookup = blobLookup(upload.principal, open)
    try eachChunk(of: upload, open) { try lookup.keep($0, options.limits) }
  }

  private func oversized(_ upload: ProcessRequest) throws -> OversizedRequests {
    let open = try opened()
    return try open.connection.transaction(.deferred) {
      let lookup = blobLookup(upload.principal, open)
      return try OversizedRequests(options.limits) { body in
        try eachChunk(of: upload, open, body)
      } holding: {
        try lookup.holding($0)
      }
    }
  }
}
