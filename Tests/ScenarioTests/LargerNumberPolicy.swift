import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// A conflict policy as somebody outside writes one: of the columns that are named, the larger number stands; of the
/// others the client's value; what was deleted is left for a person.
struct LargerNumberPolicy: ConflictPolicy {
  let columns: Set<String>

  func settle(_ conflict: Conflict) -> ConflictSettlement {
    guard conflict.operation != .delete else { return .both }
    let changed = conflict.columns.filter { !conflict.table.primaryKey.contains($0.name) }
    return .merged(
      changed.map { column in
        guard columns.contains(column.name), let mine = column.new.integer,
          let theirs = conflict.server(column.name)?.integer
        else { return NamedValue(column.name, column.new) }
        return NamedValue(column.name, .integer(max(mine, theirs)))
      })
  }

  static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .conflictPolicy, name: "larger-number", summary: "Of some columns the larger number stands.",
      options: [
        ModuleOption("columns", type: "list of columns", default: "[]", "The columns whose larger number stands.")
      ],
      guarantees: ["A number that both sides changed never becomes smaller."]),
    product: (any ConflictPolicy).self
  ) { reader, _ in
    let columns = reader.strings("columns", default: [])
    return { LargerNumberPolicy(columns: Set(columns)) }
  }
}
