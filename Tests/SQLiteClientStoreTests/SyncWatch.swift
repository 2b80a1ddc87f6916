import CSQLite
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Watches which files SQLite syncs: a VFS over the system's, the default one of the process from its first use on.
enum SyncWatch {
  private static let synced = Mutex<[String]>([])

  /// The files that were synced since the last call, in order, whose path begins with `prefix`.
  static func take(_ prefix: String) -> [String] {
    synced.withLock { all in
      let found = all.filter { $0.hasPrefix(prefix) }
      all.removeAll { $0.hasPrefix(prefix) }
      return found
    }
  }

  /// By another layer than SQLite.
  static func note(_ path: String) { synced.withLock { $0.append(path) } }

  /// Before the first connection that is to be watched is opened.
  static func install() { _ = isInstalled }

  private static let isInstalled: Bool = {
    guard let system = sqlite3_vfs_find(nil) else { return false }
    systemVFS = system
    let watching = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
    watching.initialize(to: system.pointee)
    watching.pointee.pNext = nil
    watching.pointee.zName = UnsafePointer(strdup("salvor-watching"))
    watching.pointee.xOpen = { _, name, file, flags, outFlags in
      guard let system = systemVFS, let file else { return SQLITE_CANTOPEN }
      let code = system.pointee.xOpen(system, name, file, flags, outFlags)
      if code == SQLITE_OK, let name, let methods = file.pointee.pMethods {
        file.pointee.pMethods = watched(methods)
        let path = String(cString: name)
        names.withLock { $0[Int(bitPattern: file)] = path }
      }
      return code
    }
    return sqlite3_vfs_register(watching, 1) == SQLITE_OK
  }()

  /// The same methods with `xSync` of ours; the system's is one for all kinds of files.
  private static func watched(_ methods: UnsafePointer<sqlite3_io_methods>) -> UnsafePointer<sqlite3_io_methods> {
    known.withLock { known in
      if let made = known[Int(bitPattern: methods)] { return UnsafePointer(bitPattern: made) ?? methods }
      systemSync = methods.pointee.xSync
      let made = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
      made.initialize(to: methods.pointee)
      made.pointee.xSync = { file, flags in
        if let path = names.withLock({ $0[Int(bitPattern: file)] }) { SyncWatch.note(path) }
        return systemSync?(file, flags) ?? SQLITE_IOERR
      }
      known[Int(bitPattern: methods)] = Int(bitPattern: made)
      return UnsafePointer(made)
    }
  }
}

nonisolated(unsafe) private var systemVFS: UnsafeMutablePointer<sqlite3_vfs>?
nonisolated(unsafe) private var systemSync: (@convention(c) (UnsafeMutablePointer<sqlite3_file>?, Int32) -> Int32)?
private let names = Mutex<[Int: String]>([:])
private let known = Mutex<[Int: Int]>([:])
