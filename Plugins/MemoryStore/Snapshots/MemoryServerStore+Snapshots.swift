import SalvorModel
import SalvorStorage

extension MemoryServerStore: SnapshotServerStore {
  /// Each row of each commit counts once.
  public func changes(since commit: Commit, limit: Int64) throws -> Int64? {
    let state = try swept()
    guard state.tables(at: commit.number) != nil, state.commits[Int(commit.number)].commit == commit else { return nil }
    let count = state.commits[(Int(commit.number) + 1)...].reduce(Int64(0)) { $0 + Int64($1.changed.count) }
    return min(count, limit)
  }

  /// The folder lives as long as the `MemoryServerDatabase`; each path is another one, and so is nil. No file is written.
  nonisolated public func snapshotFolder(at path: String?) -> any SnapshotFolder { database.snapshots(at: path ?? "") }
}
