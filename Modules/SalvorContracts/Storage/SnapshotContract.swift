import SalvorModel
import SalvorStorage
import SalvorWire

/// What stores are put through whose groups come as files (Snapshots.swift): a server's that makes them, and a client's that takes
/// them over.
public struct SnapshotSubject: Sendable {
  /// The server's must be `SnapshotServerStore`s and the client's `SnapshotTakingClientStore`s: others fail.
  public var stores: StorePairSubject
  /// The folder of each server's database; nil: beside the database.
  public var folder: @Sendable () throws -> String?

  /// By default the files of a server are beside its database.
  public init(_ stores: StorePairSubject, folder: @escaping @Sendable () throws -> String? = { nil }) {
    self.stores = stores
    self.folder = folder
  }
}

/// The rules of `SnapshotServerStore`, `SnapshotFolder` and `SnapshotTakingClientStore`.
///
/// ```swift
/// @Test(arguments: SnapshotContract.cases)
/// func keepsTheContract(_ rule: SnapshotContract.Case) async throws { try await rule.run(SnapshotSubject(stores)) }
/// ```
public enum SnapshotContract {
  /// One rule, for a pair of stores and the folder of the server's files.
  public typealias Case = ContractCase<SnapshotSubject>

  /// One rule each, on one server and two devices whose principals read one region.
  public static let cases: [Case] = rows + reach + folders + taking

  private static let group = "inspections"

  private static func on(
    _ name: String, _ body: @escaping @Sendable (inout SnapshotBench) async throws -> Void
  ) -> Case {
    Case(name, rule: "Snapshots.swift") { subject in
      var bench = try await SnapshotBench(subject, ContractSchemas.inspections, group)
      do {
        try await body(&bench)
      } catch {
        await bench.pair.close()
        throw error
      }
      await bench.pair.close()
    }
  }

  static let rows: [Case] = [
    on("a file has the rows that its scope sees, and no other; a device by it goes on like one by rows") { bench in
      let snapshot = try await bench.make(for: 0)
      let rows = try await bench.take(snapshot, on: 0)
      try expectEqual(rows.snapshots, 1, "the files taken over")
      // What stands on the device before anything else was fetched.
      for table in bench.pair.schema.tables(inGroup: group) {
        let wanted = try await bench.pair.scoped(table, bench.pair.clients[0].principal)
        try expectEqual(
          Set(try await bench.pair.clients[0].store.rows(of: table.name)), Set(wanted), "the rows of \(table.name)")
        let named = snapshot.tables.first { $0.table == table.name }
        try expectEqual(named?.count, Int64(wanted.count), "the rows of \(table.name) that the file names")
      }
      try await bench.pair.expectConverged(0)
      try await bench.pair.write(0, .update("inspection", ["i1"], ["date": "mine"]))
      try await bench.pair.server.write(.update("establishment", ["e1"], ["name": "theirs"]))
      try await bench.pair.expectConverged(0)
      try await bench.pair.expectConverged(1)
    },
    on("what was changed, deleted, made and moved since the file comes with it") { bench in
      let snapshot = try await bench.make(for: 0)
      try await bench.pair.server.write(
        .update("infraction", ["i1", 1], ["note": "later"]), .delete("inspection", ["i2"]),
        .insert("inspection", ["id": "i9", "establishment_id": "e1", "date": "new"]),
        .update("establishment", ["e3"], ["region": "US"]), .update("establishment", ["u1"], ["region": "EU"]))
      try await bench.take(snapshot, on: 0)
      try await bench.pair.expectConverged(0)
    },
    on("what was written on the device before the file stays, and goes up") { bench in
      let snapshot = try await bench.make(for: 0)
      try await bench.pair.write(
        0, .insert("establishment", ["id": "own", "name": "own", "region": "EU"]),
        .insert("establishment", ["id": "e1", "name": "mine", "region": "EU"]))
      try await bench.take(snapshot, on: 0)
      try await bench.pair.expectConverged(0)
      let names = try await bench.pair.server.store.rows(of: "establishment")
      try expect(names.contains { $0[0] == "own" }, "the row that was made on the device")
      try expect(names.contains { $0[0] == "e1" && $0[1] == "mine" }, "the row that was made on both sides")
    },
    on("a file of an empty group, and of one whose rows are all out of scope") { bench in
      try await bench.pair.server.write(
        .delete("establishment", ["e1"]), .delete("establishment", ["e2"]), .delete("establishment", ["e3"]))
      let snapshot = try await bench.make(for: 0)
      try expectEqual(snapshot.rows, 0, "the rows of the file")
      try await bench.take(snapshot, on: 0)
      try await bench.pair.expectConverged(0)
    },
  ]

  static let reach: [Case] = [
    on("what is newer than a commit is counted, up to a limit; an unknown commit has no count") { bench in
      let snapshot = try await bench.make(for: 0)
      let store = try bench.server
      try expectEqual(try await store.changes(since: snapshot.commit, limit: 100), 0, "the changes since the file")
      for number in 0..<5 {
        try await bench.pair.server.write(.update("inspection", ["i1"], ["date": .text("\(number)")]))
        // A store may count a row once for each commit.
        _ = try await bench.pair.server.store.sweep()
      }
      try expectEqual(try await store.changes(since: snapshot.commit, limit: 100), 5, "the changes since the file")
      try expectEqual(try await store.changes(since: snapshot.commit, limit: 3), 3, "the changes, no further than 3")
      let other = Commit(number: snapshot.commit.number, id: CommitID(from: SystemRandom()))
      try expectEqual(try await store.changes(since: other, limit: 100), nil, "the changes since an unknown commit")
    },
    on("a commit that the log does not reach back to any more has no count") { bench in
      let snapshot = try await bench.make(for: 0)
      let store = try bench.server
      try await bench.pair.server.write(.delete("infraction", ["i1", 1]))
      _ = try await store.sweep()
      try await bench.pair.server.write(.update("inspection", ["i1"], ["date": "x"]))
      _ = try await store.sweep()
      try await store.trim(before: .max)
      try expectEqual(try await store.changes(since: snapshot.commit, limit: 100), nil, "the changes since the file")
    },
  ]

  static let folders: [Case] = [
    on("a finished file is listed until it is removed, and is as long as it says") { bench in
      let folder = try bench.folder()
      try expectEqual(try folder.list(), [], "an empty folder")
      let snapshot = try await bench.make(for: 0)
      try expectEqual(try folder.list(), [snapshot], "the list")
      try expectEqual(try bench.folder().list(), [snapshot], "the list of another process")
      let bytes = try await bench.bytes(of: snapshot)
      try expectEqual(Int64(bytes.count), snapshot.bytes, "the length")
      let part = try await SnapshotBench.bytes(
        try expectSome(folder.open(snapshot, from: 10, count: 20, pieceBytes: 7), "the open file"))
      try expectEqual(part, Array(bytes[10..<30]), "a part")
      // Whoever reads it reads on.
      let open = try expectSome(folder.open(snapshot, from: 0, count: .max, pieceBytes: 4096), "the open file")
      let head = try await open.pieces() ?? []
      try folder.remove(snapshot.id)
      try expectEqual(head + (try await SnapshotBench.bytes(open)), bytes, "a file that was removed meanwhile")
      try expectEqual(try folder.list(), [], "the list")
      try expect(try folder.open(snapshot, from: 0, count: 1, pieceBytes: 1) == nil, "a removed file is not opened")
      try folder.remove(snapshot.id)
    },
    on("all files go at once, the one that is being made, too") { bench in
      let first = try await bench.make(for: 0)
      let (folder, other) = (try bench.folder(), try bench.folder())
      let made = try bench.order(for: 1)
      let store = try bench.server
      let hasRemoved = Mutex(false)
      try await expectError(.overloaded, "a file that was being made") {
        _ = try await folder.make(made) { request in
          if hasRemoved.withLock({ was in
            defer { was = true }; return !was
          }) {
            try other.removeAll()
          }
          return try await store.page(request)
        }
      }
      try expectEqual(try folder.list(), [], "the list")
      try expect(try folder.open(first, from: 0, count: 1, pieceBytes: 1) == nil, "a removed file is not opened")
      try folder.removeUnfinished()
      _ = try await bench.make(for: 0)
    },
    on("a signature is another one for each text, and the same in each process") { bench in
      let (folder, other) = (try bench.folder(), try bench.folder())
      let signature = try folder.signature(of: "one")
      try expectEqual(try other.signature(of: "one"), signature, "the signature of the same text")
      try expect(try folder.signature(of: "two") != signature, "the signature of another text")
      try expect(signature.utf8.count >= 32, "a signature that nobody guesses")
    },
  ]

  static let taking: [Case] = [
    on("a cut file goes on where it was, in another process, too; others' parts go") { bench in
      let snapshot = try await bench.make(for: 0)
      let offer = bench.offer(snapshot)
      let bytes = try await bench.bytes(of: snapshot)
      let half = bytes.count / 2
      try expectEqual(try await bench.client(0).snapshotsReceived([offer]), [offer.id: 0], "what is here at first")
      try await bench.client(0).keepSnapshot(Array(bytes[..<half]), of: offer, at: 0)
      try await bench.pair.restart(0)
      try expectEqual(try await bench.client(0).snapshotsReceived([offer]), [offer.id: Int64(half)], "what is here")
      try await bench.client(0).keepSnapshot(Array(bytes[half...]), of: offer, at: Int64(half))
      var other = offer
      other.id = String(repeating: "e", count: 64)
      try expectEqual(try await bench.client(0).snapshotsReceived([other]), [other.id: 0], "what is here of another")
      try expectEqual(try await bench.client(0).snapshotsReceived([offer]), [offer.id: 0], "what was given up")
    },
    on("a file that is not what was named is refused, nothing of it is taken over, and the group comes by rows") {
      bench in
      let snapshot = try await bench.make(for: 0)
      let bytes = try await bench.bytes(of: snapshot)
      var bit = bytes
      bit[bytes.count / 2] ^= 1
      for wrong in [bit, Array(bytes.dropLast(1)), []] {
        try await bench.pair.restart(0)
        let (offer, store) = (bench.offer(snapshot), try bench.client(0))
        _ = try await store.snapshotsReceived([offer])
        try await store.keepSnapshot(wrong, of: offer, at: 0)
        try await expectError(.snapshotUnusable, "a file that is another one") {
          try await store.openSnapshot(offer, decoding: SnapshotBench.plain, bytesMax: 1 << 30, as: nil)
        }
        try expectEqual(try await store.rows(of: "inspection"), [], "the rows")
      }
      try await bench.pair.restart(0)
      let (offer, store) = (bench.offer(snapshot), try bench.client(0))
      try await expectError(.snapshotUnusable, "more than was named") {
        try await store.keepSnapshot(bytes + [0], of: offer, at: 0)
      }
      try await store.keepSnapshot(bytes, of: offer, at: 0)
      try await expectError(.snapshotUnusable, "a database that is larger than the limit") {
        try await store.openSnapshot(offer, decoding: SnapshotBench.plain, bytesMax: 100, as: nil)
      }
      await store.closeSnapshots(removing: true)
      try await bench.pair.expectConverged(0)
    },
    on("a file that was closed is not taken over") { bench in
      let snapshot = try await bench.make(for: 0)
      try await bench.open(snapshot, on: 0)
      await (try bench.client(0)).closeSnapshots(removing: true)
      try expectEqual(
        try await bench.client(0).snapshotsReceived([bench.offer(snapshot)]), [snapshot.id: 0], "what is here")
      try await bench.pair.expectConverged(0)
    },
    on("a file whose group comes whole by rows after all counts for nothing") { bench in
      let snapshot = try await bench.make(for: 0)
      try await bench.pair.server.write(.delete("inspection", ["i1"]))
      try await bench.open(snapshot, on: 0)
      try await bench.pair.expectConverged(0)
    },
  ]
}

extension SnapshotContract {
  /// For a server and a client of different kinds, whose files are not each other's: the file is refused as one that means harm is,
  /// and the group comes by rows.
  public static func refusesOthersFiles(_ subject: SnapshotSubject) async throws {
    let bench = try await SnapshotBench(subject, ContractSchemas.inspections, group)
    let (snapshot, store) = (try await bench.make(for: 0), try bench.client(0))
    try await expectError(.snapshotUnusable, "a file of another kind of store") {
      try await bench.open(snapshot, on: 0)
    }
    try expectEqual(try await store.rows(of: "inspection"), [], "the rows")
    try expectEqual(await store.takesSnapshots, false, "whether it takes files after it")
    try await bench.pair.expectConverged(0)
    await bench.pair.close()
  }
}

/// A server and two devices of one region, and the server's snapshots.
struct SnapshotBench: Sendable {
  var pair: PairBench
  private let group: String
  private let path: String?

  static let plain = SnapshotCoding(token: "identity") { pieces, _ in pieces }

  init(_ subject: SnapshotSubject, _ schema: Schema, _ group: String) async throws {
    self.group = group
    path = try subject.folder()
    let region: [String: [Value]] = ["region": ["EU"]]
    pair = try await PairBench(
      subject.stores, schema,
      principals: [Principal(name: "anna", parameters: region), Principal(name: "ben", parameters: region)])
    try await pair.server.write(
      .insert("severity", ["id": 1, "name": "minor"]),
      .insert("establishment", ["id": "e1", "name": "e1", "region": "EU"]),
      .insert("establishment", ["id": "e2", "name": "e2", "region": "EU"]),
      .insert("establishment", ["id": "e3", "name": "e3", "region": "EU"]),
      .insert("establishment", ["id": "u1", "name": "u1", "region": "US"]),
      .insert("inspection", ["id": "i1", "establishment_id": "e1", "date": "d"]),
      .insert("inspection", ["id": "i2", "establishment_id": "e2", "date": "d"]),
      .insert("inspection", ["id": "i3", "establishment_id": "u1", "date": "d"]),
      .insert("infraction", ["inspection_id": "i1", "line": 1]),
      .insert("infraction", ["inspection_id": "i3", "line": 1]))
  }

  var server: any SnapshotServerStore {
    get throws {
      try expectSome(pair.server.store as? any SnapshotServerStore, "the server's store as a SnapshotServerStore")
    }
  }

  func client(_ index: Int) throws -> any SnapshotTakingClientStore {
    try expectSome(
      pair.clients[index].store as? any SnapshotTakingClientStore, "the client's store as a SnapshotTakingClientStore")
  }

  /// As another process opens it.
  func folder() throws -> any SnapshotFolder { try server.snapshotFolder(at: path) }

  func order(for index: Int) throws -> SnapshotOrder {
    SnapshotOrder(
      schema: pair.schema, server: pair.server.opening.serverID, incarnation: pair.server.opening.incarnation,
      group: group, scope: ReadScope(pair.clients[index].principal), coding: Self.plain, bytesMax: 1 << 30,
      clock: SystemClock(), random: SystemRandom())
  }

  func make(for index: Int) async throws -> Snapshot {
    let store = try server
    return try await folder().make(order(for: index)) { try await store.page($0) }
  }

  func bytes(of snapshot: Snapshot) async throws -> [UInt8] {
    try await Self.bytes(
      try expectSome(folder().open(snapshot, from: 0, count: .max, pieceBytes: 1 << 16), "the open file"))
  }

  static func bytes(_ open: OpenSnapshot) async throws -> [UInt8] {
    var bytes: [UInt8] = []
    while let piece = try await open.pieces() { bytes += piece }
    return bytes
  }

  func offer(_ snapshot: Snapshot) -> SnapshotOffer {
    SnapshotOffer(
      id: snapshot.id, group: snapshot.group, commit: snapshot.commit, scope: snapshot.scope, coding: snapshot.coding,
      bytes: snapshot.bytes, size: snapshot.size, tables: snapshot.tables, link: "/")
  }

  /// Fetches it whole and examines it.
  func open(_ snapshot: Snapshot, on index: Int) async throws {
    let (offer, store) = (offer(snapshot), try client(index))
    _ = try await store.snapshotsReceived([offer])
    try await store.keepSnapshot(try await bytes(of: snapshot), of: offer, at: 0)
    try await store.openSnapshot(offer, decoding: Self.plain, bytesMax: 1 << 30, as: nil)
  }

  /// The file, and what has changed since, in one transaction.
  @discardableResult
  func take(_ snapshot: Snapshot, on index: Int) async throws -> ApplyReport {
    try await open(snapshot, on: index)
    let (store, principal) = (pair.clients[index].store, pair.clients[index].principal)
    let state = try await store.beginSession(groups: nil).state
    try await pair.server.store.register(state.remoteID, principal: principal.name)
    var held = GroupState(name: group)
    held.cursor = snapshot.commit
    held.scopeDigest = snapshot.scope
    var position: String?
    while true {
      let page = try await pair.server.store.page(
        PageRequest(
          remote: state.remoteID, principal: principal, groups: [held], position: position, bytesTarget: 1 << 20,
          compared: ComparedTables(head: snapshot.commit, ownUpTo: snapshot.commit.number)))
      if !page.bytes.isEmpty {
        try await store.stage(StagedChunk(download: "held", bytes: page.bytes, position: page.position ?? ""))
      }
      position = page.position
      if let ended = page.groups {
        let report = try await store.apply(DownloadEnd(groups: ended))
        await store.endSession()
        return report
      }
    }
  }
}
