import SalvorModel
import SalvorStorage

/// What waits on the device when the recovery begins.
enum UnsyncedWork: String, Sendable, CaseIterable {
  case nothing = "nothing waits"
  case queued = "changes wait"
  case unsent = "an upload that never arrived"
  case unanswered = "an upload whose answer was lost"
  case refused = "a refused request"
}

/// What was written before a recovery, and what must have become of it afterwards.
struct RecoveryStory: Sendable {
  var reason: RecoveryReason
  var work: UnsyncedWork
  /// The device's changes that no answer has settled: to be found where the strategy's guarantee says.
  var unsynced: [ApplicationWrite] = []
  /// What the server refused: to be found in the archive, or on the server.
  var refused: [ApplicationWrite] = []
  /// What the server acknowledged and may have lost: to be found on the server, or in the archive.
  var acknowledged: [ApplicationWrite] = []
  /// What the server's rows must show: an upload that is applied twice would undo it.
  var standing: [ApplicationWrite] = []
  /// Deletes of rows that the server has lost: there is nothing left to do, and they are in the archive.
  var idle: [ApplicationWrite] = []
}

extension RecoveryWorld {
  private static let work: [ApplicationWrite] = [
    .update("site", ["s3"], ["seats": 7]), .insert("site", ["id": "local", "name": "made offline", "city": "Guelph"]),
    .insert("visit", ["id": "v1", "site_id": "local", "note": "offline"]), .delete("site", ["s7"]),
  ]
  private static let upload: [ApplicationWrite] = [
    .update("site", ["s2"], ["seats": 41]), .insert("site", ["id": "sent", "name": "sent once", "city": "Guelph"]),
  ]
  private static let others: [ApplicationWrite] = [
    .update("site", ["s4"], ["name": "of another program"]), .delete("site", ["s6"]),
    .insert("site", ["id": "new", "name": "of another program", "city": "Ottawa"]),
  ]
  /// Chosen before anything happens.
  static let settings = DeviceSettings(
    settings: ["city": "Guelph"],
    subscriptions: [
      Subscription(target: "site", parameters: ["city": .value("Guelph"), "seats": .value(40)]),
      Subscription(target: "site", parameters: ["city": .setting("city")]),
    ], subscribed: ["visit"])
  private static let overwrite = ApplicationWrite.update("site", ["s2"], ["seats": 1000])

  private static func rows(_ sites: Range<Int>) -> [ApplicationWrite] {
    sites.map { number in
      ApplicationWrite.insert(
        "site", ["id": .text("s\(number)"), "name": .text("Site \(number)"), "city": "Toronto", "seats": 40])
    } + [.insert("visit", ["id": "v0", "site_id": "s0"]), .insert("ticket", ["id": 1, "title": "of the server"])]
  }

  /// Brings device and server to where the next sync finds `reason`, with `work` waiting.
  func tell(_ reason: RecoveryReason, _ work: UnsyncedWork) async throws -> RecoveryStory {
    var story = RecoveryStory(reason: reason, work: work)
    try await server.write(Self.rows(0..<10))
    try await write([.insert("draft", ["id": "d1", "body": "never leaves the device"])])
    try await device.setDeviceSettings(Self.settings)
    try await syncs()
    try await write([.update("site", ["s0"], ["seats": 1])])
    try await syncs()
    switch reason {
    case .serverRestored: try await tellRestored(&story)
    case .serverReplaced:
      try await wait(&story)
      try await replaceServer()
      try await server.write(
        Self.rows(0..<9) + [.insert("site", ["id": "other", "name": "of the other server", "city": "Toronto"])])
      story.acknowledged.append(.insert("site", ["id": "s9", "name": "Site 9"]))
    case .clientRewound: try await tellRewound(&story)
    case .historyTrimmed: try await tellTrimmed(&story)
    case .schemaIncompatible:
      try await wait(&story)
      try await overwriteWhatWasSent(&story)
      try await changeSchema()
    case .operatorRequested: try await tellDemanded(&story)
    case .localCorruption:
      try await wait(&story)
      try await server.write(Self.others)
    }
    return story
  }

  private func tellDemanded(_ story: inout RecoveryStory) async throws {
    try await copyServer()
    let late = ApplicationWrite.insert("site", ["id": "late", "name": "acknowledged after the copy", "city": "Guelph"])
    try await write([late])
    try await syncs()
    try await wait(&story)
    try await server.write(Self.others)
    try await overwriteWhatWasSent(&story)
    try await demandReset()
    story.acknowledged.append(late)
  }

  private func tellRestored(_ story: inout RecoveryStory) async throws {
    try await copyServer()
    let lost = ApplicationWrite.insert("site", ["id": "lost", "name": "acknowledged, then lost", "city": "Guelph"])
    let doomed = ApplicationWrite.insert(
      "site", ["id": "doomed", "name": "acknowledged, lost, deleted", "city": "Ajax"])
    try await write([lost, doomed, .update("site", ["s1"], ["seats": 2])])
    try await syncs()
    try await server.write([.insert("site", ["id": "gone", "name": "downloaded, then lost", "city": "Guelph"])])
    try await syncs()
    try await wait(&story)
    story.acknowledged += [lost, .insert("site", ["id": "gone", "name": "downloaded, then lost"])]
    if story.work == .nothing {
      story.acknowledged.append(doomed)
    } else {
      // On what is about to be lost: a child of it, a change of it, a delete of it.
      let work: [ApplicationWrite] = [
        .insert("visit", ["id": "v2", "site_id": "gone", "note": "of a lost site"]),
        .update("site", ["lost"], ["seats": 3]),
      ]
      story.idle = [.delete("site", ["doomed"])]
      try await write(work + story.idle)
      story.unsynced += work
    }
    try await restoreServer()
  }

  private func tellRewound(_ story: inout RecoveryStory) async throws {
    try await wait(&story)
    _ = try await device.makeCopy(id: "story", reason: "of the story")
    try await syncs()
    if !Self.isUpload(story.work) {
      try await server.write(Self.others)
    } else {
      try await server.write([Self.overwrite])
      story.expectOverwrite(Self.overwrite)
    }
    let later = ApplicationWrite.insert("site", ["id": "later", "name": "after the copy", "city": "Guelph"])
    try await write([later])
    try await syncs()
    try await client.restoreBackup("story")
    story.standing.append(later)
    guard story.work != .nothing else { return }
    let offline = ApplicationWrite.insert("site", ["id": "offline", "name": "after the restore", "city": "Guelph"])
    try await write([offline])
    story.unsynced.append(offline)
  }

  private func tellTrimmed(_ story: inout RecoveryStory) async throws {
    // A refusal comes with a download, after which nothing would be trimmed.
    if story.work == .refused { try await wait(&story) }
    try await server.write(Self.others)
    _ = try await server.sweep()
    let boundary = SystemClock().now() + 1
    try await SystemClock().sleep(milliseconds: 3)
    if story.work != .refused { try await wait(&story) }
    try await overwriteWhatWasSent(&story)
    _ = try await server.sweep()
    try await server.trim(before: boundary)
  }

  private static func isUpload(_ work: UnsyncedWork) -> Bool { work == .unsent || work == .unanswered }

  /// What waits when the recovery begins.
  private func wait(_ story: inout RecoveryStory) async throws {
    switch story.work {
    case .nothing: return
    case .queued: break
    case .unsent, .unanswered:
      try await write(Self.upload)
      strikes.arm(story.work == .unsent ? .loseRequest(1) : .loseAnswer(1))
      let report = await sync()
      strikes.arm(nil)
      try expectEqual(report.error?.code, .unreachable, "the error of a sync that is cut")
      story.unsynced += Self.upload
    case .refused:
      let write = ApplicationWrite.insert("ticket", ["id": 7, "title": "of the device"])
      try await server.write([.insert("ticket", ["id": 7, "title": "of the server"])])
      try await self.write([write])
      try await syncs(isRefused: true)
      story.refused.append(write)
    }
    try await write(Self.work)
    story.unsynced += Self.work
  }

  /// What an upload has brought is changed by another program: a second time it would undo that.
  private func overwriteWhatWasSent(_ story: inout RecoveryStory) async throws {
    guard story.work == .unanswered else { return }
    try await server.write([Self.overwrite])
    story.expectOverwrite(Self.overwrite)
  }

  private func syncs(isRefused: Bool = false) async throws {
    let report = await sync()
    if let error = report.error { throw ContractFailure("a sync before anything has happened ends with \(error)") }
    try expectEqual(report.outcome, .synchronized, "the outcome of a sync before anything has happened")
    try expectEqual(report.refused > 0, isRefused, "whether something was refused before anything has happened")
  }
}

extension RecoveryStory {
  fileprivate mutating func expectOverwrite(_ write: ApplicationWrite) {
    standing.append(write)
    unsynced.removeAll { $0.row.table == write.row.table && $0.row.key == write.row.key }
  }
}

extension ApplicationWrite {
  /// The table and the key of the row it writes, by the suite's schema.
  var row: (table: String, key: Key) {
    switch self {
    case .insert(let table, let values): (table, values.filter { $0.name == "id" }.map(\.value))
    case .update(let table, let key, _), .delete(let table, let key): (table, key)
    case .deferReferences, .beginRequest, .endRequest: ("", [])
    }
  }

  var values: [NamedValue] {
    switch self {
    case .insert(_, let values), .update(_, _, let values): values
    default: []
    }
  }

  var isDelete: Bool { if case .delete = self { true } else { false } }
}
