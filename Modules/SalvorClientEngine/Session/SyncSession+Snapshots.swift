import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Groups that come as files (docs/architecture/snapshots.md).
extension SyncSession {
  private var taking: (any SnapshotTakingClientStore)? { store as? any SnapshotTakingClientStore }

  /// What a begin says of snapshots; nil: nothing.
  func snapshotTaking(_ message: BeginMessage) async throws -> SnapshotTaking? {
    guard taking != nil else { return nil }
    let new = Set(message.groups.filter { $0.cursor == nil }.map(\.name))
    let held = snapshots.filter { new.contains($0.group) }.map {
      SnapshotTaking.Held(group: $0.group, commit: $0.commit, scope: $0.scope)
    }
    if !held.isEmpty { return SnapshotTaking(held: held) }
    guard takesSnapshots, !new.isEmpty else { return nil }
    return await SnapshotTransfer(configuration: configuration, progress: progress).taking
  }

  /// The snapshot that the application brought along, where its group comes for the first time. One that cannot be used is said,
  /// and is as if it were not there; so is one that the server cannot go on from.
  mutating func openSeed(_ message: BeginMessage) async throws {
    guard let path = configuration.seed, let taking, !hasTriedSeed, takesSnapshots,
      message.groups.contains(where: { $0.cursor == nil })
    else { return }
    hasTriedSeed = true
    guard await taking.takesSnapshots else {
      return passOverSeed("A database that is encrypted, or in memory, takes no file. Its rows come from the server.")
    }
    do {
      let offer = try await taking.openSeed(path)
      guard message.groups.contains(where: { $0.name == offer.group && $0.cursor == nil }) else { return }
      snapshots.append(offer)
      seed = offer
    } catch let error as SalvorError where error.code == .snapshotUnusable {
      passOverSeed(error.message)
    }
  }

  /// After a download that might have begun from it.
  mutating func noteSeed(_ applied: ApplyReport) {
    defer { seed = nil }
    guard let seed, applied.snapshots == 0 else { return }
    passOverSeed(
      "The server cannot go on from its rows of \(seed.group): it is another server, or has other tables, or this device sees other rows, or the file is older than what the server remembers of deletes. The group comes by rows."
    )
  }

  /// Checks the open files against a SyncConfig that came. They were examined for `tables`, and the server's answer continues from their rows.
  /// If the SyncConfig changed the tables of a file, the device uses no file and starts the download again.
  mutating func passOverSnapshots(madeFor tables: [Table]) async throws {
    if snapshots.isEmpty { return }
    let now = try await store.history().tables
    let isUnfit = snapshots.contains { snapshot in
      tables.contains { table in
        table.group == snapshot.group && !now.contains { $0.takesRows(ofFileFor: table) }
      }
    }
    guard isUnfit else { return }
    await taking?.closeSnapshots(removing: true)
    snapshots = []
    beginsAnew = true
    if let seed {
      passOverSeed(
        "The server has renamed or dropped tables or columns of \(seed.group) since this application's schema was written. The group comes by rows."
      )
    }
  }

  /// An exchange that begins from the open files, if there are any. They may have rows that were changed since, and name large values that the
  /// server has no more: then the device uses no file, and starts the download again.
  mutating func exchangeWithFiles(_ session: inout ClientSession, _ groups: Set<String>?) async throws {
    do {
      try await exchangeAdopting(&session, groups)
    } catch let error as SalvorError where error.code == .blobGone && !snapshots.isEmpty {
      try await store.discardStaged()
      await passOverSnapshotsWithoutBlobs()
    }
  }

  private mutating func passOverSnapshotsWithoutBlobs() async {
    let names = snapshots.map(\.group).sorted().joined(separator: ", ")
    await taking?.closeSnapshots(removing: true)
    (snapshots, takesSnapshots, beginsAnew) = ([], false, true)
    let why =
      "The server no longer has a large value that its rows of \(names) name: they were changed or deleted after the file was made. The group comes by rows."
    if seed != nil { return passOverSeed(why) }
    configuration.log("snapshot-unusable: \(why)")
    report.notices.append("The file of a snapshot is passed over. \(why)")
  }

  /// What else the answer has is not read.
  mutating func leave(_ pages: inout PageQueue, _ reader: ResponseReader) async {
    await pages.end()
    await reader.close()
    report.bytesReceived += reader.bytesReceived
  }

  private mutating func passOverSeed(_ why: String) {
    configuration.log("snapshot-unusable: client.seed: \(why)")
    report.notices.append("The file of client.seed is passed over. \(why)")
    seed = nil
  }

  /// Fetches what is offered and examines it. What cannot be used comes by rows.
  mutating func fetchSnapshots(_ offers: [SnapshotOffer]) async throws {
    takesSnapshots = false
    let transfer = SnapshotTransfer(configuration: configuration, progress: progress)
    if try await transfer.fetch(offers, counting: &report, received: &hasMadeProgress) { snapshots = offers }
  }

  /// Nothing examined is kept for a later session; what has come of a file is.
  func closeSnapshots() async {
    if takesSnapshots, snapshots.isEmpty { return }
    await taking?.closeSnapshots(removing: false)
  }
}

extension Table {
  /// Rows with the columns of `before` are rows of this table; what it has more has its default.
  fileprivate func takesRows(ofFileFor before: Table) -> Bool {
    name == before.name && group == before.group && primaryKey == before.primaryKey
      && before.columns.allSatisfy { column in
        columns.contains {
          $0.name == column.name && $0.type == column.type && ($0.nullable || !column.nullable)
        }
      }
  }
}
