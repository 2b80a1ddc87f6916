import SalvorModel
import SalvorStorage

extension ServerEngine {
  /// Processes an upload, after the validators have been asked. One that was processed before is not asked about again.
  func processValidated(_ upload: ProcessRequest) async throws -> UploadResults {
    let store = configuration.store
    if configuration.validators.isEmpty { return try await process(upload) }
    if try await store.results(upload.remote, sequence: upload.sequence) != nil { return try await process(upload) }
    let named = JudgedUpload(
      remote: upload.remote, principal: upload.principal, sequence: upload.sequence, chunks: upload.chunks)
    return try await validations.judged(named) { [self] in
      do {
        return try await judge(named)
      } catch {
        validations.forget(named)
        throw error
      }
    } body: { refused in
      var upload = upload
      upload.refused = refused
      return try await process(upload)
    }
  }

  /// Runs what changes what is staged of the remote, and never what is being judged.
  func staging(for remote: RemoteID, _ body: @Sendable () async throws -> Void) async throws {
    if configuration.validators.isEmpty { return try await body() }
    try await validations.staging(remote, body: body)
  }

  private func process(_ upload: ProcessRequest) async throws -> UploadResults {
    try await write(for: upload.principal) { try await $0.process(upload) }
  }

  private func judge(_ upload: JudgedUpload) async throws -> [Refusal] {
    let store = configuration.store
    let validation = UploadValidation(configuration, upload, metrics: metrics)
    if let chunks = upload.chunks {
      return try await validation.run { $0 < chunks.count ? chunks[$0].bytes : nil }
    }
    // One that is not there whole is refused when it is to be processed.
    guard try await store.staged(upload.remote, sequence: upload.sequence).isWhole else { return [] }
    return try await validation.run {
      try await store.stagedChunk($0, remote: upload.remote, sequence: upload.sequence)
    }
  }
}
