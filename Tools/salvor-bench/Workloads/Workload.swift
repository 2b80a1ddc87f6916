import SalvorModel
import SalvorWire

#if canImport(Glibc)
  @preconcurrency import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// One workload by its name.
struct Workload: Sendable {
  var name: String
  var summary: String
  var run: @Sendable (Bench) async throws -> WorkloadResult

  /// By its name, or the name's beginning up to a hyphen.
  func isMeant(by name: String) -> Bool { self.name == name || self.name.hasPrefix(name + "-") }

  #if PostgreSQL
    static let all = ofSQLite + ofPostgreSQL

    private static let ofPostgreSQL: [Workload] = [
      Workload(name: "postgresql-capture", summary: "what capture and sealing cost eight writers of PostgreSQL") {
        try await PostgreSQLCapture().run($0)
      },
      Workload(name: "postgresql-upload", summary: "upload of 100,000 rows into PostgreSQL, by one device and by eight")
      {
        try await PostgreSQLUpload(rows: $0.scaled(100_000)).run($0)
      },
      Workload(name: "postgresql-download", summary: "first, small and idle syncs of 1,000,000 rows in PostgreSQL") {
        try await PostgreSQLDownload(rows: $0.scaled(1_000_000), fewRows: min(10_000, $0.scaled(1_000_000))).run($0)
      },
      Workload(name: "postgresql-servers", summary: "a change seen behind another server, and idle syncs by HAProxy") {
        try await PostgreSQLServers(rows: $0.scaled(10_000)).run($0)
      },
      Workload(name: "postgresql-failover", summary: "a standby without the last 1,000 commits of 20 devices") {
        try await PostgreSQLFailover(rows: $0.scaled(100_000), commits: $0.scaled(1000)).run($0)
      },
    ]
  #else
    static let all = ofSQLite
  #endif

  private static let ofSQLite: [Workload] = [
    Workload(name: "first-sync-dinesafe", summary: "first sync of the DineSafe inspections") {
      try FirstSync(
        name: "first-sync-dinesafe", data: .dinesafe(DinesafeData(directory: $0.options.data)), ratioMax: 2.5
      ).run($0)
    },
    Workload(name: "first-sync-100k", summary: "first sync of 100,000 rows") {
      try FirstSync(
        name: "first-sync-100k", data: .records(RecordData(), count: $0.scaled(100_000)), ratioMax: 2.5
      ).run($0)
    },
    Workload(name: "first-sync-1m", summary: "first sync of 1,000,000 rows") {
      try FirstSync(
        name: "first-sync-1m", data: .records(RecordData(), count: $0.scaled(1_000_000)), ratioMax: 2, cpuMax: 4.9
      ).run($0)
    },
    Workload(name: "snapshot-100k", summary: "first sync of 100,000 rows from a warm snapshot") {
      try SnapshotSync(
        name: "snapshot-100k", data: .records(RecordData(), count: $0.scaled(100_000)), ratioMax: 0.6
      ).run($0)
    },
    Workload(name: "snapshot-dinesafe", summary: "first sync of the DineSafe inspections from warm snapshots") {
      try SnapshotSync(
        name: "snapshot-dinesafe", data: .dinesafe(DinesafeData(directory: $0.options.data)), ratioMax: 0.6
      ).run($0)
    },
    Workload(name: "snapshot-1m", summary: "first sync of 1,000,000 rows from a warm snapshot") {
      try SnapshotSync(
        name: "snapshot-1m", data: .records(RecordData(), count: $0.scaled(1_000_000)), ratioMax: 0.45, isWhole: true
      ).run($0)
    },
    Workload(name: "snapshot-cut", summary: "first sync of 1,000,000 rows from a warm snapshot, cut 20 times") {
      try SnapshotCut(cuts: 20, rows: $0.scaled(1_000_000)).run($0)
    },
    Workload(name: "snapshot-fleet", summary: "first syncs of 100 devices at once from one snapshot of 100,000 rows") {
      try SnapshotFleet(devices: max(3, $0.options.isQuick ? 10 : 100), rows: $0.scaled(100_000)).run($0)
    },
    Workload(name: "snapshot-nginx", summary: "first syncs of 1,000,000 rows from a snapshot that nginx gives") {
      try SnapshotElsewhere(rows: $0.scaled(1_000_000), devices: $0.options.isQuick ? 3 : 10).run($0)
    },
    Workload(name: "upload-10k", summary: "upload of 10,000 changed rows") {
      try Upload(name: "upload-10k", changes: $0.scaled(10_000), rows: $0.scaled(100_000)).run($0)
    },
    Workload(name: "upload-100k", summary: "upload of 100,000 changed rows") {
      try Upload(name: "upload-100k", changes: $0.scaled(100_000), rows: $0.scaled(100_000)).run($0)
    },
    Workload(name: "upload-100k-members", summary: "upload-100k, where a join table decides who sees the rows") {
      try Upload(
        name: "upload-100k-members", changes: $0.scaled(100_000), rows: $0.scaled(100_000), isThroughMembers: true
      ).run($0)
    },
    Workload(name: "upload-1m", summary: "all of 1,000,000 rows from one device") {
      try UploadAll(rows: $0.scaled(1_000_000)).run($0)
    },
    Workload(name: "update-10k", summary: "10,000 updates of one column in 1,000,000 rows, both directions") {
      try ManyUpdates(
        changes: $0.scaled(10_000), rows: $0.scaled(1_000_000), fewRows: $0.scaled(100_000)
      ).run($0)
    },
    Workload(name: "upload-refused", summary: "upload of 10,000 changed rows of which 1 % are refused") {
      try UploadRefused(rows: $0.scaled(100_000)).run($0)
    },
    Workload(name: "small-change", summary: "100 changes in 1,000,000 rows, both directions") {
      try SmallChange(rows: $0.scaled(1_000_000), fewRows: 10_000, changes: 100).run($0)
    },
    Workload(name: "membership-change", summary: "a membership row that moves 1,000 of 1,000,000 rows") {
      try ScopeChange(way: .membership, rows: $0.scaled(1_000_000), moved: 1000).run($0)
    },
    Workload(
      name: "subscription-change", summary: "a subscription that adds 1,000 of 1,000,000 rows, and takes them back"
    ) {
      try ScopeChange(way: .subscription, rows: $0.scaled(1_000_000), moved: 1000).run($0)
    },
    Workload(name: "idle-sync", summary: "a sync with nothing to do, from an open client") {
      try IdleSync(rows: $0.scaled(100_000)).run($0)
    },
    Workload(name: "idle-groups", summary: "a sync with nothing to do, 100 tables in 100 groups") {
      try IdleGroups().run($0)
    },
    Workload(name: "key-set", summary: "key-set download of 100,000 rows of which 10 differ") {
      try await KeySet(rows: $0.scaled(100_000), differences: 10).run($0)
    },
    Workload(name: "change-to-change", summary: "a change on one device until it is on another, both watching") {
      try ChangeToChange(rows: $0.scaled(100_000), changes: 100).run($0)
    },
    Workload(name: "idle-listeners", summary: "1,000 listeners to which nothing is said") {
      try IdleListeners(count: $0.scaled(1000)).run($0)
    },
    Workload(name: "server-restored-1m", summary: "1,000 of 1,000,000 rows lost with 100 unsynced: in place, recreated")
    {
      try ServerRestored(rows: $0.scaled(1_000_000), lost: 1000, unsynced: 100).run($0)
    },
    Workload(
      name: "long-history", summary: "80,000 rows recreated after a restore, on a device that has had 1,040 downloads"
    ) {
      try LongHistory(rows: $0.scaled(80_000), downloads: $0.options.isQuick ? 40 : 1_040).run($0)
    },
    Workload(name: "history-trimmed-1m", summary: "0.1 % of 1,000,000 rows differ and no tombstone is left") {
      try HistoryTrimmed(rows: $0.scaled(1_000_000), share: 0.001).run($0)
    },
    Workload(name: "recover-10k", summary: "10,000 unsynced changes kept through a recovery") {
      try UnsyncedKept(changes: $0.scaled(10_000), rows: $0.scaled(100_000), lost: 1000).run($0)
    },
    Workload(name: "heal-1k", summary: "1,000 lost changes come back to a restored server, beside 10,000 unsynced ones")
    {
      try Healed(rows: $0.scaled(100_000), lost: 1000, unsynced: $0.scaled(10_000)).run($0)
    },
    Workload(name: "heal-1m", summary: "the same in 1,000,000 rows, and in 100,000") {
      try HealedInMore(
        rows: $0.scaled(1_000_000), fewRows: $0.scaled(100_000), lost: 1000, unsynced: $0.scaled(10_000)
      ).run($0)
    },
    Workload(name: "heal-100k", summary: "100,000 lost rows offered and settled, and uploaded as ordinary changes") {
      try HealedMany(rows: $0.scaled(200_000), lost: $0.scaled(100_000)).run($0)
    },
    Workload(name: "heal-fleet", summary: "200 devices that each offer the same 1,000 lost rows") {
      try HealedFleet(devices: max(3, $0.scaled(200)), rows: 2000, lost: 1000).run($0)
    },
    Workload(name: "revert-100k", summary: "one request taken out of a queue of 100,000, and of one of 100") {
      try await Revert(rows: $0.scaled(100_000), queues: (few: 100, many: $0.scaled(100_000))).run($0)
    },
    Workload(name: "long-log", summary: "uploads of unknown devices, with a change log of 1,000,000 entries") {
      try LongLog(rows: $0.scaled(100_000), entries: $0.scaled(1_000_000), devices: $0.scaled(1000)).run($0)
    },
    Workload(name: "beside", summary: "small syncs beside four first syncs of 1,000,000 rows and an upload of 100,000")
    {
      try Beside(rows: $0.scaled(1_000_000), changes: $0.scaled(100_000)).run($0)
    },
    Workload(
      name: "own-writes", summary: "an application's own writes on a device beside a first sync of 1,000,000 rows"
    ) {
      try OwnWrites(rows: $0.scaled(1_000_000), changes: $0.scaled(100_000)).run($0)
    },
    Workload(name: "blobs-796", summary: "796 images from a device over the server to another") {
      try Images(name: "blobs-796", count: 796).run($0)
    },
    Workload(name: "capture", summary: "what the triggers cost an application's writes") {
      try await Capture(rows: $0.scaled(100_000), transactions: $0.scaled(20_000)).run($0)
    },
  ]
}

/// What all workloads share: options, the directory of their databases, and what was measured already.
final class Bench {
  let options: BenchOptions
  let directory: String
  private var emptyPeaks: [String: (client: Int64, server: Int64)] = [:]

  init(_ options: BenchOptions) throws {
    self.options = options
    var template = Array((options.directory + "/salvor-bench-XXXXXX").utf8CString)
    guard mkdtemp(&template) != nil else {
      throw SalvorError(
        .usage, "\(options.directory) is no directory that can be written: name one on a disk with --dir.")
    }
    directory = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  func removeDirectory() {
    guard !options.keep else { return }
    PlainDatabase.removeAll(in: directory)
    rmdir(directory)
  }

  func path(_ name: String) -> String { directory + "/" + name }

  /// Removes databases that are not needed any more, unless they are to be kept.
  func discard(_ paths: String...) {
    guard !options.keep else { return }
    for path in paths { PlainDatabase.remove(path) }
  }

  /// A size of the full run, a tenth of it with `--quick`, no more than `--rows` says.
  func scaled(_ size: Int) -> Int { min(options.isQuick ? size / 10 : size, options.rowsMax ?? .max) }

  /// What goes on, for whoever waits; on standard error.
  func say(_ text: String) {
    if !options.isQuiet { fputs("salvor-bench: \(text)\n", stderr) }
  }

  /// Waits until what earlier steps left in the page cache is on the disk: it is not this step's cost.
  func settle() { sync() }

  /// The peaks of both roles where the sync has nothing to move: what a process costs that only exists.
  func emptyPeaks(_ schemaName: String) throws -> (client: Int64, server: Int64) {
    if let known = emptyPeaks[schemaName] { return known }
    let (serverPath, clientPath) = (path("empty-server.db"), path("empty-client.db"))
    defer { discard(serverPath, clientPath) }
    let pair = try Pair(serverPath: serverPath, clientPath: clientPath, schemaName: schemaName)
    defer { pair.end() }
    let sync = try pair.sync()
    emptyPeaks[schemaName] = (sync.clientPeak, sync.serverPeak)
    return (sync.clientPeak, sync.serverPeak)
  }

  /// Lets a server take over a database that was loaded without it.
  func adopt(_ serverPath: String, _ schemaName: String) throws {
    let server = try ChildProcess(role: "server", [serverPath, schemaName])
    _ = try server.answer(to: "start")
    server.end()
  }
}
