import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// Refuses some of what devices send, told by the note alone: whatever order uploads come in, it says the same.
struct SimulatedValidator: RequestValidator {
  /// The third note of each transaction.
  static func refuses(_ note: String) -> Bool { note.hasSuffix(".3") }

  /// A validator module `simulated`.
  static var factory: ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(kind: .validator, name: "simulated", summary: "refuses some notes of a simulation"),
      product: (any RequestValidator).self
    ) { _, _ in { SimulatedValidator() } }
  }

  func validate(_ batch: ValidationBatch) async throws -> [ValidationRefusal] {
    batch.requests.filter { request in
      request.changes.contains { change in
        // It may have another name by now: `note_12`.
        change.columns.contains { $0.name.hasPrefix("note") && $0.new.string.map(Self.refuses) == true }
      }
    }.map { ValidationRefusal(id: $0.id, message: "This note is not wanted: write another one.") }
  }
}
