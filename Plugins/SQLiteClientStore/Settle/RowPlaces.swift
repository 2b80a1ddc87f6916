import SalvorModel

/// Where the rows in work stand, as they are to be: which of them hold a unique value, which reference a row. What is not in
/// work is in its table.
final class RowPlaces {
  /// A unique value as its index compares it.
  struct Held: Hashable {
    var table: Int64
    /// The place of the constraint in the table's.
    var unique: Int
    var values: [Value]
  }

  /// A reference that can be followed in values: one column, to the key of a captured table.
  struct Reference {
    var rule: ReferenceProof.Rule
    var child: CapturedTable
    var slot: Int
    var parent: CapturedTable
  }

  /// By the number of the child, and of the parent.
  let references: [Int64: [Reference]]
  let referenced: [Int64: [Reference]]
  /// Every reference between captured tables can be followed in values.
  let followsAll: Bool
  private var slots: [Int64: [[Int]?]] = [:]
  private var holders: [Held: Set<RowRef>] = [:]
  private var children: [RowRef: Set<RowRef>] = [:]
  private var placed: [RowRef: (held: [Held], parents: [RowRef])] = [:]

  init(_ context: StoreContext, _ proof: ReferenceProof) {
    var found: [Reference] = []
    var others = false
    for rule in proof.rules {
      guard let child = rule.capturedChild, let parent = rule.capturedParent else {
        if rule.capturedChild != nil { others = true }
        continue
      }
      guard rule.parentColumnsAreKey, rule.childColumns.count == 1, parent.keyCount == 1,
        let slot = child.columns.firstIndex(where: { $0.name.folded == rule.childColumns[0].folded })
      else {
        others = true
        continue
      }
      found.append(Reference(rule: rule, child: child, slot: slot, parent: parent))
    }
    references = Dictionary(grouping: found, by: \.child.number)
    referenced = Dictionary(grouping: found, by: \.parent.number)
    followsAll = !others
  }

  /// The slots of each unique constraint; nil of one that only its index can compare.
  func uniqueSlots(_ table: CapturedTable) -> [[Int]?] {
    if let known = slots[table.number] { return known }
    let made = table.uniques.map { unique -> [Int]? in
      guard unique.condition == nil,
        unique.parts.allSatisfy({ ["BINARY", "NOCASE", "RTRIM"].contains($0.collation.uppercased()) })
      else { return nil }
      let slots = unique.parts.compactMap { part in
        table.columns.firstIndex { $0.name.folded == part.name.folded }
      }
      return slots.count == unique.parts.count ? slots : nil
    }
    slots[table.number] = made
    return made
  }

  /// What a row holds of a constraint; nil where a column is NULL.
  func held(_ row: SlotRow?, _ table: CapturedTable, _ place: Int) -> Held? {
    guard let row, let slots = uniqueSlots(table)[place] else { return nil }
    var values: [Value] = []
    for (part, slot) in zip(table.uniques[place].parts, slots) {
      guard !row[slot].isNull else { return nil }
      values.append(Self.compared(row[slot], part.collation))
    }
    return Held(table: table.number, unique: place, values: values)
  }

  /// The value as an index compares it.
  private static func compared(_ value: Value, _ collation: String) -> Value {
    switch value {
    case .real(let number):
      guard number == number.rounded(), abs(number) < 9.2e18 else { return value }
      return .integer(Int64(number))
    case .text(let bytes):
      switch collation.uppercased() {
      case "NOCASE": return .text(bytes.map { $0 >= 0x41 && $0 <= 0x5A ? $0 + 0x20 : $0 })
      case "RTRIM": return .text(Array(bytes.reversed().drop { $0 == 0x20 }.reversed()))
      default: return value
      }
    default: return value
    }
  }

  /// The row is in work as this.
  func put(_ work: WorkingRow, _ ref: RowRef) {
    remove(ref)
    guard let row = work.timeline.current else { return }
    let held = work.table.uniques.indices.compactMap { self.held(row, work.table, $0) }
    let parents = (references[ref.table] ?? []).compactMap { reference in
      row[reference.slot].isNull ? nil : RowRef(table: reference.parent.number, key: [row[reference.slot]])
    }
    if held.isEmpty, parents.isEmpty { return }
    for value in held { holders[value, default: []].insert(ref) }
    for parent in parents { children[parent, default: []].insert(ref) }
    placed[ref] = (held, parents)
  }

  func remove(_ ref: RowRef) {
    guard let old = placed.removeValue(forKey: ref) else { return }
    for value in old.held {
      holders[value]?.remove(ref)
      if holders[value]?.isEmpty == true { holders[value] = nil }
    }
    for parent in old.parents {
      children[parent]?.remove(ref)
      if children[parent]?.isEmpty == true { children[parent] = nil }
    }
  }

  func rows(holding value: Held) -> Set<RowRef> { holders[value] ?? [] }
  func rows(referencing parent: RowRef) -> Set<RowRef> { children[parent] ?? [] }
}
