import SalvorModel

/// What a deleted mark takes along (semantics 3): the rows below the marked one, through the references of the tables that
/// the device writes and the server gets. Soft references are not followed: their rows may be others'.
public struct MarkDescent: Sendable, Hashable {
  /// A table whose rows go, or are marked, with the rows that they reference.
  public struct Step: Sendable, Hashable {
    /// A dual-maintained one.
    public var table: Table
    /// From columns of `table` to the marked row's table, or to that of another step.
    public var references: [Reference]
    /// The rows stay in the table with their own mark. Of a table without a deleted column, and below one, they go at once,
    /// as by a plain DELETE.
    public var stays: Bool
  }

  /// Parents first, as far as references have an order. A table that references itself is a step of its own descent.
  public var steps: [Step]

  /// - Parameter root: the table of the marked row.
  public init(of root: Table, in schema: Schema) {
    var reached: [String] = []
    var goes: Set<String> = []
    var waiting = [root]
    while !waiting.isEmpty {
      let parent = waiting.removeFirst()
      for (child, _) in Self.children(of: parent, in: schema) {
        let isNew = !reached.contains(child.name)
        if isNew { reached.append(child.name) }
        let mustGo = child.flags.deleted == nil || (goes.contains(parent.name) && parent.name != root.name)
        let isNewlyGone = mustGo && goes.insert(child.name).inserted
        if (isNew && child.name != root.name) || isNewlyGone { waiting.append(child) }
      }
    }
    let parents = Set(reached + [root.name])
    steps = schema.parentsFirst(schema.tables).filter { reached.contains($0.name) }.map { table in
      Step(
        table: table,
        references: Self.followed(of: table, in: schema).filter { parents.contains($0.table) },
        stays: !goes.contains(table.name))
    }
  }

  private static func followed(of table: Table, in schema: Schema) -> [Reference] {
    guard table.maintained == .dual else { return [] }
    return table.references.filter { reference in
      guard !reference.soft, let parent = schema.table(reference.table), parent.maintained == .dual else {
        return false
      }
      return parent.primaryKey.count == 1
    }
  }

  private static func children(of parent: Table, in schema: Schema) -> [(child: Table, reference: Reference)] {
    schema.tables.flatMap { child in
      followed(of: child, in: schema).filter { $0.table == parent.name }.map { (child, $0) }
    }
  }
}

extension Table {
  /// The deleted column of a row is set: it has anything but NULL and zero.
  public func isMarked(_ row: Row) -> Bool { isSet(flags.deleted, in: row) }

  /// Likewise the dirty column.
  public func isDirty(_ row: Row) -> Bool { isSet(flags.dirty, in: row) }

  private func isSet(_ flag: String?, in row: Row) -> Bool {
    guard let place = flag.flatMap(columnIndex) else { return false }
    switch row[place] {
    case .null, .integer(0): return false
    case .real(let value): return value != 0
    case .integer, .text, .blob: return true
    }
  }
}
