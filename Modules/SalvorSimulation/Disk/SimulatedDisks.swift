import SalvorModel
import SalvorStorage

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

/// The disk of whichever machine a file belongs to. Calls for files of no simulated machine go ahead.
struct FilesOfMachines: FileSystem.Disk {
  /// Closes what the process keeps open of a database: before its file gets another name, or none.
  let letGo: @Sendable (String) -> Void

  func ask(_ call: FileSystem.Call) -> Int32 {
    switch call {
    case .rename(let path, _), .remove(let path): letGo(ofItsDatabase: path)
    default: break
    }
    switch call {
    case .read(let path), .make(let path, _), .write(let path, _), .cut(let path, _), .sync(let path),
      .syncFolder(let path), .rename(let path, _), .remove(let path), .makeFolder(let path):
      return SimulatedDisks.machine(of: path)?.ask(call) ?? 0
    }
  }

  private func letGo(ofItsDatabase path: String) {
    for suffix in DatabaseFiles.own where path.hasSuffix(".db" + suffix) { letGo(String(path.dropLast(suffix.count))) }
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
