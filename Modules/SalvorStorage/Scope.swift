import SalvorModel
import SalvorWire

/// One condition of a table's scope: the row reached by `steps` (none: the row itself) has in `column` a value that
/// `source` allows. All conditions of a table must hold (semantics 7).
public struct ScopeCondition: Sendable, Hashable {
  /// References followed from the table, in order; each names the column and the parent table.
  public var steps: [Reference]
  public var column: String
  public var source: ScopeSource
  public init(steps: [Reference], column: String, source: ScopeSource) {
    self.steps = steps
    self.column = column
    self.source = source
  }
}

extension Schema {
  /// The conditions of a table's own scope columns and of every scope it inherits, in a fixed order. Empty: everyone's.
  public func scopeConditions(of table: Table) -> [ScopeCondition] {
    conditions(of: table, steps: [])
  }

  private func conditions(of table: Table, steps: [Reference]) -> [ScopeCondition] {
    guard steps.count <= tables.count else { return [] }
    var out = table.scope.map { ScopeCondition(steps: steps, column: $0.column, source: $0.source) }
    for reference in table.references where reference.inheritsScope {
      guard let parent = self.table(reference.table) else { continue }
      out += conditions(of: parent, steps: steps + [reference])
    }
    return out
  }

  /// The groups that must be synchronized with `names`: their rows reference rows of them.
  public func closure(ofGroups names: Set<String>) -> Set<String> {
    var closed = names
    var grew = true
    while grew {
      grew = false
      for table in synchronized where closed.contains(table.group) {
        for reference in table.references where !reference.soft {
          guard let parent = self.table(reference.table), parent.maintained != .client else { continue }
          if closed.insert(parent.group).inserted { grew = true }
        }
      }
    }
    return closed
  }
}

extension Principal {
  /// The values that `source` allows this principal; nil: any.
  public func allowedValues(_ source: ScopeSource) -> [Value]? {
    switch source {
    case .principal: [.text(name)]
    case .parameter(let parameter): parameters[parameter]
    }
  }

  /// Names the scope that this principal has in `table`'s conditions: two principals or times with the same digest see
  /// the same rows of the same database.
  public func scopeDigest(of conditions: [ScopeCondition]) -> String {
    var writer = PayloadWriter()
    for condition in conditions {
      for step in condition.steps { writer.text(step.column) }
      writer.text(condition.column)
      if let values = allowedValues(condition.source) {
        let texts = values.map { value in
          var one = PayloadWriter()
          one.value(value)
          return String(decoding: one.bytes, as: UTF8.self)
        }
        for text in texts.sorted() { writer.text(text) }
      } else {
        writer.null()
      }
    }
    return digest(writer.bytes)
  }
}
