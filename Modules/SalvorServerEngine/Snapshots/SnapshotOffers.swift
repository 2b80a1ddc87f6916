import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Snapshots in the place of first downloads (docs/architecture/snapshots.md).
extension ServerEngine {
  /// A begin is answered with so many at most: a device opens them all at once.
  private static let offersMax = 8

  /// What stands in the place of the pages; empty: the rows do.
  func snapshotOffers(_ session: SessionTable.Session) async throws -> [SnapshotOffer] {
    let message = session.begin.message
    guard let shelf, let taking = message.snapshot, taking.takes.contains(shelf.settings.compression.token),
      taking.held.isEmpty, message.position == nil, message.compare.isEmpty, message.compared == nil
    else { return [] }
    var offers: [SnapshotOffer] = []
    for group in message.groups where group.cursor == nil && offers.count < Self.offersMax {
      guard shelf.settings.personal || !configuration.schema.isPersonal(group.name) else { continue }
      let scope = ReadScope(session.principal, message.subscriptions ?? group.subscriptions)
      let found = try await snapshot(of: group.name, for: scope, on: shelf)
      guard let found, found.coding == shelf.settings.compression.token else { continue }
      offers.append(try offer(found, shelf))
    }
    metrics.snapshotsOffered.add(Int64(offers.count))
    return offers
  }

  private func snapshot(
    of group: String, for scope: ReadScope, on shelf: SnapshotShelf
  ) async throws -> Snapshot? {
    guard let store = configuration.store as? any RecoveringServerStore else { return nil }
    guard let digest = try await store.scopes(of: [group], for: scope)[group] else { return nil }
    return try await shelf.find(SnapshotShelf.Place(group: group, scope: digest), for: scope) {
      try await store.rowCount(of: [group], for: scope)
    }
  }

  private func offer(_ snapshot: Snapshot, _ shelf: SnapshotShelf) throws -> SnapshotOffer {
    let expires = configuration.clock.now() + shelf.settings.linkMilliseconds
    let signature = try shelf.folder.signature(of: signed(snapshot.id, snapshot.scope, expires))
    return SnapshotOffer(
      id: snapshot.id, group: snapshot.group, commit: snapshot.commit, scope: snapshot.scope, coding: snapshot.coding,
      bytes: snapshot.bytes, size: snapshot.size, tables: snapshot.tables,
      link:
        "/v1/snapshots/\(snapshot.id)?expires=\(expires)&scope=\(percentEncoded(snapshot.scope))&signature=\(signature)"
    )
  }

  func signed(_ id: String, _ scope: String, _ expires: Int64) -> String { "\(id)\n\(scope)\n\(expires)" }

  /// The groups as the pages are made from: a group whose snapshot the device holds goes on from its commit. One that this
  /// server cannot go on from comes by rows, and says so by its tables that come whole.
  func held(_ session: SessionTable.Session) async throws -> (groups: [GroupState], compared: ComparedTables?) {
    let message = session.begin.message
    var groups = message.groups.map(\.state)
    guard let store = configuration.store as? any SnapshotServerStore, let held = message.snapshot?.held else {
      return (groups, nil)
    }
    var lowest: Commit?
    for snapshot in held {
      guard let place = groups.firstIndex(where: { $0.name == snapshot.group && $0.cursor == nil }),
        try await store.changes(since: snapshot.commit, limit: 0) != nil
      else { continue }
      groups[place].cursor = snapshot.commit
      groups[place].scopeDigest = snapshot.scope
      groups[place].subscriptions = message.subscriptions ?? groups[place].subscriptions
      if lowest.map({ snapshot.commit.number < $0.number }) ?? true { lowest = snapshot.commit }
    }
    // What this device has uploaded since is in no file.
    return (groups, lowest.map { ComparedTables(head: $0, ownUpTo: $0.number) })
  }
}

/// Everything but letters, digits, `-`, `.`, `_` and `~` as `%XX`.
private func percentEncoded(_ text: String) -> String {
  text.utf8.map { byte -> String in
    let isPlain = (48...57).contains(byte) || (65...90).contains(byte) || (97...122).contains(byte)
    return isPlain || [0x2D, 0x2E, 0x5F, 0x7E].contains(byte) ? String(UnicodeScalar(byte)) : "%" + hexadecimal([byte])
  }.joined()
}
