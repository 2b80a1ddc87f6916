import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire

extension HostConfiguration {
  /// The folder of the server's snapshots; nil: it offers none, or its storage makes none.
  func snapshotFolder(of store: any ServerStore) throws -> (any SnapshotFolder)? {
    guard let options = server?.snapshots, let store = store as? any SnapshotServerStore else { return nil }
    return try store.snapshotFolder(at: options.path)
  }
}

extension Command {
  static let serverSnapshots = Command(
    "server snapshots", "server: the files that new devices get in the place of rows",
    discussion: """
      Lists the snapshots that the server keeps, newest first (server.snapshots in the configuration). The server may be running;
      --url asks a server elsewhere.
      """, options: [.url]
  ) { invocation in
    let list: [JSONValue]
    if let elsewhere = try invocation.administration() {
      list = try await elsewhere.call("GET", "/admin/v1/snapshots")["snapshots"]?.array ?? []
      await elsewhere.close()
    } else {
      let (_, folder) = try invocation.snapshots()
      list = try folder.list().map(\.json)
    }
    invocation.terminal.json(["snapshots": .array(list)])
    if list.isEmpty { invocation.terminal.say("there are no snapshots yet") }
    for snapshot in list {
      let (rows, size) = (snapshot["rows"]?.integer ?? 0, snapshot["bytes"]?.integer ?? 0)
      let commit = snapshot["commit"]?.array?.first?.integer ?? 0
      invocation.terminal.say(
        "\(visible(snapshot["group"]?.string ?? ""))  \(grouped(rows)) rows  \(bytes(size))  commit \(commit)  \(snapshot["id"]?.string ?? "")"
      )
    }
    return 0
  }

  static let serverSnapshotsMake = Command(
    "server snapshots make", "server: makes a snapshot of a group now",
    discussion: """
      Of what somebody without limits sees. Others' are made when their devices ask. The server may be running.
      """, arguments: ["GROUP"], options: [.url]
  ) { invocation in
    let group = invocation.arguments[0]
    let made: JSONValue
    if let elsewhere = try invocation.administration() {
      made =
        try await elsewhere.call("POST", "/admin/v1/snapshots", body: ["group": .string(group)])["made"] ?? .null
      await elsewhere.close()
    } else {
      let (configuration, folder) = try invocation.snapshots()
      try configuration.schema.checkSnapshots(of: group)
      let store = try Host.makeServerStore(configuration)
      made = try await invocation.audited("snapshot.make", group, on: store) {
        let opening = try await store.open(ServerSetup(schema: configuration.schema))
        guard let options = configuration.server?.snapshots else { throw noSnapshots }
        let compression = try options.compression.make()
        let order = SnapshotOrder(
          schema: configuration.schema, server: opening.serverID, incarnation: opening.incarnation, group: group,
          scope: ReadScope(Principal(name: "")), coding: SnapshotSettings(compression: compression).coding,
          bytesMax: options.bytesMax, clock: SystemClock(), random: SystemRandom())
        return try await folder.make(order) { try await store.page($0) }.json
      }
      await store.close()
    }
    invocation.terminal.json(["made": made])
    let (rows, size) = (made["rows"]?.integer ?? 0, made["bytes"]?.integer ?? 0)
    invocation.terminal.say("made a snapshot of \(visible(group)): \(grouped(rows)) rows, \(bytes(size))")
    return 0
  }

  static let serverSnapshotsDelete = Command(
    "server snapshots delete", "server: removes a snapshot",
    discussion: "Devices that are fetching it get it whole. The server may be running.", arguments: ["ID"],
    options: [.url]
  ) { invocation in
    let id = invocation.arguments[0]
    if let elsewhere = try invocation.administration() {
      _ = try await elsewhere.call("DELETE", "/admin/v1/snapshots/\(id)")
      await elsewhere.close()
    } else {
      let (_, folder) = try invocation.snapshots()
      guard try folder.list().contains(where: { $0.id == id }) else {
        throw SalvorError(.notFound, "There is no snapshot of this ID. salvor server snapshots lists them.")
      }
      try folder.remove(id)
    }
    invocation.terminal.json(["deleted": .string(id)])
    invocation.terminal.say("removed the snapshot \(id)")
    return 0
  }
}

private let noSnapshots = SalvorError(
  .usage,
  "This server offers no snapshots: its configuration has no server.snapshots, or its storage makes none. Write snapshots: {} into the section server."
)

extension Invocation {
  fileprivate func snapshots() throws -> (HostConfiguration, any SnapshotFolder) {
    let configuration = try readConfiguration([.server]).get()
    guard let folder = try configuration.snapshotFolder(of: try Host.makeServerStore(configuration)) else {
      throw noSnapshots
    }
    return (configuration, folder)
  }
}
