import SalvorModules

/// A conflict policy with an option: of these columns the larger number stands, everything else is for a person.
struct LargerNumber: ConflictPolicy {
  let columns: Set<String>

  func settle(_ conflict: Conflict) -> ConflictSettlement {
    var merged: [NamedValue] = []
    for column in conflict.columns {
      guard columns.contains(column.name), case .integer(let new) = column.new,
        case .integer(let standing)? = conflict.server(column.name)
      else { return .both }
      merged.append(NamedValue(column.name, .integer(max(new, standing))))
    }
    return merged.isEmpty ? .both : .merged(merged)
  }

  static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .conflictPolicy, name: "larger", summary: "The larger number stands.",
      options: [ModuleOption("columns", type: "list of strings", default: "[]", "the columns that it settles")],
      guarantees: ["no request is refused for a conflict"]),
    product: (any ConflictPolicy).self
  ) { reader, _ in
    let columns = Set(reader.strings("columns", default: []))
    return { LargerNumber(columns: columns) }
  }
}
