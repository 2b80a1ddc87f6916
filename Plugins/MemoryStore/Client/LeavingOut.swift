import SalvorModel
import SalvorStorage
import SalvorWire

/// Rows of the server's that cannot stand without a row that did not come (decision 188).
extension ClientContent {
  /// They have no base until that row comes.
  ///
  /// - Parameter isMeant: only rows that reference such a one.
  mutating func leaveOut(
    _ constraints: Constraints, where isMeant: (RowName) -> Bool = { _ in true }
  ) -> [LeftOutRow] {
    var left: [LeftOutRow] = []
    var meant: Set<RowName> = []
    while true {
      let found = constraints.violations(in: bases).compactMap { violation -> (child: RowName, parent: RowName)? in
        guard case .missingParent(let name, let reference) = violation, let row = bases[name],
          let table = schema.table(name.table)
        else { return nil }
        let parent = RowName(table: reference.table, key: [table.value(reference.column, of: row)])
        return isMeant(parent) || meant.contains(parent) ? (name, parent) : nil
      }.sorted { ($0.child.table, "\($0.child.key)") < ($1.child.table, "\($1.child.key)") }
      if found.isEmpty { break }
      for (child, parent) in found where bases[child] != nil {
        followBase(child, from: bases[child], to: nil)
        bases[child] = nil
        leaving[child] = nil
        meant.insert(child)
        left.append(
          LeftOutRow(
            row: RowPlace(table: child.table, key: child.key),
            cause: .lacks(RowPlace(table: parent.table, key: parent.key))))
      }
    }
    incomplete.formUnion(left.map(\.row.table))
    return left
  }

  /// What of a download's payload is taken: rows with a blob of more than this device takes are not, unless it holds the blob.
  ///
  /// - Parameter bytesMax: nil: as it was said of the same payload before. Else what is left out is noted.
  mutating func taken(of payload: [UInt8], bytesMax: Int64? = nil) throws -> [UInt8] {
    guard let most = bytesMax ?? leftOutBlobs?.bytesMax else { return payload }
    let tables = schema.synchronized
    let (taken, blobs) = try leavingOutBlobs(
      above: most, inDownload: payload, primaryKey: { schema.table($0)?.primaryKey },
      isHere: { placed in
        [view, bases].contains { $0.blob(placed.reference, in: tables, where: { _, _ in true }) != nil }
      })
    if !blobs.isEmpty, bytesMax != nil {
      var left = leftOutBlobs ?? LeftOutBlobs(bytesMax: most)
      left.note(blobs, bytesMax: most)
      leftOutBlobs = left
    }
    return taken
  }

  /// Where the device takes more now, the tables that lack rows are compared.
  mutating func lookAgain(bytesMax: Int64) {
    guard let left = leftOutBlobs, bytesMax > left.bytesMax else { return }
    toCompare.formUnion(left.tables)
    leftOutBlobs = nil
  }

  /// What a download has brought stands with what it references, or is left out. Where a row came that rows which were left out before may
  /// reference, their tables are compared; so are tables that reference one another, when rows of both are left out: each may wait for the other.
  mutating func leaveOut(_ constraints: Constraints, of arrivals: Arrivals) -> (left: [LeftOutRow], isToCompare: Bool) {
    let before = incomplete
    let left = leaveOut(constraints)
    let names = Set(left.map { RowName(table: $0.row.table, key: $0.row.key) })
    let came = Set(arrivals.rows.keys.filter { !names.contains($0) }.map(\.table))
    let whole = before.filter { name in
      schema.table(name)?.references.contains { came.contains($0.table) } == true
    }
    let now = Set(names.map(\.table))
    var circle: Set<String> = []
    for old in before {
      for new in now where new != old && reaches(from: old, new) && reaches(from: new, old) {
        circle.formUnion([old, new])
      }
    }
    incomplete = before.subtracting(whole).union(now).subtracting(circle)
    toCompare.formUnion(whole.union(circle))
    return (left, !whole.union(circle).isEmpty)
  }

  /// Rows of `table` reference rows of `other`, or rows that do.
  private func reaches(from table: String, _ other: String) -> Bool {
    var found: Set<String> = []
    var open = [table]
    while let next = open.popLast() {
      for reference in schema.table(next)?.references ?? [] where found.insert(reference.table).inserted {
        open.append(reference.table)
      }
    }
    return found.contains(other)
  }
}
