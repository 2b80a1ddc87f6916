import SalvorModel
import SalvorStorage

/// A validator with what the contract must know of its rules.
public struct ValidatorSubject: Sendable {
  /// The validator under test. The suite closes it in the case about closing.
  public var validator: any RequestValidator
  /// Requests that it does not accept, each for itself; empty: not known.
  public var refused: [UploadedRequest]
  /// Requests that it accepts.
  public var accepted: [UploadedRequest]

  /// Without samples a validator is only asked about requests of which nothing is known.
  public init(_ validator: any RequestValidator, refused: [UploadedRequest] = [], accepted: [UploadedRequest] = []) {
    self.validator = validator
    self.refused = refused
    self.accepted = accepted
  }

  /// Requests of which nothing is known but that they must be answered: values of every kind, of tables that it need not
  /// know.
  var strange: [UploadedRequest] {
    let values: [Value] = [
      .null, .integer(.max), .integer(.min), .real(0.5), .real(.infinity), .text([0xFF, 0x00]), "\u{0}\"\\/\u{1F600}",
      .blob([]), .blob([0, 255]), .text(String(repeating: "long ", count: 5000)),
    ]
    let stamp = RequestStamp(unchecked: String(repeating: "5", count: 32))
    func request(_ counter: Int64, _ operation: SalvorModel.Operation, _ columns: [UploadedColumn]) -> UploadedRequest {
      UploadedRequest(
        stamp: stamp, tag: counter == 1 ? "a \"tag\"" : nil,
        changes: [
          UploadedChange(
            counter: counter, made: 0, table: "salvor contract \"ü\"", key: ["k", .integer(counter)],
            operation: operation, columns: columns)
        ])
    }
    let columns = values.enumerated().map { UploadedColumn("c\($0)", new: $1) }
    let changed = values.enumerated().map { UploadedColumn("c\($0)", old: $1, new: values[values.count - 1 - $0]) }
    return [request(1, .insert, columns), request(2, .update, changed), request(3, .delete, [])]
  }

  var all: [UploadedRequest] { refused + accepted + strange }
}

/// What every validator keeps (RequestValidator.swift).
public enum ValidatorContract {
  /// One rule, for a validator with samples of what it refuses and accepts.
  public typealias Case = ContractCase<ValidatorSubject>
  static let rule = "RequestValidator.swift, validate"

  /// One rule each. A case asks about the samples and about requests with values of every kind of unknown tables.
  public static let cases: [Case] = [
    Case("what it does not accept is refused, and nothing else", rule: rule) { subject in
      let found = try await subject.validator.validate(batch(subject.refused + subject.accepted + subject.strange))
      let strange = Set(subject.strange.map(\.id))
      try expectEqual(
        Set(found.map(\.id)).subtracting(strange), Set(subject.refused.map(\.id)), "the refused requests")
    },
    Case("it speaks of what it was asked, once each, with a message and a status of an error", rule: rule) { subject in
      let asked = subject.all
      let found = try await subject.validator.validate(batch(asked))
      let ids = Set(asked.map(\.id))
      for refusal in found {
        try expect(ids.contains(refusal.id), "it refuses a request that is not in the batch")
        try expect(!refusal.message.isEmpty, "a refusal has no message")
        try expect(refusal.status.map((400...599).contains) ?? true, "a refusal's status is not from 400 to 599")
      }
      try expectEqual(Set(found.map(\.id)).count, found.count, "the number of different requests refused")
    },
    Case("the same batch has the same answer", rule: rule) { subject in
      let batch = batch(subject.all)
      let first = try await subject.validator.validate(batch)
      for _ in 0..<3 {
        try expectEqual(
          ids(try await subject.validator.validate(batch)), ids(first), "the requests refused when asked again")
      }
    },
    Case("a request is judged by what is in it, whatever is beside it", rule: rule) { subject in
      let together = ids(try await subject.validator.validate(batch(subject.all)))
      var alone: Set<RequestID> = []
      for (number, request) in subject.all.enumerated() {
        alone.formUnion(ids(try await subject.validator.validate(batch([request], number: number))))
      }
      try expectEqual(alone, together, "the requests refused one by one")
      let reversed = ids(try await subject.validator.validate(batch(subject.all.reversed())))
      try expectEqual(reversed, together, "the requests refused in the other order")
    },
    Case("a full batch is answered", rule: "ConfiguredValidator.swift, batchRequestsDefault") { subject in
      let asked = many(subject, 500)
      let found = ids(try await subject.validator.validate(batch(asked)))
      try expect(found.isSubset(of: Set(asked.map(\.id))), "it refuses a request that is not in the batch")
      for (copy, original) in zip(asked, repeated(subject.all, 500)) {
        guard subject.refused.contains(original) || subject.accepted.contains(original) else { continue }
        try expectEqual(
          found.contains(copy.id), subject.refused.contains(original), "a request of a full batch is refused")
      }
    },
    Case("uploads at one time are told apart", rule: rule) { subject in
      let wanted = Set(subject.refused.map(\.changes))
      let known = subject.refused + subject.accepted + subject.strange
      try await withThrowingTaskGroup(of: Void.self) { group in
        for number in 0..<16 {
          group.addTask {
            // Each has requests of its own.
            let asked = restamped([known[number % known.count]], number)
            let found = ids(try await subject.validator.validate(batch(asked, remote: number)))
            try expect(found.isSubset(of: Set(asked.map(\.id))), "it refuses a request of another upload")
            guard number % known.count < subject.refused.count + subject.accepted.count else { return }
            try expectEqual(!found.isEmpty, wanted.contains(asked[0].changes), "a request among many is refused")
          }
        }
        try await group.waitForAll()
      }
    },
    Case("a cancelled task ends it", rule: rule) { subject in
      let batch = batch(subject.all)
      let task = Task { try await subject.validator.validate(batch) }
      task.cancel()
      try await patiently("a cancelled question") { _ = try? await task.value }
      _ = try await subject.validator.validate(batch)
    },
    Case("closing is safe, twice too", rule: "RequestValidator.swift, close") { subject in
      _ = try await subject.validator.validate(batch(subject.all))
      try await patiently("closing") {
        await subject.validator.close()
        await subject.validator.close()
      }
    },
  ]

  private static func ids(_ found: [ValidationRefusal]) -> Set<RequestID> { Set(found.map(\.id)) }

  private static func repeated(_ requests: [UploadedRequest], _ count: Int) -> [UploadedRequest] {
    (0..<count).map { requests[$0 % requests.count] }
  }

  private static func many(_ subject: ValidatorSubject, _ count: Int) -> [UploadedRequest] {
    repeated(subject.all, count).enumerated().flatMap { restamped([$1], $0) }
  }

  /// The same requests with IDs of their own.
  private static func restamped(_ requests: [UploadedRequest], _ number: Int) -> [UploadedRequest] {
    requests.map { request in
      var request = request
      request.stamp = RequestStamp(
        unchecked: hexadecimal([UInt8(number >> 8 & 0xFF), UInt8(number & 0xFF)] + [UInt8](repeating: 7, count: 14)))
      return request
    }
  }

  private static func batch(_ requests: [UploadedRequest], number: Int = 0, remote: Int = 0) -> ValidationBatch {
    let id = hexadecimal([UInt8](repeating: UInt8(remote), count: 16))
    return ValidationBatch(
      remote: RemoteID(unchecked: id), principal: Principal(name: "anna"), sequence: SequenceID(unchecked: id),
      number: number, requests: requests)
  }
}
