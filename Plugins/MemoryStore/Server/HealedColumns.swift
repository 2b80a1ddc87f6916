import SalvorModel
import SalvorStorage

extension ServerState {
  /// A device tells in which order incarnations lived.
  mutating func note(_ order: [LostNeighbours]) {
    for found in order { found.add(to: &lostNeighbours) }
  }

  var lostOrder: LostOrder {
    var order = LostOrder(own: timeline.incarnations)
    for found in lostNeighbours { order.add(found) }
    return order
  }

  /// The upload is over: what it healed gets its place.
  mutating func number(_ commit: Commit?) {
    let at = commit.map { 2 * $0.number } ?? 2 * head.number + 1
    healed = healed.mapValues { columns in
      columns.mapValues { $0.at == .max ? HealedColumn(version: $0.version, at: at) : $0 }
    }
    for (row, deletes) in claimedDeletes {
      claimedDeletes[row] = deletes.map { delete in
        var delete = delete
        if delete.at == .max { delete.at = at }
        return delete
      }
    }
  }

  /// Who parted from this server later has seen what was healed before the history that is kept.
  mutating func forgetHealed() {
    healed = healed.mapValues { columns in columns.filter { $0.value.at > 2 * trimmed } }.filter { !$0.value.isEmpty }
    claimedDeletes = claimedDeletes.mapValues { $0.filter { $0.at > 2 * trimmed } }.filter { !$0.value.isEmpty }
  }

  /// The server's own history has the commit.
  func has(_ version: LostVersion) -> Bool { lastCommit(of: version.incarnation).map { version.number <= $0 } ?? false }

  /// The last commit of an incarnation of this server's; nil: it does not know it.
  func lastCommit(of incarnation: IncarnationID) -> Int64? {
    let known = timeline.incarnations
    guard let place = known.firstIndex(where: { $0.id == incarnation }) else { return nil }
    return place + 1 < known.count ? known[place + 1].firstCommit - 1 : head.number
  }

  /// What ordinary writes changed of a row since a commit: the commit's number, and columns.
  func ordinaryWrites(of name: RowName, since parting: Int64) -> [(commit: Int64, columns: Set<String>)] {
    guard let table = schema.table(name.table) else { return [] }
    let all = Set(table.travelling.map(\.name) + [HealedColumn.existence])
    // Older than what is kept: nobody can say.
    if parting < trimmed { return [(0, all)] }
    return commits.indices.filter { index in
      index > 0 && commits[index].commit.number > parting && commits[index].changed.contains(name)
        && commits[index].touchedFor == nil
    }.map { index in
      let before = commits[index - 1].tables?[name], after = commits[index].tables?[name]
      var columns = all
      if let before, let after {
        columns = Set(
          table.travelling.map(\.name).filter { table.value($0, of: before) != table.value($0, of: after) })
      }
      return (commits[index].commit.number, columns.subtracting(commits[index].healed[name] ?? []))
    }.filter { !$0.1.isEmpty }
  }
}

extension Dictionary where Key == String {
  func mapKeys(_ name: (String) -> String) -> [String: Value] {
    [String: Value](map { (name($0.key), $0.value) }) { first, _ in first }
  }
}
