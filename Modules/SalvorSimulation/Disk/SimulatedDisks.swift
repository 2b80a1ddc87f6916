import SalvorModel

/// Finds the machine that a file belongs to. One for the process: SQLite asks it by a file's path alone.
public enum SimulatedDisks {
  private static let machines = Mutex<[String: MachineDisk]>([:])

  /// By the path of the machine's database.
  static func add(_ disk: MachineDisk) { machines.withLock { $0[disk.path] = disk } }

  static func remove(_ disk: MachineDisk) { machines.withLock { $0[disk.path] = nil } }

  /// Nil: the file belongs to no simulated machine.
  public static func machine(of path: String) -> MachineDisk? {
    // `…/d0.db-wal` is of `…/d0.db`.
    guard let end = path.endOfDatabase else { return nil }
    let database = String(path[..<end])
    return machines.withLock { $0[database] }
  }
}

extension String {
  /// Behind the first `.db`.
  fileprivate var endOfDatabase: String.Index? {
    var place = utf8.startIndex
    while let point = utf8[place...].firstIndex(of: UInt8(ascii: ".")) {
      if utf8[point...].starts(with: ".db".utf8) { return utf8.index(point, offsetBy: 3) }
      place = utf8.index(after: point)
    }
    return nil
  }
}
