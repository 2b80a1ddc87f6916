import SQLiteSupport
import SalvorModel
import SalvorSimulation
import StandardModules

extension SimulationPlatform {
  /// The built-in modules on real SQLite files in `directory`.
  static func sqlite(in directory: String) -> SimulationPlatform {
    DiskVFS.install()
    return SimulationPlatform(
      modules: StandardModules.all, directory: directory,
      connect: { Database(try SQLiteConnection($0, busyTimeoutMilliseconds: 0, for: "application")) },
      letGo: { SQLiteShelf.current?.clear($0) },
      overwrite: { path, copy in
        let target = try SQLiteConnection(path, mode: .readWrite, busyTimeoutMilliseconds: 0)
        defer { target.close() }
        let source = try SQLiteConnection(copy, mode: .readWrite, busyTimeoutMilliseconds: 0)
        defer { source.close() }
        try source.backup(into: target)
      },
      onSchedule: { schedule, body in
        let shelf = SQLiteShelf()
        await SQLiteShelf.$current.withValue(shelf) {
          await SQLiteQueue.$lanes.withValue(Lanes(schedule: schedule)) { await body() }
        }
        shelf.clear()
      })
  }
}

private struct Lanes: SQLiteQueue.Lanes {
  let schedule: SimulationSchedule
  func makeLane() -> any SQLiteQueue.Lane { Lane(lane: schedule.makeLane()) }
}

private struct Lane: SQLiteQueue.Lane {
  let lane: SimulationSchedule.Lane
  func add(_ job: UnownedJob, of executor: UnownedSerialExecutor) { lane.add(job, of: executor) }
}

private final class Database: SimulatedDatabase {
  private let connection: SQLiteConnection
  init(_ connection: SQLiteConnection) { self.connection = connection }
  /// How often something was run of which SQLite's own counts say nothing: what takes changes back, and what changes a schema.
  private var others: Int64 = 0

  func execute(_ sql: String) throws {
    if !["INSERT", "UPDATE", "DELETE", "BEGIN", "COMMIT", "SAVEPOINT", "RELEASE"].contains(where: sql.hasPrefix) {
      others += 1
    }
    do { try connection.execute(sql) } catch {
      others += 1
      throw error
    }
  }

  func version() throws -> [Int64] {
    [others, Int64(connection.totalChanges), try connection.integer("PRAGMA data_version") ?? 0]
  }
  func rows(_ sql: String) throws -> [[Value]] { try connection.rows(sql) }
  var isInTransaction: Bool { connection.isInTransaction }
  func close() { connection.close() }
}
