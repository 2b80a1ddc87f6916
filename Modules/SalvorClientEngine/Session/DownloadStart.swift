import SalvorModel
import SalvorStorage
import SalvorWire

/// What a download starts from. A part of another one in staging is of no use to it.
struct DownloadStart {
  private let groups: [BeginMessage.Group]
  private let subscriptions: ResolvedSubscriptions?
  private let held: [SnapshotTaking.Held]

  init(_ message: BeginMessage) {
    groups = message.groups
    subscriptions = message.subscriptions
    held = message.snapshot?.held ?? []
  }

  /// Names it. Made when it is asked for: where nothing is staged, and nothing comes, nobody does.
  var name: String {
    let parts = groups.map(\.json) + [subscriptions?.json].compactMap { $0 }
    return digest(JSONValue.array(parts + (held.isEmpty ? [] : [SnapshotTaking(held: held).json])).bytes)
  }
}

extension ClientStore {
  /// What a begin tells where the server does not know enough of this device to answer it.
  func beginHistory() async throws -> BeginMessage.History {
    let history = try await history()
    return BeginMessage.History(
      sequences: history.olderSequences, incarnations: history.incarnations, commits: history.commits,
      tables: .array(history.tables.map(TableDefinition.json)))
  }
}
