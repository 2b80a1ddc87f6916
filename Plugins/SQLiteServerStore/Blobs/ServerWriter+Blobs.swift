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
        try Staging(connection: open.connection).blobs(
          ofPrincipal: principal, wanted: atWork.wanted(by: principal, now: now)
        ) { atWork.isUnderWay($0, now: now) }
      }
    }
  }

  func note(_ hints: [BlobHint], leftOut: [RowPlace] = []) throws {
    try transaction(durable: false) { open in
      for hint in hints { try BlobHints(connection: open.connection).note(hint) }
      try LargeRows(connection: open.connection).note(leftOut, open.catalog)
    }
  }

  /// Processes an upload, whatever the server has of its blobs.
  func processWithBlobs(_ upload: ProcessRequest) throws -> UploadResults {
    let intake = try offerIntake(opened())
    func desk(_ open: Open) -> UploadRun.Desk { UploadRun.Desk(open.connection, open.catalog, open.log, open.book) }
    let results = try UploadRun(
      options.limits, now: options.clock.now(), intake: intake,
      check: { [interruption] in try interruption.check() }
    )
    .process(upload) { body in
      try transaction(durable: true) { try body(desk($0)) }
    } reading: { body in
      let open = try opened()
      return try open.connection.transaction(.deferred) { try body(desk(open)) }
    }
    healing.note(results, intake)
    return results
  }
}
