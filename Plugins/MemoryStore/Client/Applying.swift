import SalvorModel
import SalvorStorage
import SalvorWire

/// A download changes the bases (semantics 2 and 4).
extension ClientContent {
  /// Reads download payloads, in order. A later line of a row replaces an earlier one.
  func arrivals(in payloads: [[UInt8]]) throws -> Arrivals {
    var arrivals = Arrivals()
    // Of these parts came, and they are not here: they must come whole yet.
    var lacking: Set<RowName> = []
    let resolver = ClientBlobContents(blobs: blobs, rehearses: rehearses)
    for payload in payloads {
      try payload.withUnsafeBufferPointer { buffer in
        var reader = DownloadChunkReader(buffer, blobs: resolver)
        var table: Table?
        var columns: [String] = []
        while let event = try reader.next() {
          switch event {
          case .full(let tables): arrivals.full.formUnion(tables)
          case .table(let name, let names):
            table = schema.table(name)
            columns = names
          case .row(let version):
            var values: [Value] = []
            while let item = try reader.item() { values.append(item.value) }
            guard let table, table.maintained != .client else { throw Self.unknownTable() }
            let row = try self.row(of: table, columns, values)
            let name = RowName(table: table.name, key: table.key(of: row))
            lacking.remove(name)
            arrivals.add(name, row, version)
          case .part(let version):
            var values: [Value] = []
            while let item = try reader.item() { values.append(item.value) }
            guard let table, table.maintained != .client else { throw Self.unknownTable() }
            let name = RowName(table: table.name, key: try key(of: table, columns, values))
            let known = arrivals.rows[name] ?? (arrivals.departures[name] == nil ? bases[name] : nil)
            if let known {
              arrivals.add(name, try self.row(of: table, columns, values, onto: known), version)
            } else {
              lacking.insert(name)
            }
          case .key(let departure, let version):
            var key: Key = []
            while let item = try reader.item() { key.append(item.value) }
            guard let table, table.maintained != .client else { throw Self.unknownTable() }
            lacking.remove(RowName(table: table.name, key: key))
            arrivals.add(RowName(table: table.name, key: key), departure, version)
          }
        }
      }
    }
    if let name = lacking.first {
      throw SalvorError(
        .inconsistentDownload,
        "The server sent what has changed of a row of \(name.table) that this device does not have. The rows come whole next."
      )
    }
    return arrivals
  }

  /// What arrived becomes the bases.
  ///
  /// - Parameters:
  ///   - keepsDropped: what no subscription covers stays as long as something needs it.
  ///   - leftToo: so does what left the scope.
  mutating func takeBases(_ arrivals: Arrivals, keepsDropped: Bool, leftToo: Bool = false) -> ApplyReport {
    var report = ApplyReport()
    // A table that comes whole: a row that does not come is not there.
    for table in arrivals.full {
      for key in bases.sortedKeys(of: table) {
        let name = RowName(table: table, key: key)
        if arrivals.rows[name] == nil && arrivals.departures[name] == nil && !(keepsDropped && leaving[name] != nil) {
          // Before its group's first download a device has what it wrote itself. Where it has subscriptions, none covers the row, as far as it
          // knows.
          if keepsDropped, !leftToo, !settings.subscribed.isEmpty, isFirstDownload(of: table) {
            leaving[name] = 0
            continue
          }
          followBase(name, from: bases[name], to: nil)
          bases[name] = nil
          report.deletes += 1
        }
      }
    }
    for (name, row) in arrivals.rows {
      report.upserts += 1
      followBase(name, from: bases[name], to: row)
      bases[name] = row
      leaving[name] = nil
    }
    for (name, departure) in arrivals.departures {
      if keepsDropped, departure == .dropped || (leftToo && departure == .left) {
        if (bases[name] != nil || view[name] != nil) && leaving[name] == nil {
          leaving[name] = schema.table(name.table).flatMap { groups[$0.group]?.cursor?.number } ?? 0
        }
        continue
      }
      leaving[name] = nil
      if bases[name] != nil { report.deletes += 1 }
      followBase(name, from: bases[name], to: nil)
      bases[name] = nil
    }
    if keepsDropped { report.deletes += removeLeaving() }
    return report
  }

  private func isFirstDownload(of table: String) -> Bool {
    schema.table(table).map { groups[$0.group]?.cursor == nil } ?? false
  }

  /// Rows that no subscription covers go when no change of them waits, nor one of a row that references them. How many.
  mutating func removeLeaving() -> Int64 {
    var kept: Set<RowName> = []
    var open = outstanding.flatMap { $0.changes.map(\.row) }
    kept.formUnion(open)
    while let name = open.popLast() {
      guard let table = schema.table(name.table), let row = view[name] ?? bases[name] else { continue }
      for reference in table.references where !reference.soft {
        let parent = RowName(table: reference.table, key: [table.value(reference.column, of: row)])
        if leaving[parent] != nil, kept.insert(parent).inserted { open.append(parent) }
      }
    }
    let going = leaving.keys.filter { !kept.contains($0) }
    for name in going {
      followBase(name, from: bases[name], to: nil)
      bases[name] = nil
      leaving[name] = nil
    }
    return Int64(going.count)
  }

  /// The bases without the rows that no subscription covers any more: the server does not compare these.
  var comparedBases: MemoryTables {
    var compared = bases
    for name in leaving.keys { compared[name] = nil }
    return compared
  }

  /// The groups that some of these tables belong to.
  func groups(of tables: Set<String>) -> Set<String> { Set(tables.compactMap { schema.table($0)?.group }) }

  /// Remembers which commits changed the bases, of groups that came whole from which commit on, and the cursors.
  mutating func remember(_ arrivals: Arrivals, cameWhole: Set<String>, as ended: [GroupState]) {
    // Which rows were deleted stays known: a server that goes back behind a delete has the row again. So does which rows this
    // device wrote: it offers them to a server that has lost them.
    let known = baseChanges.filter { cameWhole.contains(schema.table($0.row.table)?.group ?? "") }
    baseChanges.removeAll { change in
      let isNewest = !known.contains { $0.row == change.row && $0.version > change.version }
      let isGone = change.isDeleted && isNewest && bases[change.row] == nil
      return cameWhole.contains(schema.table(change.row.table)?.group ?? "") && !isGone
    }
    var seen: Set<RowName> = []
    for change in known where change.isOwn && !change.isDeleted && seen.insert(change.row).inserted {
      let newest = known.reduce(change) { $1.row == change.row && $1.version >= $0.version ? $1 : $0 }
      let group = schema.table(change.row.table)?.group
      guard !newest.isDeleted, let cursor = ended.first(where: { $0.name == group })?.cursor else { continue }
      baseChanges.append(
        BaseChange(row: change.row, version: cursor.number, isDeleted: false, isOwn: true, cameWhole: true))
    }
    for change in arrivals.versions { baseChanges.append(change) }
    confirm(ended)
    for group in ended {
      if let cursor = group.cursor, !commits.contains(cursor) { commits.insert(cursor, at: 0) }
      if cameWhole.contains(group.name) { wholeSince[group.name] = group.cursor?.number }
      groups[group.name] = group
    }
  }

  /// The server has what it accepted without a commit as of where the download ends, and a copy of it from there does not have the conflict
  /// versions for certain.
  mutating func confirm(_ ended: [GroupState]) {
    func cursor(_ table: String) -> Int64? {
      ended.first { $0.name == schema.table(table)?.group }?.cursor?.number
    }
    for index in baseChanges.indices where baseChanges[index].isAssumed {
      guard let cursor = cursor(baseChanges[index].row.table) else { continue }
      // What the download has brought of the row is newer, or the very commit because of which the change made none.
      let next = baseChanges[(index + 1)...].first { $0.row == baseChanges[index].row }
      baseChanges[index].version = next?.version ?? cursor
      baseChanges[index].isAssumed = false
    }
    for index in keptVersions.indices where keptVersions[index].isAssumed && keptVersions[index].lost.isEmpty {
      for (place, change) in keptVersions[index].request.changes.enumerated() {
        guard let cursor = cursor(change.row.table) else { continue }
        keptVersions[index].versions[place] = cursor + 1
        keptVersions[index].isAssumed = false
      }
    }
  }

  /// Rows that were compared come without a version: the commit at the download's end is the one that they have at most.
  mutating func rememberCompared(_ arrivals: Arrivals, as ended: [GroupState]) {
    for name in arrivals.unversioned where !arrivals.full.contains(name.table) {
      let group = schema.table(name.table)?.group
      guard let cursor = ended.first(where: { $0.name == group })?.cursor else { continue }
      baseChanges.append(BaseChange(row: name, version: cursor.number, isDeleted: false))
    }
  }

  /// What the server had lost, and has again as this device had it, leaves the archive: its owner has given it back.
  mutating func forgetGivenBack(_ arrivals: Arrivals) {
    let changed = Set(
      arrivals.versions.map(\.row) + arrivals.unversioned.filter { !arrivals.full.contains($0.table) })
    let (schema, bases) = (self.schema, self.bases)
    requests.removeAll { request in
      guard request.state == .kept, request.refusal?.reason == "lost-on-server", request.changes.count == 1,
        let change = request.changes.first, changed.contains(change.row), let table = schema.table(change.row.table)
      else { return false }
      let base = bases[change.row]
      if change.operation == .delete { return base == nil }
      guard let base else { return false }
      return change.columns.allSatisfy { table.value($0.name, of: base) == $0.new }
    }
  }

  /// A row of a group that is not in this download, and that references a row which this download took: the server does
  /// not have it any more as it was. What became of it, and of the rows below, its own group's download says: the two are
  /// applied together. A group that was never synchronized comes whole, and a recovery compares what is synchronized: there it is
  /// not there until then. Nor does the server say what became of a row that no subscription covers.
  mutating func dropStaleChildren(_ constraints: Constraints, downloaded groups: Set<String>, isRecovery: Bool) throws {
    var needed: Set<String> = []
    var dropped = true
    while dropped {
      dropped = false
      for case .missingParent(let name, _) in constraints.violations(in: bases) {
        guard let table = schema.table(name.table), bases[name] != nil,
          !groups.contains(table.group) || leaving[name] != nil
        else { continue }
        if !isRecovery, !groups.contains(table.group), self.groups[table.group]?.cursor != nil {
          needed.insert(table.group)
          continue
        }
        leaving[name] = nil
        bases[name] = nil
        dropped = true
      }
    }
    if !needed.isEmpty { throw GroupsNeeded(needed) }
  }

  private static func unknownTable() -> SalvorError {
    SalvorError(
      .inconsistentDownload,
      "The download has rows of a table that is not synchronized here. Adopt the SyncConfig first.")
  }

  private func key(of table: Table, _ columns: [String], _ values: [Value]) throws -> Key {
    guard columns.count == values.count, table.primaryKey.allSatisfy(columns.contains) else {
      throw SalvorError(.malformed, "A downloaded row of \(table.name) does not have its columns. Sync again.")
    }
    return table.primaryKey.compactMap { name in columns.firstIndex(of: name).map { values[$0] } }
  }

  private func row(
    of table: Table, _ columns: [String], _ values: [Value], onto known: Row? = nil
  ) throws -> Row {
    let key = try key(of: table, columns, values)
    // What does not come is not the server's: it stays as it is.
    var row = known ?? bases[RowName(table: table.name, key: key)] ?? table.columns.map { $0.defaultValue ?? .null }
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
}

/// What a download says, each row as its last line has it.
struct Arrivals: Sendable {
  /// Tables that come whole.
  var full: Set<String> = []
  private(set) var rows: [RowName: Row] = [:]
  private(set) var departures: [RowName: Departure] = [:]
  /// Rows that a recovery asked for, and that the server has and does not show.
  private(set) var hidden: Set<RowName> = []
  /// The commits that the lines name, in order.
  private(set) var versions: [BaseChange] = []
  /// Rows whose lines name none, in order.
  private(set) var unversioned: [RowName] = []

  mutating func add(_ name: RowName, _ row: Row, _ version: Int64?) {
    rows[name] = row
    departures[name] = nil
    hidden.remove(name)
    note(name, version, isDeleted: false)
  }

  mutating func add(_ name: RowName, _ departure: Departure, _ version: Int64?) {
    rows[name] = nil
    departures[name] = departure
    if departure == .left, version == nil { hidden.insert(name) } else { hidden.remove(name) }
    note(name, version, isDeleted: departure == .deleted, isLeft: departure != .deleted)
  }

  /// What the device holds of a hidden row is not what the server has.
  mutating func lose(_ name: RowName) { departures[name] = .lost }

  private mutating func note(_ name: RowName, _ version: Int64?, isDeleted: Bool, isLeft: Bool = false) {
    if let version {
      versions.append(BaseChange(row: name, version: version, isDeleted: isDeleted, isLeft: isLeft))
    } else {
      unversioned.append(name)
    }
  }
}
