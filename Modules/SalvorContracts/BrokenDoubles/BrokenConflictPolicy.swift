import SalvorModel
import SalvorStorage

/// A conflict policy with one deliberate fault. The suite must catch every one of them.
public final class BrokenConflictPolicy: ConflictPolicy {
  /// What is wrong with the policy: one thing at a time.
  public enum Fault: String, Sendable, CaseIterable {
    case throwsOnNull, throwsOnDeletes, throwsOnInserts
    case mergesOtherColumns, mergesTheKey, mergesOtherTypes, mergesNullIntoAll, mergesTwice
    case changesItsMind, repeatsItself, saysUniformAndIsNot
  }

  private struct Stumbled: Error {}

  private let fault: Fault?
  private let last = Mutex<ConflictSettlement?>(nil)

  /// - Parameter fault: nil: none.
  public init(_ fault: Fault?) { self.fault = fault }

  /// Nil, or, with `saysUniformAndIsNot`, a settlement that `settle` does not give.
  public var uniform: ConflictSettlement? { fault == .saysUniformAndIsNot ? .client : nil }

  /// Without a fault: the client's values, merged without the key's. Throws where the fault is one that throws.
  public func settle(_ conflict: Conflict) throws -> ConflictSettlement {
    let sound = ConflictSettlement.merged(
      conflict.columns.filter { !conflict.table.primaryKey.contains($0.name) }.map { NamedValue($0.name, $0.new) })
    let first = conflict.table.travelling.first { !conflict.table.primaryKey.contains($0.name) }?.name ?? ""
    switch fault {
    case .throwsOnNull where conflict.columns.contains { $0.new.isNull }: throw Stumbled()
    case .throwsOnDeletes where conflict.operation == .delete: throw Stumbled()
    case .throwsOnInserts where conflict.operation == .insert: throw Stumbled()
    case .mergesOtherColumns: return .merged([NamedValue("nobody's", "x")])
    case .mergesTheKey: return .merged([NamedValue(conflict.table.primaryKey[0], conflict.key[0])])
    case .mergesOtherTypes: return .merged([NamedValue(first, .blob([1]))])
    case .mergesNullIntoAll: return .merged(conflict.columns.map { NamedValue($0.name, .null) })
    case .mergesTwice: return .merged([NamedValue(first, "x"), NamedValue(first, "x")])
    case .changesItsMind:
      return last.withLock { last in
        let answer: ConflictSettlement = last == .client ? .server : .client
        last = answer
        return answer
      }
    case .repeatsItself:
      return last.withLock { last in
        defer { last = sound }
        return last ?? sound
      }
    default: return sound
    }
  }
}
