import SalvorModel
import SalvorStorage

/// A validator with one deliberate fault, round one without. The suite must catch every one of them.
public final class BrokenValidator: RequestValidator {
  /// What is wrong with the validator: one thing at a time.
  public enum Fault: String, Sendable, CaseIterable {
    case acceptsEverything, refusesEverything, refusesWhatItWasNotAsked, refusesTwice, saysNothing, givesStatus200
    /// Looks at the first request of a batch only.
    case judgesTheFirst
    /// Another answer every second time.
    case changesItsMind
    /// What it said of the last upload.
    case mixesUploads
    case chokesOnBlobs
    case ignoresCancellation
    case neverCloses
  }

  private let base: any RequestValidator
  private let fault: Fault
  private let calls = Mutex(0)
  private let last = Mutex<[ValidationRefusal]>([])

  /// `base` must be a validator that keeps the contract and refuses something: most faults falsify its refusals.
  public init(_ base: any RequestValidator, _ fault: Fault) {
    self.base = base
    self.fault = fault
  }

  /// Falsifies the base's answer. `chokesOnBlobs` throws `malformed`; `ignoresCancellation` does not return.
  public func validate(_ batch: ValidationBatch) async throws -> [ValidationRefusal] {
    let call = calls.withLock { calls in
      calls += 1
      return calls
    }
    if fault == .ignoresCancellation, Task.isCancelled {
      while true { await Task.detached { try? await Task.sleep(for: .milliseconds(20)) }.value }
    }
    var found = try await base.validate(batch)
    switch fault {
    case .acceptsEverything: return []
    case .refusesEverything: return batch.requests.map { ValidationRefusal(id: $0.id, message: "no") }
    case .refusesWhatItWasNotAsked:
      let id = RequestID(stamp: RequestStamp(unchecked: String(repeating: "e", count: 32)), counter: 1)
      return found + [ValidationRefusal(id: id, message: "no")]
    case .refusesTwice: return found + found
    case .saysNothing:
      for index in found.indices { found[index].message = "" }
    case .givesStatus200:
      for index in found.indices { found[index].status = 200 }
    case .judgesTheFirst: return found.filter { $0.id == batch.requests[0].id }
    case .changesItsMind where call.isMultiple(of: 2): return []
    case .mixesUploads:
      return last.withLock { last in
        defer { last = found }
        return last
      }
    case .chokesOnBlobs:
      let hasBlob = batch.requests.contains { request in
        request.changes.contains { $0.columns.contains { if case .blob = $0.new { true } else { false } } }
      }
      if hasBlob { throw SalvorError(.malformed, "It cannot read this.") }
    default: break
    }
    return found
  }

  /// Closes the base. `neverCloses`: does not return.
  public func close() async {
    while fault == .neverCloses { await Task.detached { try? await Task.sleep(for: .milliseconds(20)) }.value }
    await base.close()
  }
}
