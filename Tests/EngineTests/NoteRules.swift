import SalvorModel
import SalvorStorage

/// A validator of an application: a visit's note must not be "bad". It notes what it was asked, and fails or waits when told.
final class NoteRules: RequestValidator {
  enum Mood: Sendable {
    case judging, failing, nonsense
    /// Until the mood changes.
    case waiting
  }

  let asked = Mutex<[ValidationBatch]>([])
  let mood = Mutex(Mood.judging)
  private let isClosed = Atomic<Bool>(false)

  var batches: [ValidationBatch] { asked.withLock { $0 } }
  var wasClosed: Bool { isClosed.load(ordering: .relaxed) }
  func set(_ mood: Mood) { self.mood.withLock { $0 = mood } }

  func validate(_ batch: ValidationBatch) async throws -> [ValidationRefusal] {
    asked.withLock { $0.append(batch) }
    while case .waiting = mood.withLock({ $0 }) { try await Task.sleep(for: .milliseconds(2)) }
    switch mood.withLock({ $0 }) {
    case .failing: throw SalvorError(.unreachable, "The rules are not there.")
    case .nonsense:
      let id = RequestID(stamp: RequestStamp(unchecked: String(repeating: "0", count: 32)), counter: 1)
      return [ValidationRefusal(id: id, message: "never asked")]
    default: break
    }
    return batch.requests.filter { request in
      request.changes.contains { $0.columns.contains { $0.name == "note" && $0.new == "bad" } }
    }.map { ValidationRefusal(id: $0.id, message: "A visit needs a better note.", status: 451) }
  }

  func close() async { isClosed.store(true, ordering: .relaxed) }
}
