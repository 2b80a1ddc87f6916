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
