import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// Snapshots in the place of first downloads (docs/architecture/snapshots.md).
extension ServerEngine {
  /// A begin is answered with so many at most: a device opens them all at once.
  private static let offersMax = 8

  /// Who asks for the rows of groups, and what it takes or holds of them as files.
  struct SnapshotQuestion {
    var taking: SnapshotTaking?
    var groups: [BeginMessage.Group]
    /// Nil: each group's own.
    var subscriptions: ResolvedSubscriptions?
    var principal: Principal
  }

  func question(_ session: SessionTable.Session) -> SnapshotQuestion {
    let message = session.begin.message
    return SnapshotQuestion(
      taking: message.snapshot, groups: message.groups, subscriptions: message.subscriptions,
      principal: session.principal)
  }

  /// What stands in the place of the pages; empty: the rows do.
  func snapshotOffers(_ session: SessionTable.Session) async throws -> [SnapshotOffer] {
    let message = session.begin.message
    guard message.position == nil, message.compare.isEmpty, message.compared == nil else { return [] }
    return try await snapshotOffers(question(session))
  }

  func snapshotOffers(_ question: SnapshotQuestion) async throws -> [SnapshotOffer] {
    guard let shelf else { return [] }
    let offers = try await snapshots(for: question, orders: true).map { try offer($0, shelf) }
    metrics.snapshotsOffered.add(Int64(offers.count))
    return offers
  }

  /// The files that there are for whoever asks.
  ///
  /// - Parameter orders: what is missing or too old is made beside.
  func snapshots(for question: SnapshotQuestion, orders: Bool) async throws -> [Snapshot] {
    guard let shelf, let taking = question.taking, taking.takes.contains(shelf.settings.compression.token),
      taking.held.isEmpty
    else { return [] }
    var all: [Snapshot] = []
    for group in question.groups where group.cursor == nil && all.count < Self.offersMax {
      guard shelf.settings.personal || !configuration.schema.isPersonal(group.name) else { continue }
      let scope = ReadScope(question.principal, question.subscriptions ?? group.subscriptions)
      let found = try await snapshot(of: group.name, for: scope, on: shelf, orders: orders)
      if let found, found.coding == shelf.settings.compression.token { all.append(found) }
    }
    return all
  }

  private func snapshot(
    of group: String, for scope: ReadScope, on shelf: SnapshotShelf, orders: Bool
  ) async throws -> Snapshot? {
    guard let store = configuration.store as? any RecoveringServerStore else { return nil }
    guard let digest = try await store.scopes(of: [group], for: scope)[group] else { return nil }
    let place = SnapshotShelf.Place(group: group, scope: digest)
    guard orders else { return try await shelf.standing(place) }
    return try await shelf.find(place, for: scope) { try await store.rowCount(of: [group], for: scope) }
  }

  private func offer(_ snapshot: Snapshot, _ shelf: SnapshotShelf) throws -> SnapshotOffer {
    // The same for all who ask within an hour: a cache on the way keeps the file once.
    let life = shelf.settings.linkMilliseconds
    let step = max(1, min(3_600_000, life / 8))
    let expires = (configuration.clock.now() + life + step - 1) / step * step
    let signature = try shelf.folder.signature(of: signed(snapshot.id, snapshot.scope, expires))
    let query = "expires=\(expires)&scope=\(percentEncoded(snapshot.scope))&signature=\(signature)"
    return SnapshotOffer(
      id: snapshot.id, group: snapshot.group, commit: snapshot.commit, scope: snapshot.scope, coding: snapshot.coding,
      bytes: snapshot.bytes, size: snapshot.size, tables: snapshot.tables,
      link: "/v1/snapshots/\(snapshot.id)?\(query)", url: shelf.settings.url.map { "\($0)/\(snapshot.id)?\(query)" })
  }

  func signed(_ id: String, _ scope: String, _ expires: Int64) -> String { "\(id)\n\(scope)\n\(expires)" }

  /// The groups as the pages are made from: a group whose snapshot the device holds goes on from its commit. One that this
  /// server cannot go on from comes by rows, and says so by its tables that come whole.
  func held(_ question: SnapshotQuestion) async throws -> (groups: [GroupState], compared: ComparedTables?) {
    var groups = question.groups.map(\.state)
    guard let store = configuration.store as? any SnapshotServerStore, let held = question.taking?.held else {
      return (groups, nil)
    }
    var lowest: Commit?
    for snapshot in held {
      guard let place = groups.firstIndex(where: { $0.name == snapshot.group && $0.cursor == nil }),
        try await store.changes(since: snapshot.commit, limit: 0) != nil
      else { continue }
      groups[place].cursor = snapshot.commit
      groups[place].scopeDigest = snapshot.scope
      groups[place].subscriptions = question.subscriptions ?? groups[place].subscriptions
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
