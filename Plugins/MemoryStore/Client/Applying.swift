import SalvorModel
import SalvorStorage
import SalvorWire

/// A download changes the bases (semantics 2 and 4).
extension ClientContent {
  /// Reads everything staged, in order, into the bases. A later line of a row replaces an earlier one.
  mutating func takeBases() throws -> ApplyReport {
    var full: Set<String> = []
    var arrived: [RowName: Row?] = [:]
    for chunk in staged {
      try chunk.bytes.withUnsafeBufferPointer { buffer in
        var reader = DownloadChunkReader(buffer)
        var table: Table?
        var columns: [String] = []
        while let event = try reader.next() {
          switch event {
          case .full(let tables): full.formUnion(tables)
          case .table(let name, let names):
            table = schema.table(name)
            columns = names
          case .row:
            var values: [Value] = []
            while let item = try reader.item() { values.append(item.value) }
            guard let table, table.maintained != .client else { throw Self.unknownTable() }
            let row = try self.row(of: table, columns, values)
            arrived[RowName(table: table.name, key: table.key(of: row))] = .some(row)
          case .key:
            var key: Key = []
            while let item = try reader.item() { key.append(item.value) }
            guard let table, table.maintained != .client else { throw Self.unknownTable() }
            arrived[RowName(table: table.name, key: key)] = .some(nil)
          }
        }
      }
    }
    return change(full, arrived)
  }

  /// A row of a group that is not in this download, and that references a row which this download took: the server does
  /// not have it any more as it was. What became of it comes with its own group's next download.
  mutating func dropStaleChildren(_ constraints: Constraints, downloaded groups: Set<String>) {
    var dropped = true
    while dropped {
      dropped = false
      for case .missingParent(let name, _) in constraints.violations(in: bases) {
        guard let table = schema.table(name.table), !groups.contains(table.group), bases[name] != nil else { continue }
        bases[name] = nil
        dropped = true
      }
    }
  }

  private static func unknownTable() -> SalvorError {
    SalvorError(
      .inconsistentDownload,
      "The download has rows of a table that is not synchronized here. Adopt the SyncConfig first.")
  }

  private func row(of table: Table, _ columns: [String], _ values: [Value]) throws -> Row {
    guard columns.count == values.count, table.primaryKey.allSatisfy(columns.contains) else {
      throw SalvorError(.malformed, "A downloaded row of \(table.name) does not have its columns. Sync again.")
    }
    var row = table.columns.map { $0.defaultValue ?? .null }
    for (name, value) in zip(columns, values) {
      guard let place = table.columnIndex(name) else {
        throw SalvorError(
          .inconsistentDownload,
          "The download has a column \(name) that \(table.name) does not have here. Adopt the SyncConfig first.")
      }
      row[place] = value
    }
    return row
  }

  private mutating func change(_ full: Set<String>, _ arrived: [RowName: Row?]) -> ApplyReport {
    var report = ApplyReport()
    // A table that comes whole: a row that does not come is not there.
    for table in full {
      for key in bases.sortedKeys(of: table) {
        let name = RowName(table: table, key: key)
        if arrived[name] == nil {
          bases[name] = nil
          report.deletes += 1
        }
      }
    }
    for (name, row) in arrived {
      if row != nil { report.upserts += 1 } else if bases[name] != nil { report.deletes += 1 }
      bases[name] = row
    }
    return report
  }
}
