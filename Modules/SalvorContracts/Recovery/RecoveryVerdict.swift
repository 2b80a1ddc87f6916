import SalvorClientEngine
import SalvorModel
import SalvorRecovery
import SalvorStorage

/// What an application and a person see of a device, to be compared.
struct DeviceView: Sendable, Hashable {
  var rows: [String: [Row]] = [:]
  /// Without their attempts, and what waits without its state: an upload under way becomes one of unknown outcome.
  var requests: [QueuedRequest] = []
  var settings = DeviceSettings()
}

extension RecoveryWorld {
  private static let synchronized = ["site", "visit", "ticket"]
  private static let anywhere = Set(RequestState.allCases)

  func view() async throws -> DeviceView {
    var view = DeviceView()
    for table in Self.synchronized + ["draft"] { view.rows[table] = try await device.rows(of: table) }
    view.settings = try await device.deviceSettings()
    view.requests = try await device.requests(in: Self.anywhere, after: nil, limit: 1000).map { request in
      var request = request
      request.state = [.queued, .sent, .unknownOutcome].contains(request.state) ? .queued : request.state
      // What attempts to sync leave is no change of the request.
      request.waitsFor = QueuedRequest.WaitsFor(request.state)
      request.attempts = 0
      (request.since, request.lastAttempt, request.nextAttempt) = (nil, nil, nil)
      return request
    }
    return view
  }

  /// A recovery has come to its end: both sides, the archive and what never leaves the device are as promised.
  ///
  /// - Parameter mayBeLostAgain: the server was restored once more; what it had acknowledged meanwhile is in the archive.
  func expectRecovered(_ story: RecoveryStory, mayBeLostAgain: Bool = false) async throws {
    let guarantees = subject.strategy.guarantees
    try await expectEqualRows()
    let archive = try await device.requests(in: [.refused, .blocked, .displaced, .kept], after: nil, limit: 1000)
    let kept = archive.filter { $0.state == .kept }
    let what = "\(story.reason.rawValue), \(story.work.rawValue)"
    for write in story.unsynced {
      let isThere = try await isOnServer(write)
      let isArchived = kept.contains { $0.holds(write) }
      switch guarantees.unsyncedChanges {
      case .kept, .uploaded:
        try expect(
          isThere || (mayBeLostAgain && isArchived),
          "\(what): the change of \(write.row) is not on the server; it is declared \(guarantees.unsyncedChanges.rawValue)"
        )
      case .archived:
        try expect(
          isArchived || (mayBeLostAgain && isThere),
          "\(what): the change of \(write.row) is not in the archive with its values; it is declared archived")
      case .untouched: break
      }
    }
    for write in story.idle where guarantees.unsyncedChanges != .untouched {
      // Sent as one of the lost version, it stands there against whoever offers the row.
      let isThere = try await isOnServer(write)
      try expect(
        kept.contains { $0.holds(write) } || (isThere && guarantees.unsyncedChanges != .archived),
        "\(what): the delete of \(write.row), which the server has lost, is neither acknowledged nor in the archive")
    }
    for write in story.refused + story.acknowledged {
      let isThere = try await isOnServer(write)
      try expect(
        isThere || archive.contains { $0.holds(write) },
        "\(what): the change of \(write.row) is neither on the server nor in the archive")
    }
    if !mayBeLostAgain {
      for write in story.standing {
        let isThere = try await isOnServer(write)
        try expect(isThere, "\(what): \(write.row) is not as another program left it: an upload was applied twice")
      }
    }
    try await expectLocalRows(archive)
    try await expectSettings()
    try expectEqual(try await device.status().queued, 0, "\(what): the requests that still wait after a quiet sync")
    try expectEqual(try await client.status().recovery.state, .none, "\(what): the state after a quiet sync")
  }

  /// A file that nobody could read was set aside: the new one has what the server has.
  func expectMadeAnew(_ story: RecoveryStory) async throws {
    try await expectEqualRows()
    for write in story.acknowledged {
      try expect(try await isOnServer(write), "the change of \(write.row) is not on the server any more")
    }
    try expectEqual(try await device.rows(of: "draft"), [], "client-only rows of a file that nobody could read")
    try expectEqual(try await client.status().recovery.state, .none, "the state after a quiet sync")
  }

  /// Whatever was cut, the device did not recover twice for one reason.
  func expectOneRecovery(_ reason: RecoveryReason) async throws {
    let done = try await device.recoveries(limit: 100).filter {
      $0.reason == reason && $0.strategy == subject.strategy.name
    }
    try expectEqual(done.count, 1, "\(reason.rawValue): the recoveries of one demand")
  }

  /// Nothing was done to the device: a copy was made and a person is waited for.
  func expectUntouched(_ before: DeviceView, _ what: String) async throws {
    try expectEqual(try await view(), before, "\(what): the rows and requests of a device that waits for a person")
    let status = try await client.status()
    try expectEqual(status.recovery.state, .required, "\(what): the state of a device that waits for a person")
    try expect(status.recovery.token?.isEmpty == false, "\(what): there is no token for a person")
    let copies = try await device.backups().filter { $0.content == .copy }
    try expect(!copies.isEmpty, "\(what): there is no copy for a person")
  }

  /// Rows of both sides are the same, but for those that a refused request shows.
  private func expectEqualRows() async throws {
    let inError = try await device.requests(in: [.refused, .blocked], after: nil, limit: 1000)
    for table in Self.synchronized {
      let own = Set(inError.filter { $0.table == table }.map(\.key))
      let here = try await device.rows(of: table).filter { !own.contains([$0[0]]) }
      let there = try await server.rows(of: table).filter { !own.contains([$0[0]]) }
      try expectEqual(here, there, "the rows of \(table) on the device, compared with the server's")
    }
  }

  private func isOnServer(_ write: ApplicationWrite) async throws -> Bool {
    let (name, key) = write.row
    guard let table = ContractSchemas.recovery.table(name) else { return false }
    let row = try await server.rows(of: name).first { [$0[0]] == key }
    guard let row else { return write.isDelete }
    return !write.isDelete
      && write.values.allSatisfy { value in table.columnIndex(value.name).map { row[$0] } == value.value }
  }

  private func expectSettings() async throws {
    let declared = subject.strategy.guarantees.settings
    let stay = declared == .kept || declared == .untouched
    try expectEqual(
      try await device.deviceSettings(), stay ? Self.settings : DeviceSettings(),
      "subscriptions and settings, declared \(declared.rawValue)")
  }

  private func expectLocalRows(_ archive: [QueuedRequest]) async throws {
    let rows = try await device.rows(of: "draft")
    switch subject.strategy.guarantees.clientOnlyTables {
    case .kept, .untouched: try expectEqual(rows.map { $0[0] }, ["d1"], "client-only rows, declared to stay")
    case .lost: try expectEqual(rows, [], "client-only rows, declared lost")
    case .archived:
      try expectEqual(rows, [], "client-only rows, declared archived")
      try expect(archive.contains { $0.table == "draft" }, "client-only rows are not in the archive")
    }
  }
}

extension QueuedRequest {
  /// Whether this entry has what the application wrote, with every value.
  fileprivate func holds(_ write: ApplicationWrite) -> Bool {
    guard table == write.row.table, key == write.row.key else { return false }
    return write.isDelete ? operation == .delete : write.values.allSatisfy(after.contains)
  }
}
