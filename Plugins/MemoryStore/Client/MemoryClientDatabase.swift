import SalvorModel
import SalvorStorage
import SalvorWire

/// What a remote database's file is to the SQLite store: it outlives the store that opened it, and can be copied and put
/// back. Beside it stands the identity file, which a restore does not put back (semantics 5).
public final class MemoryClientDatabase: Sendable {
  private let content: Mutex<ClientContent?>
  private let identity = Mutex<Identity?>(nil)
  private let session = Mutex<ObjectIdentifier?>(nil)
  private let beside = Mutex(Beside())
  private let rowsBefore: [String: [Row]]
  private let damaged = Mutex(false)

  struct Identity: Sendable, Equatable {
    var remoteID: RemoteID
    var previous: SequenceID?
    var current: SequenceID?
    /// Grows with every change of the identity; the database holds the one it was written with.
    var stamp: Int64
  }

  /// What stands beside the database and is not put back with it.
  struct Beside: Sendable {
    var journal: [UInt8]?
    /// Payloads for the next rehearsal.
    var rehearsal: [[UInt8]] = []
    /// Newest first. One without content is a database that was set aside because nobody could read it.
    var backups: [(backup: Backup, content: ClientContent?)] = []
    /// What has come of snapshots, by their IDs.
    var parts: [String: [UInt8]] = [:]
  }

  /// - Parameter rows: tables that exist before Salvor, with whole rows in the order of the schema's columns.
  public init(rows: [String: [Row]] = [:]) {
    content = Mutex(nil)
    rowsBefore = rows
  }

  private init(_ state: ClientContent?) {
    content = Mutex(state)
    rowsBefore = [:]
  }

  var state: ClientContent? {
    get { content.withLock { $0 } }
    set { content.withLock { $0 = newValue } }
  }

  var identityFile: Identity? {
    get { identity.withLock { $0 } }
    set { identity.withLock { $0 = newValue } }
  }

  var besides: Beside {
    get { beside.withLock { $0 } }
    set { beside.withLock { $0 = newValue } }
  }

  /// One session at a time, over all stores that have the database open.
  func takeSession(_ store: ObjectIdentifier) -> Bool {
    session.withLock { holder in
      guard holder == nil else { return false }
      holder = store
      return true
    }
  }

  func endSession(_ store: ObjectIdentifier) { session.withLock { if $0 == store { $0 = nil } } }

  var existingRows: [String: [Row]] { rowsBefore }

  /// Nobody can read it any more, as a file that was overwritten.
  public func damage() {
    state = nil
    isDamaged = true
  }

  var isDamaged: Bool {
    get { damaged.withLock { $0 } }
    set { damaged.withLock { $0 = newValue } }
  }

  /// A copy of the database as it is.
  public func backup() -> MemoryClientDatabase { MemoryClientDatabase(state) }

  /// Puts a copy back, as `cp` would. Close the store first, open it afterwards.
  public func restore(_ backup: MemoryClientDatabase) { state = backup.state }
}

/// Everything in a remote database.
struct ClientContent: Sendable {
  var schema: Schema
  /// The application's own, as it was opened with.
  var own: Schema
  /// What the server synchronizes, as far as it is known.
  var config: SyncConfig
  var principal: String
  var remoteID: RemoteID
  var serverID: ServerID?
  var incarnations: [Incarnation] = []
  /// Those whose commits were lost, in the order in which they lived.
  var lostIncarnations: [IncarnationID] = []
  /// Which of them is known to have lived before which.
  var lostOrder: [LostNeighbours] = []
  /// Those of `incarnations` that this device met the server as, since its last recovery.
  var met: Set<IncarnationID> = []
  /// What the server keeps as conflict versions, as it was sent.
  var keptVersions: [KeptVersion] = []
  /// What the server acknowledged in columns that the schema has dropped since, of rows that this device wrote.
  var droppedValues: [DroppedValue] = []
  /// Waiting offers are in the next upload; and what the server said of them, when they were last.
  var healDue = false
  /// What the server said when it was asked last, and how many the device knew of.
  var healAsked: (terms: HealTerms, waiting: Int64)?
  /// The same of deletes that it holds.
  var heldAsked: HealTerms?
  /// The setting under which what was withheld is offered with the next session, and the settings under which it was looked at last.
  var healWanted: HealMode?
  var healSeen: [HealMode]?
  /// Offers that the server held when they were taken back, and of which it does not know that yet.
  var withdrawn: [RequestID] = []
  var previous: SequenceID?
  var current: SequenceID?
  /// Newest first, `previous` not included.
  var olderSequences: [SequenceID] = []
  var identityStamp: Int64 = 0
  /// Of the requests captured from here on.
  var stamp: RequestStamp
  /// The last one given.
  var counter: Int64 = 0
  var groups: [String: GroupState] = [:]
  /// The cursors it had, newest first.
  var commits: [Commit] = []
  /// Which commits changed which bases, in the order in which this database heard of it.
  var baseChanges: [BaseChange] = []
  /// Of groups that came whole: the cursor they came with. A row without a base change is as of it.
  var wholeSince: [String: Int64] = [:]
  /// The SyncConfig that the server delivered decides the synchronized tables, once there is one.
  var isConfigDelivered = false

  /// Every row as the server last confirmed it.
  var bases = MemoryTables()
  /// Rows that no subscription covers any more: they stay while changes of them, or of rows that reference them, wait.
  var leaving: [RowName: Int64] = [:]
  /// Tables of which rows were left out, because the rows that they reference did not come; and those of which such a row may have come
  /// since: they are compared, and take what they lack.
  var incomplete: Set<String> = []
  var toCompare: Set<String> = []
  /// Rows that were left out for their blobs.
  var leftOutBlobs: LeftOutBlobs?
  /// What the application reads: base ⊕ requests, and the client-only tables.
  var view = MemoryTables()
  /// Client-only rows whose parent Salvor removed and that say nothing about deletes: they come back with it.
  var aside = MemoryTables()
  /// In order: queued, sent, in error, displaced, kept.
  var requests: [Request] = []
  var settings = DeviceSettings()
  /// The upload under way, as it is sent until it is settled.
  var outgoing: [Request] = []
  /// Of the sequence ID `current`.
  var upload: UploadStatus?
  /// The changes of the open group, each statement's together; nil: none is open.
  var openGroup: OpenGroup?
  /// The rows that a deleted mark deleted, as long as they are marked or their delete is outstanding.
  var marks: [RowName: Mark] = [:]

  var stagedDownload: String?
  var staged: [StagedChunk] = []
  /// What has come of the blobs that downloads refer to.
  var blobs: [BlobHash: StagedBlob] = [:]
  /// A recovery is tried: blobs that are not here are zeros.
  var rehearses = false
  var recoveryRequired: RecoveryReason?
  var recoveryMessage: String?
  /// Newest first.
  var recoveries: [(report: RecoveryReport, items: [RecoveryItem])] = []

  /// A request that the server keeps beside its rows, or an offered delete that it holds for its operator.
  struct DroppedValue: Sendable {
    /// The entry of the archive that it becomes where the server has lost it.
    var entry: Request
    /// Of its row.
    var version: Int64
  }

  struct KeptVersion: Sendable {
    var request: Request
    /// As of which commit, by the change's place in the request.
    var versions: [Int64]
    /// Not nil: the server has lost it.
    var lost: [LostVersion?] = []
    var isHeld = false
    /// Of an offered delete: the server holds it still, or is asked what became of it.
    var wait: Wait?
    /// The versions are those after the cursors, until the download ends.
    var isAssumed = false
    /// By the change's place: lost, and not to be offered as the device is set up.
    var withheld: Set<Int> = []

    enum Wait: Sendable {
      case waits, isAsked
    }

    /// It is in the next upload.
    var goesAgain: Bool { isLost || wait == .isAsked }

    var isLost: Bool { lost.indices.contains { lost[$0] != nil && !withheld.contains($0) } }

    /// As it is offered again.
    var offer: Request {
      var request = request
      request.state = .queued
      request.changes = request.changes.indices.compactMap { place in
        if !isLost, wait == .isAsked { return request.changes[place] }
        guard let version = lost[place], !withheld.contains(place) else { return nil }
        var change = request.changes[place]
        change.made = min(change.made, version.parting)
        if var deleted = change.offer?.version, isHeld {
          deleted.parting = min(deleted.parting, version.parting)
          change.offer = Offer(deleted, isForReview: true)
        } else {
          change.offer = Offer(version, isVersion: true)
        }
        return change
      }
      return request
    }
  }

  struct OpenGroup: Sendable {
    var tag: String?
    var statements: [[Change]] = []
  }

  var outstanding: [Request] { requests.filter { $0.state != .displaced && $0.state != .kept } }
}

extension ClientContent {
  /// What the server tells of its incarnations.
  mutating func remember(_ told: [Incarnation]) {
    if let first = told.map(\.firstCommit).min(), first > 0 {
      incarnations.removeAll { known in known.firstCommit >= first && !told.contains { $0.id == known.id } }
    }
    for incarnation in told {
      incarnations.removeAll { $0.id == incarnation.id || $0.firstCommit == 0 }
      incarnations.append(incarnation)
    }
    incarnations.sort { $0.firstCommit < $1.firstCommit }
    incarnations.removeFirst(max(0, incarnations.count - Timeline.toldMax))
  }
}
