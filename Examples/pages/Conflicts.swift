import SalvorModules

// docs/guides/conflicts.md

struct LargerNumber: ConflictPolicy {
  let columns: Set<String>

  func settle(_ conflict: Conflict) -> ConflictSettlement {
    guard conflict.operation != .delete else { return .both }
    return .merged(
      conflict.columns.filter { !conflict.table.primaryKey.contains($0.name) }.map { column in
        guard columns.contains(column.name), let mine = column.new.integer,
          let theirs = conflict.server(column.name)?.integer
        else { return NamedValue(column.name, column.new) }
        return NamedValue(column.name, .integer(max(mine, theirs)))
      })
  }
}

let larger = ModuleFactory(
  ModuleDescriptor(
    kind: .conflictPolicy, name: "larger-number", summary: "Of some columns the larger number stands.",
    options: [ModuleOption("columns", type: "list of columns", default: "[]", "The columns.")]),
  product: (any ConflictPolicy).self
) { reader, _ in
  let columns = reader.strings("columns", default: [])
  return { LargerNumber(columns: Set(columns)) }
}
