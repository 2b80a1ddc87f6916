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
      let store = try Host.makeServerStore(configuration)
      made = try await invocation.audited("snapshot.make", group, on: store) {
        guard let options = configuration.server?.snapshots else { throw noSnapshots }
        let coding = SnapshotSettings(compression: try options.compression.make()).coding
        return try await invocation.makeSnapshot(of: group, configuration, store, in: folder, coding).json
      }
      await store.close()
    }
    invocation.terminal.json(["made": made])
    let (rows, size) = (made["rows"]?.integer ?? 0, made["bytes"]?.integer ?? 0)
    invocation.terminal.say("made a snapshot of \(visible(group)): \(grouped(rows)) rows, \(bytes(size))")
    return 0
  }

  static let serverSnapshotsExport = Command(
    "server snapshots export", "server: writes a snapshot of a group for an application to bring along",
    discussion: """
      FILE is a SQLite database for client.seed: a device that has nothing of the group yet takes its rows over from it, and
      gets what has changed since. A device ignores one whose commit the server does not know any more (retention.tombstones), or
      whose scope is not its own. Of what somebody without limits sees: whoever has the application has these rows.

        salvor server snapshots export reference app/reference.db
      """, arguments: ["GROUP", "FILE"]
  ) { invocation in
    let (group, file) = (invocation.arguments[0], invocation.arguments[1])
    guard !fileExists(file) else {
      throw SalvorError(.usage, "\(file) is there already. Name another file, or remove it.")
    }
    let (configuration, folder) = try invocation.snapshots()
    let store = try Host.makeServerStore(configuration)
    let made = try await invocation.audited("snapshot.export", group, on: store) {
      let made = try await invocation.makeSnapshot(
        of: group, configuration, store, in: folder, SnapshotCoding(token: "identity") { pieces, _ in pieces })
      defer { try? folder.remove(made.id) }
      try await folder.write(made, to: file)
      return made
    }
    await store.close()
    invocation.terminal.json(["file": .string(file), "rows": .integer(made.rows), "bytes": .integer(made.bytes)])
    invocation.terminal.say("wrote \(file): \(grouped(made.rows)) rows of \(visible(group)), \(bytes(made.bytes))")
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
      let (configuration, folder) = try invocation.snapshots()
      let store = try Host.makeServerStore(configuration)
      guard try folder.list().contains(where: { $0.id == id }) else {
        throw SalvorError(.notFound, "There is no snapshot of this ID. salvor server snapshots lists them.")
      }
      try await invocation.audited("snapshot.delete", id, on: store) { try folder.remove(id) }
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
  fileprivate func makeSnapshot(
    of group: String, _ configuration: HostConfiguration, _ store: any ServerStore, in folder: any SnapshotFolder,
    _ coding: SnapshotCoding
  ) async throws -> Snapshot {
    try configuration.schema.checkSnapshots(of: group)
    let opening = try await Host.open(store, configuration)
    let order = SnapshotOrder(
      schema: configuration.schema, server: opening.serverID, incarnation: opening.incarnation, group: group,
      scope: ReadScope(Principal(name: "")), coding: coding,
      bytesMax: configuration.server?.snapshots?.bytesMax ?? .max,
      clock: SystemClock(), random: SystemRandom())
    return try await folder.make(order) { try await store.page($0) }
  }

  fileprivate func snapshots() throws -> (HostConfiguration, any SnapshotFolder) {
    let configuration = try readConfiguration([.server]).get()
    guard let folder = try configuration.snapshotFolder(of: try Host.makeServerStore(configuration)) else {
      throw noSnapshots
    }
    return (configuration, folder)
  }
}
