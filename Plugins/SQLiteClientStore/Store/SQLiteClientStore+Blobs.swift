import ContentHash
import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// Blobs that travel outside the payload (docs/architecture/blobs.md).
extension SQLiteClientStore {
  // MARK: Upload

  /// The log and the rows say what each change wrote until it is settled, so a blob's bytes are read again from there.
  public func outgoingBlob(_ blob: OutgoingBlob, from offset: Int64, count: Int) throws -> [UInt8] {
    if outgoing?.reference != blob.reference {
      outgoing = nil
      outgoing = (blob.reference, try content(of: blob))
    }
    guard let content = outgoing?.content, offset >= 0, offset <= content.count, count > 0 else {
      throw SalvorError(.usage, "A part of a blob lies within it and has at least one byte.")
    }
    return Array(content[Int(offset)..<min(content.count, Int(offset) + count)])
  }

  private func content(of blob: OutgoingBlob) throws -> [UInt8] {
    let found = FoundContent()
    let wanted = blob.reference
    let sink = BlobSink(bytesMin: Int(min(wanted.size, Int64(limits.blobReferenceBytesMin)))) { bytes in
      let hash = BlobHash(of: bytes)
      if hash == wanted.hash { found.content.withLock { $0 = Array(bytes) } }
      return hash
    }
    _ = try encoded(after: blob.counter - 1, bytesTarget: 1, sink)
    guard let content = found.content.withLock({ $0 }) else {
      throw SalvorError(.notFound, "The upload under way refers to no such blob. Begin a session again.")
    }
    return content
  }

  // MARK: Download

  public func missingBlobs(limit: Int) throws -> [MissingBlob] {
    // A download that is applied ahead refers to none.
    if ahead != nil { return [] }
    let context = try current()
    if wantsBlobsOfFiles, !snapshots.isEmpty {
      try context.connection.transaction { try wantBlobsOfFiles(context) }
    }
    guard try context.connection.integer("SELECT 1 FROM salvor_blob_wanted LIMIT 1") != nil else { return [] }
    return try context.connection.transaction { try BlobStaging(context: context).missing(limit: limit) }
  }

  /// Returns how many bytes of the blob are here. Throws where the whole blob has another hash than the reference says.
  @discardableResult
  public func stageBlob(_ part: [UInt8], of reference: BlobReference, at offset: Int64) throws -> Int64 {
    let context = try opened()
    let outcome = try context.connection.transaction {
      try BlobStaging(context: context).stage(part, of: reference, at: offset)
    }
    switch outcome {
    case .staged(let received): return received
    case .mismatch: throw SalvorError.blobMismatch(reference)
    }
  }
}

private final class FoundContent: Sendable {
  let content = Mutex<[UInt8]?>(nil)
}
