import SalvorModel
import SalvorStorage
import SalvorWire

/// Names an upload by all that is judged. A staged one has no chunks here.
struct JudgedUpload: Hashable, Sendable {
  var remote: RemoteID
  var principal: Principal
  var sequence: SequenceID
  var chunks: [UploadChunk]?
}

/// Asks every validator about one upload, in batches. It holds the requests of one chunk, a batch for each validator, and
/// the refusals.
actor UploadValidation {
  private struct Pending {
    var requests: [UploadedRequest] = []
    var bytes = 0
    var batches = 0
  }

  private let validators: [ConfiguredValidator]
  private let remote: RemoteID
  private let principal: Principal
  private let sequence: SequenceID
  private let store: any ServerStore
  private let limits: Limits
  private let metrics: ServerMetrics
  private let log: Log
  private var reader: UploadRequestReader
  private var pending: [Pending]
  /// The first word stands where several validators refuse one request.
  private var refusals: [RequestID: Refusal] = [:]

  init(_ configuration: ServerConfiguration, _ upload: JudgedUpload, metrics: ServerMetrics) {
    validators = configuration.validators
    remote = upload.remote
    principal = upload.principal
    sequence = upload.sequence
    store = configuration.store
    limits = configuration.limits
    self.metrics = metrics
    log = configuration.log
    reader = UploadRequestReader(
      schema: configuration.schema, tables: validators.reduce(into: []) { $0.formUnion($1.tables) })
    pending = validators.map { _ in Pending() }
  }

  /// The refusals in the device's order.
  ///
  /// - Parameter chunk: the upload's chunk with this index; nil: there is no more.
  func run(chunk: @Sendable (Int) async throws -> [UInt8]?) async throws -> [Refusal] {
    var index = 0
    while let bytes = try await chunk(index) {
      let blobs = try await self.blobs(of: bytes)
      for request in try reader.read(bytes, blobs: blobs) { try await take(request) }
      index += 1
    }
    if let last = reader.finish() { try await take(last) }
    for place in validators.indices { try await ask(place) }
    return refusals.values.sorted { $0.counter < $1.counter }
  }

  /// What the requests of a chunk that validators are asked about refer to. A device cuts its chunks so that this stays
  /// small; one that does not is refused.
  private func blobs(of chunk: [UInt8]) async throws -> BlobContents {
    guard mentionsBlobs(chunk) else { return BlobContents() }
    var ahead = reader
    let collector = BlobCollector()
    _ = try ahead.read(chunk, blobs: collector)
    var blobs = BlobContents(sizeMax: Int64(limits.blobBytesMax))
    var bytes: Int64 = 0
    for reference in collector.references where blobs.contents[reference.hash] == nil {
      if reference.size > blobs.sizeMax { continue }
      bytes += reference.size
      guard bytes <= Int64(limits.blobBytesMax) + Self.chunkBlobBytesMax else {
        throw SalvorError(
          .tooLarge, "A chunk refers to more bytes of blobs than validators are asked about. Send smaller chunks.")
      }
      guard let content = try await store.blobContent(of: reference, at: nil, for: principal) else {
        throw SalvorError.blobMissing(reference)
      }
      blobs.contents[reference.hash] = content
    }
    return blobs
  }

  private static let chunkBlobBytesMax: Int64 = 64 << 20

  private func take(_ request: UploadedRequest) async throws {
    let tables = Set(request.changes.map(\.table))
    for place in validators.indices where !validators[place].tables.isDisjoint(with: tables) {
      pending[place].requests.append(request)
      pending[place].bytes += request.byteCount
      let isFull =
        pending[place].requests.count >= validators[place].batchRequestsMax
        || pending[place].bytes >= ConfiguredValidator.batchBytesTarget
      if isFull { try await ask(place) }
    }
  }

  private func ask(_ place: Int) async throws {
    guard !pending[place].requests.isEmpty else { return }
    let batch = ValidationBatch(
      remote: remote, principal: principal, sequence: sequence, number: pending[place].batches,
      requests: pending[place].requests)
    pending[place].requests = []
    pending[place].bytes = 0
    pending[place].batches += 1
    metrics.validations.add(1)
    do {
      let found = try await validators[place].validator.validate(batch)
      for refusal in try checked(found, of: batch) where refusals[refusal.id] == nil { refusals[refusal.id] = refusal }
    } catch {
      try Task.checkCancellation()
      try fail(place, asSalvorError(error))
    }
  }

  /// A validator that answers what it was not asked has not understood: none of its answer counts.
  private func checked(_ found: [ValidationRefusal], of batch: ValidationBatch) throws -> [Refusal] {
    var asked = Set(batch.requests.map(\.id))
    return try found.map { refusal in
      guard asked.remove(refusal.id) != nil else {
        throw SalvorError(.failed, "It refused a request that it was not asked about, or one request twice.")
      }
      guard refusal.status.map((400...599).contains) ?? true else {
        throw SalvorError(.failed, "It gave a status that is not from 400 to 599.")
      }
      let message = refusal.message.isEmpty ? "The application does not accept it." : refusal.message
      return Refusal(
        counter: refusal.id.counter, stamp: refusal.id.stamp, reason: .validator,
        message: String(message.prefix(Self.messageCharactersMax)), status: refusal.status)
    }
  }

  static let messageCharactersMax = 1000

  private func fail(_ place: Int, _ error: SalvorError) throws {
    let validator = validators[place]
    metrics.validationFailures.add(1)
    log("The validator \(validator.name) cannot judge (onFailure: \(validator.onFailure.rawValue)). \(error)")
    guard validator.onFailure == .retryLater else { return }
    throw SalvorError(
      .validatorUnavailable,
      "The server's validator \(validator.name) cannot be asked, so nothing was processed. The queue stays as it is: sync again later.",
      context: ["validator": validator.name], retryAfterMilliseconds: 1000)
  }
}

extension UploadedRequest {
  /// About what its values take.
  fileprivate var byteCount: Int {
    func size(_ value: Value?) -> Int {
      switch value {
      case .text(let bytes)?, .blob(let bytes)?: bytes.count
      case nil: 0
      default: 8
      }
    }
    return changes.reduce(0) { sum, change in
      sum + change.key.reduce(64) { $0 + size($1) }
        + change.columns.reduce(0) { $0 + $1.name.utf8.count + size($1.old) + size($1.new) }
    }
  }
}
