import SalvorModel
import SalvorStorage
import SalvorWire

/// What a server's database file is to the SQLite store: it outlives the store that opened it, and can be copied and put
/// back. Beside it stands what the side file holds, which a restore does not put back.
public final class MemoryServerDatabase: Sendable {
  private let content: Mutex<ServerState?>
  private let side = Mutex<SideFile?>(nil)
  private let acts = Mutex<[PurgeAct]>([])
  private let copies = Mutex<[String: ServerState]>([:])
  private let folders = Mutex<[String: MemorySnapshotFolder]>([:])
  private let rowsBefore: [String: [Row]]

  struct SideFile: Sendable {
    var incarnation: IncarnationID
    var head: Commit
  }

  /// An act of the purge ledger, which a restore does not put back either.
  struct PurgeAct: Sendable, Hashable {
    var row: RowName
    var isRelease: Bool
  }

  /// - Parameter rows: tables that exist before Salvor, with whole rows in the order of the schema's columns.
  public init(rows: [String: [Row]] = [:]) {
    content = Mutex(nil)
    rowsBefore = rows
  }

  private init(_ state: ServerState?) {
    content = Mutex(state)
    rowsBefore = [:]
  }

  var state: ServerState? {
    get { content.withLock { $0 } }
    set { content.withLock { $0 = newValue } }
  }

  var sideFile: SideFile? {
    get { side.withLock { $0 } }
    set { side.withLock { $0 = newValue } }
  }

  var purgeLedger: [PurgeAct] {
    get { acts.withLock { $0 } }
    set { acts.withLock { $0 = newValue } }
  }

  var existingRows: [String: [Row]] { rowsBefore }

  /// A copy of the database as it is.
  public func backup() -> MemoryServerDatabase { MemoryServerDatabase(state) }

  /// What `MemoryServerStore.backup(to:)` put under this path; nil: nothing.
  public func backup(at path: String) -> MemoryServerDatabase? {
    copies.withLock { $0[path] }.map { MemoryServerDatabase($0) }
  }

  func snapshots(at path: String) -> MemorySnapshotFolder {
    folders.withLock { folders in
      let folder = folders[path] ?? MemorySnapshotFolder()
      folders[path] = folder
      return folder
    }
  }

  func keep(_ state: ServerState, at path: String) { copies.withLock { $0[path] = state } }

  /// Puts a copy back, as `cp` would. Close the store first, open it afterwards.
  public func restore(_ backup: MemoryServerDatabase) { state = backup.state }
}

/// Everything in a server's database.
struct ServerState: Sendable {
  var schema: Schema
  var serverID: ServerID
  var incarnations: [Incarnation] = []
  /// The real tables.
  var tables: MemoryTables
  /// In order of their numbers, number 0 first.
  var commits: [CommitRecord]
  /// Rows that other programs wrote and that have no commit yet.
  var unnumbered: Set<RowName> = []
  var remotes: [RemoteID: Remote] = [:]
  /// The requests that were settled, as long as history is kept. One ID may name several: two clones of a device count on
  /// from the same counter.
  var settled: [Settled: Settlement] = [:]
  /// What was kept beside the server's rows, in order of the IDs.
  var conflictVersions: [ConflictVersion] = []
  /// What principals have sent of blobs, by name.
  var blobs: [String: [BlobHash: StagedBlob]] = [:]
  /// The rows that were erased for good.
  var purged: Set<RowName> = []
  /// What came by offers, column by column.
  var healed: [RowName: [String: HealedColumn]] = [:]
  var claimedDeletes: [RowName: [ClaimedDelete]] = [:]
  /// In which order lost incarnations lived: neighbours, as devices told.
  var lostNeighbours: [LostNeighbours] = []
  /// Offers that it holds, oldest first.
  var waiting: [HeldOffer] = []
  /// `HealTerms.settlings`.
  var settlings: Int64 = 0
  var pace = HealPace()
  /// How many acts of the ledger are in it.
  var purgeActs = 0
  /// The last ID that a conflict version got.
  var lastConflict: Int64 = 0

  struct Settled: Sendable, Hashable {
    var id: RequestID
    var effect: [Request.Effect]

    /// What an insert does not set does not count: a device that sends it again may have got a column meanwhile.
    init(_ request: Request, _ schema: Schema) {
      self.init(
        id: request.id,
        effect: request.effect.map { effect in
          guard effect.operation == .insert, let table = schema.table(effect.row.table) else { return effect }
          var effect = effect
          effect.values = effect.values.filter { name, value in
            table.columns.first { $0.name == name }?.isSet(value) ?? true
          }
          return effect
        })
    }

    init(id: RequestID, effect: [Request.Effect]) {
      self.id = id
      self.effect = effect
    }
  }

  struct Settlement: Sendable {
    /// Nil: the request was accepted.
    var refusal: Refusal?
    /// Milliseconds since 1970.
    var time: Int64
    /// `Request.content` as it was settled.
    var content: UInt32
  }

  struct CommitRecord: Sendable {
    var commit: Commit
    /// Whose upload it was; nil: another program's, or a touch.
    var remote: RemoteID?
    /// Of a touch: the remote database that holds something else in these rows.
    var touchedFor: RemoteID?
    /// Milliseconds since 1970.
    var time: Int64
    var changed: Set<RowName>
    /// What of that came by offers: columns of rows, and `HealedColumn.existence`.
    var healed: [RowName: Set<String>] = [:]
    /// Who offered that.
    var offeredBy: RemoteID?
    /// The tables as the commit left them; nil once it is trimmed.
    var tables: MemoryTables?

    /// It is the remote's own, also where it waited, and somebody accepted it.
    func isOffered(_ row: RowName, by remote: RemoteID) -> Bool { offeredBy == remote && healed[row]?.isEmpty == false }
  }

  struct Remote: Sendable {
    var record: RemoteRecord
    /// The head when the remote ID was deleted last: what was sent under it until then may be another database's.
    var ownAfter: Int64 = 0
    /// When each stopped being the remote's sequence ID, in milliseconds since 1970.
    var olderSequences: [SequenceID: Int64] = [:]
    var results: UploadResults?
    var stagedSequence: SequenceID?
    var staged: [Int: UploadChunk] = [:]
    /// When the last chunk came, in milliseconds since 1970.
    var stagedTime: Int64 = 0
  }

  var head: Commit { commits[commits.count - 1].commit }

  /// The oldest commit whose tables are kept.
  var trimmed: Int64 { commits.first { $0.tables != nil }?.commit.number ?? 0 }

  /// The tables as commit `number` left them; nil where it is unknown or trimmed.
  func tables(at number: Int64) -> MemoryTables? {
    commits.indices.contains(Int(number)) ? commits[Int(number)].tables : nil
  }

  /// What was sent under the ID until it was deleted may be another copy's.
  private func isOwn(_ commit: CommitRecord, of remote: RemoteID) -> Bool {
    commit.remote == remote && commit.commit.number > remotes[remote]?.ownAfter ?? 0
  }

  /// The newest commit by anyone but `remote` that changed a row, since `remote` itself last made the row, or that tells
  /// `remote` that it holds something else; 0 where there is none.
  func newestForeignCommit(of row: RowName, besides remote: RemoteID) -> Int64 {
    for index in commits.indices.reversed() where commits[index].changed.contains(row) {
      // What another holds instead of the row makes it no newer.
      if let other = commits[index].touchedFor, other != remote { continue }
      if !isOwn(commits[index], of: remote) {
        if commits[index].isOffered(row, by: remote) { continue }
        return commits[index].commit.number
      }
      if index > 0, let before = commits[index - 1].tables, before[row] == nil { return 0 }
    }
    return 0
  }

  /// The newest commit after `made` by which anyone but `remote` wrote a row, since `remote` itself last made it. Only
  /// what changed after the oldest commit that is kept is known.
  func newestForeignWrite(of row: RowName, besides remote: RemoteID, after made: Int64) -> CommitRecord? {
    for index in commits.indices.reversed() where commits[index].changed.contains(row) {
      guard commits[index].commit.number > made, index > 0, let before = commits[index - 1].tables else { return nil }
      let isOwn = isOwn(commits[index], of: remote)
      if !isOwn, commits[index].isOffered(row, by: remote) { continue }
      if isOwn {
        if before[row] == nil { return nil }
      } else if commits[index].touchedFor == nil {
        return commits[index]
      }
    }
    return nil
  }

  /// Remembers how a request was settled; one that was settled before is remembered as it was then.
  mutating func settle(_ request: Request, _ refusal: Refusal?, time: Int64) {
    let settled = Settled(request, schema)
    if self.settled[settled] != nil { return }
    self.settled[settled] = Settlement(refusal: refusal, time: time, content: request.content(schema))
  }

  /// How a request was settled, as it is or as it was before its device dropped a column. Nil: it is new.
  func settlement(of request: Request) -> Settlement? {
    settled[Settled(request, schema)]
      ?? request.former.lazy.compactMap { former in
        let id = RequestID(stamp: request.stamp, counter: former.first)
        return settled.first { $0.key.id == id && $0.value.content == former.content }?.value
      }.first
  }

  /// Adds a commit where rows changed. Nil: nothing did.
  mutating func commit(
    _ changed: Set<RowName>, by remote: RemoteID?, healed: [RowName: Set<String>] = [:], offeredBy: RemoteID? = nil,
    touchedFor: RemoteID? = nil, random: any RandomSource, time: Int64
  ) -> Commit? {
    guard !changed.isEmpty else { return nil }
    let commit = Commit(number: head.number + 1, id: CommitID(from: random))
    commits.append(
      CommitRecord(
        commit: commit, remote: remote, touchedFor: touchedFor, time: time, changed: changed, healed: healed,
        offeredBy: offeredBy, tables: tables))
    return commit
  }

  /// Numbers what other programs have written.
  mutating func sweep(random: any RandomSource, time: Int64) {
    _ = commit(unnumbered, by: nil, random: random, time: time)
    unnumbered = []
  }
}

extension ServerState {
  /// Without incarnations that ended before they made a commit.
  var timeline: Timeline {
    Timeline(
      incarnations.indices.filter { place in
        incarnations[place].firstCommit <= head.number
          && !incarnations[(place + 1)...].contains { $0.firstCommit == incarnations[place].firstCommit }
      }.map { incarnations[$0] })
  }
}
