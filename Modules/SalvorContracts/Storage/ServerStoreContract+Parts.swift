import SalvorModel
import SalvorStorage

/// Of rows that a device has the columns that were changed are enough (decision 103).
extension ServerStoreContract {
  static let parts: [Case] = [
    on(
      ContractSchemas.inspections,
      "a device that has a row gets the columns that were changed since its cursor, together",
      rule: "ServerStore.swift, PageRequest"
    ) { bench in
      var device = try await inspected(bench)
      try await bench.write(.update("inspection", ["i"], ["date": "e"]))
      _ = try await bench.store.sweep()
      try await bench.write(.update("infraction", ["i", 1], ["note": "n"]))
      try await device.download()
      try expectEqual(device.parts, ["infraction inspection_id line note", "inspection id date"], "the parts")
      try await bench.write(.update("inspection", ["i"], ["date": "f"]))
      _ = try await bench.store.sweep()
      try await bench.write(.update("inspection", ["i"], ["inspector": "x"]))
      _ = try await bench.store.sweep()
      try await bench.write(.update("inspection", ["i"], ["date": "g"]))
      try await device.download()
      try expectEqual(device.parts, ["inspection id date inspector"], "the parts of one row")
      try await expectSame(device, bench)
    },
    on(
      ContractSchemas.inspections, "who does not ask for parts gets whole rows, and so does who has nothing yet",
      rule: "ServerStore.swift, PageRequest"
    ) { bench in
      var device = try await inspected(bench)
      device.takesParts = false
      try await bench.write(.update("inspection", ["i"], ["date": "e"]))
      try await device.download()
      try expectEqual(device.parts, [], "the parts")
      try await expectSame(device, bench)
      var other = Device(bench, principal: Principal(name: "anna", parameters: ["region": ["EU"]]))
      other.takesParts = true
      try await bench.store.register(other.remote, principal: "anna")
      try await bench.write(.update("inspection", ["i"], ["date": "f"]))
      try await other.download()
      try expectEqual(other.parts, [], "the parts of a first download")
      try await expectSame(other, bench)
    },
    on(
      ContractSchemas.inspections, "a row that was made again since the cursor comes whole",
      rule: "ServerStore.swift, PageRequest"
    ) { bench in
      var device = try await inspected(bench)
      try await bench.write(.delete("infraction", ["i", 1]))
      _ = try await bench.store.sweep()
      try await bench.write(.insert("infraction", ["inspection_id": "i", "line": 1, "note": "again"]))
      _ = try await bench.store.sweep()
      try await bench.write(.update("infraction", ["i", 1], ["note": "more"]))
      try await bench.write(.insert("infraction", ["inspection_id": "i", "line": 2, "note": "new"]))
      _ = try await bench.store.sweep()
      try await bench.write(.update("infraction", ["i", 2], ["note": "newer"]))
      try await device.download()
      try expectEqual(device.parts, [], "the parts")
      try await expectSame(device, bench)
    },
    on(
      ContractSchemas.inspections, "a row that came into the scope comes whole, whatever else was changed",
      rule: "ServerStore.swift, PageRequest"
    ) { bench in
      var device = try await inspected(bench)
      try await bench.write(
        .insert("establishment", ["id": "us", "name": "e", "region": "US"]),
        .insert("inspection", ["id": "j", "establishment_id": "us", "date": "d"]))
      try await device.download()
      for order in [false, true] {
        try await bench.write(.update("establishment", ["us"], ["region": .text(order ? "EU" : "US")]))
        _ = try await bench.store.sweep()
        try await bench.write(.update("inspection", ["j"], ["date": .text("\(order)")]))
        _ = try await bench.store.sweep()
        try await device.download(bytesTarget: 1)
        try await expectSame(device, bench)
      }
      // It left and came back: the device has forgotten it meanwhile, or not; in either order of the entries.
      try await bench.write(.update("inspection", ["j"], ["date": "x"]))
      _ = try await bench.store.sweep()
      try await bench.write(.update("establishment", ["us"], ["region": "US"]))
      _ = try await bench.store.sweep()
      try await bench.write(.update("establishment", ["us"], ["region": "EU"]))
      try await device.download(bytesTarget: 1)
      try await expectSame(device, bench)
    },
    on(
      ContractSchemas.inspections, "what a device sent and others changed since comes with the columns of the others",
      rule: "ServerStore.swift, PageRequest"
    ) { bench in
      var device = try await inspected(bench)
      try await bench.write(.update("inspection", ["i"], ["inspector": "theirs"]))
      try expectAccepted(try await device.upload(.update("inspection", ["i"], [("date", "d", "mine")])), 1)
      try await device.download()
      // Whole where the store does not tell the two apart.
      try expect(Set(device.parts).isSubset(of: ["inspection id inspector"]), "the parts: \(device.parts)")
      try await expectSame(device, bench)
      // Both wrote one column: the device's stands by the policy, and comes back as it is.
      try await bench.write(.update("inspection", ["i"], ["date": "theirs"]))
      try expectAccepted(
        try await device.upload(.update("inspection", ["i"], [("date", "mine", "again")])), 1, conflicts: 1)
      try await device.download()
      try expectEqual(
        device.replica.rows(of: "inspection"), [["i", "e", "again", "theirs"]], "the device's inspections")
    },
  ]

  private static func inspected(_ bench: ServerBench) async throws -> Device {
    try await bench.write(
      .insert("establishment", ["id": "e", "name": "e", "region": "EU"]),
      .insert("inspection", ["id": "i", "establishment_id": "e", "date": "d"]),
      .insert("infraction", ["inspection_id": "i", "line": 1]))
    var device = try await bench.device(parameters: ["region": ["EU"]])
    device.takesParts = true
    return device
  }

  /// The device has what its scope shows of the server's rows: those of the region EU.
  private static func expectSame(
    _ device: Device, _ bench: ServerBench, file: String = #fileID, line: Int = #line
  ) async throws {
    let establishments = try await bench.store.rows(of: "establishment").filter { $0[2] == "EU" }
    let inspections = try await bench.store.rows(of: "inspection").filter { row in
      establishments.contains { $0[0] == row[1] }
    }
    let infractions = try await bench.store.rows(of: "infraction").filter { row in
      inspections.contains { $0[0] == row[0] }
    }
    for (table, rows) in [
      ("establishment", establishments), ("inspection", inspections), ("infraction", infractions),
    ] {
      try expectEqual(
        device.replica.rows(of: table), Set(rows), "the device's rows of \(table)", file: file, line: line)
    }
  }
}

extension Device {
  /// Table and columns of the parts of the last download.
  fileprivate var parts: [String] {
    items.filter(\.isPart).map { ([$0.table] + $0.columns).joined(separator: " ") }.sorted()
  }
}
