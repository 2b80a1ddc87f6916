import SalvorModel

/// Synchronizations of some groups alone, and tables that come into other groups.
extension World {
  /// Those that the device knows.
  func known(_ groups: [String], _ device: SimulatedDevice) -> Set<String> {
    Set(device.schema.groups.filter(groups.contains))
  }

  /// A device synchronizes some groups alone, and the specification does.
  func synchronize(_ device: SimulatedDevice, _ groups: Set<String>, _ faults: NetworkFaults) async {
    guard !groups.isEmpty else { return }
    await synchronize(device, groups: groups, faults, meanwhile: [])
    await specify(device.number, groups: groups)
  }

  /// The server's schema has a table in another group.
  func move(_ table: Int, to group: String?) async throws {
    guard serverSchema.tables[table].maintained != "client" else { return }
    await stopServer()
    serverSchema.tables[table].group = group
    serverSchema.version += 1
    try await startServer()
  }

  /// A program deletes a row that rows of another group reference, and the device hears of it alone.
  func uproot(_ device: SimulatedDevice, _ place: Int) async throws {
    guard try device.isMade() else { return }
    let (rows, known) = (try serverContents(), try device.contents())
    var (referenced, above): (Set<RowName>, Set<RowName>) = ([], [])
    var parents: [RowName: [RowName]] = [:]
    for child in serverSchema.synchronized {
      let columns = child.columnList(serverSchema).map(\.name)
      for reference in child.references where reference.table != child.name {
        guard let slot = columns.firstIndex(of: reference.column) else { continue }
        for (name, row) in rows where name.table == child.name && !row[slot].isNull {
          let parent = RowName(table: reference.table, key: literal(row[slot]))
          parents[name, default: []].append(parent)
          let isElsewhere = child.group != serverSchema.table(reference.table)?.group
          if isElsewhere, known[parent] != nil { referenced.insert(parent) }
        }
      }
    }
    // Rather one with rows below those that reference it.
    for (_, names) in parents { above.formUnion(names.flatMap { parents[$0] ?? [] }.filter(referenced.contains)) }
    let chosen = (above.isEmpty ? referenced : above).sorted()
    guard !chosen.isEmpty, let table = serverSchema.table(chosen[place % chosen.count].table) else { return }
    let moves = try program(["DELETE FROM \(table.name) WHERE id = \(chosen[place % chosen.count].key)"])
    await specify { try await $0.write(nil, moves) }
    try lookAtServer()
    coverage.meet(above.isEmpty ? "uprooted" : "uprooted with rows below")
    await synchronize(device, self.known([table.group ?? "default"], device), NetworkFaults())
  }
}
