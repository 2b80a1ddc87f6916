import CSQLite
import SalvorSimulation

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// SQLite's way to its files, over the system's own: each call is told to the machine's disk before it is made, and the disk
/// says what becomes of it. Files of no simulated machine go by untouched.
enum DiskVFS {
  /// The default one of the process from here on. Before the first connection.
  static func install() { _ = isInstalled }

  private static let isInstalled: Bool = {
    // A journal becomes a file, which may fail, as early as by default.
    csqlite_settle(64 << 10)
    guard let system = sqlite3_vfs_find(nil) else { return false }
    systemVFS = system
    placeOfHandle = (Int(system.pointee.szOsFile) + 15) & ~15
    let own = UnsafeMutablePointer<sqlite3_vfs>.allocate(capacity: 1)
    own.initialize(to: system.pointee)
    own.pointee.pNext = nil
    own.pointee.zName = UnsafePointer(strdup("salvor-simulated"))
    own.pointee.szOsFile = Int32(placeOfHandle + MemoryLayout<UnsafeRawPointer?>.size)
    own.pointee.xOpen = { _, name, file, flags, outFlags in DiskVFS.open(name, file, flags, outFlags) }
    own.pointee.xDelete = { _, name, syncsFolder in
      guard let system = systemVFS, let name else { return Failure.delete }
      let path = String(cString: name)
      if let disk = SimulatedDisks.machine(of: path) {
        guard disk.ask(.delete, life: disk.life) == .done else { return Failure.delete }
        disk.removed(path)
      }
      return system.pointee.xDelete(system, name, syncsFolder)
    }
    // Whoever holds the lock does not go on while this thread sleeps.
    own.pointee.xSleep = { _, microseconds in microseconds }
    return sqlite3_vfs_register(own, 1) == SQLITE_OK
  }()

  private static func open(
    _ name: UnsafePointer<CChar>?, _ file: UnsafeMutablePointer<sqlite3_file>?, _ flags: Int32,
    _ outFlags: UnsafeMutablePointer<Int32>?
  ) -> Int32 {
    guard let system = systemVFS, let file else { return SQLITE_CANTOPEN }
    let path = name.map { String(cString: $0) }
    let disk = path.flatMap(SimulatedDisks.machine)
    let life = disk?.life ?? 0
    if let disk {
      let answer = disk.ask(flags & SQLITE_OPEN_CREATE != 0 ? .make : .read, life: life)
      guard answer == .done else {
        file.pointee.pMethods = nil
        return answer == .full ? SQLITE_FULL : SQLITE_CANTOPEN
      }
    }
    let code = system.pointee.xOpen(system, name, file, flags, outFlags)
    guard code == SQLITE_OK, let path, let disk, let methods = file.pointee.pMethods else { return code }
    let handle = Handle(path, disk, life: life, methods)
    UnsafeMutableRawPointer(file).storeBytes(
      of: Unmanaged.passRetained(handle).toOpaque(), toByteOffset: placeOfHandle, as: UnsafeMutableRawPointer.self)
    file.pointee.pMethods = simulatedMethods
    return code
  }

  fileprivate static func handle(_ file: UnsafeMutablePointer<sqlite3_file>?) -> Handle? {
    guard let file else { return nil }
    let pointer = UnsafeRawPointer(file).load(fromByteOffset: placeOfHandle, as: UnsafeRawPointer.self)
    return Unmanaged<Handle>.fromOpaque(pointer).takeUnretainedValue()
  }

  /// An open file of a simulated machine.
  fileprivate final class Handle {
    let path: String
    let disk: MachineDisk
    let life: Int
    let system: sqlite3_io_methods
    let isFollowed: Bool

    init(_ path: String, _ disk: MachineDisk, life: Int, _ methods: UnsafePointer<sqlite3_io_methods>) {
      (self.path, self.disk, self.life) = (path, disk, life)
      system = methods.pointee
      isFollowed = disk.follows(path)
    }

    func ask(_ call: MachineDisk.Call, else code: Int32) -> Int32 {
      switch disk.ask(call, life: life) {
      case .done: SQLITE_OK
      case .dead: SQLITE_IOERR
      case .full: SQLITE_FULL
      case .failed: code
      case .locked: SQLITE_BUSY
      }
    }

    /// The disk is told what a write from `start` to `end` is going to write over.
    func follow(_ file: UnsafeMutablePointer<sqlite3_file>?, _ start: Int, _ end: Int) {
      guard isFollowed, let sectors = disk.unknownSectors(path, start..<end) else { return }
      var size: sqlite3_int64 = 0
      _ = system.xFileSize(file, &size)
      let from = sectors.lowerBound * MachineDisk.sector
      let count = max(0, min(sectors.upperBound * MachineDisk.sector, Int(size)) - from)
      var content = [UInt8](repeating: 0, count: count)
      if count > 0 { _ = system.xRead(file, &content, Int32(count), sqlite3_int64(from)) }
      disk.willWrite(path, sectors, content: content, size: Int(size))
    }
  }

  /// The methods of every file of a simulated machine; what they do not answer themselves is the system's.
  fileprivate static func makeMethods() -> UnsafePointer<sqlite3_io_methods> {
    let made = UnsafeMutablePointer<sqlite3_io_methods>.allocate(capacity: 1)
    var methods = sqlite3_io_methods()
    // 2: with shared memory for the write-ahead log, and no memory maps, which would go past the disk.
    methods.iVersion = 2
    methods.xClose = { file in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      let code = handle.system.xClose(file)
      Unmanaged.passUnretained(handle).release()
      return code
    }
    methods.xRead = { file, bytes, count, place in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      let code = handle.ask(.read, else: Failure.read)
      return code == SQLITE_OK ? handle.system.xRead(file, bytes, count, place) : code
    }
    methods.xWrite = { file, bytes, count, place in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      let code = handle.ask(.write, else: Failure.write)
      guard code == SQLITE_OK else { return code }
      handle.follow(file, Int(place), Int(place) + Int(count))
      return handle.system.xWrite(file, bytes, count, place)
    }
    methods.xTruncate = { file, size in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      let code = handle.ask(.truncate, else: Failure.truncate)
      guard code == SQLITE_OK else { return code }
      var present: sqlite3_int64 = 0
      _ = handle.system.xFileSize(file, &present)
      if size < present { handle.follow(file, Int(size), Int(present)) }
      return handle.system.xTruncate(file, size)
    }
    methods.xSync = { file, flags in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      let code = handle.ask(.sync, else: Failure.sync)
      guard code == SQLITE_OK else { return code }
      // The files are in memory: there is nothing that the system could sync.
      handle.disk.synced(handle.path)
      return SQLITE_OK
    }
    methods.xFileSize = { file, size in DiskVFS.handle(file)?.system.xFileSize(file, size) ?? SQLITE_IOERR }
    methods.xLock = { file, level in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      let code = handle.ask(.lock, else: Failure.lock)
      return code == SQLITE_OK ? handle.system.xLock(file, level) : code
    }
    methods.xUnlock = { file, level in DiskVFS.handle(file)?.system.xUnlock(file, level) ?? SQLITE_IOERR }
    methods.xCheckReservedLock = { file, result in
      DiskVFS.handle(file)?.system.xCheckReservedLock(file, result) ?? SQLITE_IOERR
    }
    methods.xFileControl = { file, operation, argument in
      DiskVFS.handle(file)?.system.xFileControl(file, operation, argument) ?? SQLITE_NOTFOUND
    }
    methods.xSectorSize = { file in DiskVFS.handle(file)?.system.xSectorSize(file) ?? Int32(MachineDisk.sector) }
    methods.xDeviceCharacteristics = { file in DiskVFS.handle(file)?.system.xDeviceCharacteristics(file) ?? 0 }
    methods.xShmMap = { file, page, size, extends, memory in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      return handle.life == handle.disk.life
        ? handle.system.xShmMap(file, page, size, extends, memory) : Failure.shmMap
    }
    methods.xShmLock = { file, place, count, flags in
      guard let handle = DiskVFS.handle(file) else { return SQLITE_IOERR }
      guard flags & SQLITE_SHM_LOCK != 0 else { return handle.system.xShmLock(file, place, count, flags) }
      let code = handle.ask(.lock, else: Failure.shmLock)
      return code == SQLITE_OK ? handle.system.xShmLock(file, place, count, flags) : code
    }
    methods.xShmBarrier = { file in DiskVFS.handle(file)?.system.xShmBarrier(file) }
    methods.xShmUnmap = { file, deletes in DiskVFS.handle(file)?.system.xShmUnmap(file, deletes) ?? SQLITE_OK }
    made.initialize(to: methods)
    return UnsafePointer(made)
  }
}

nonisolated(unsafe) private var systemVFS: UnsafeMutablePointer<sqlite3_vfs>?
/// Behind what the system keeps of an open file.
nonisolated(unsafe) private var placeOfHandle = 0
nonisolated(unsafe) private let simulatedMethods = DiskVFS.makeMethods()

/// SQLite's codes for what a file cannot do; its header makes them by an expression, which Swift does not see.
private enum Failure {
  static let read = SQLITE_IOERR | 1 << 8
  static let write = SQLITE_IOERR | 3 << 8
  static let sync = SQLITE_IOERR | 4 << 8
  static let truncate = SQLITE_IOERR | 6 << 8
  static let delete = SQLITE_IOERR | 10 << 8
  static let lock = SQLITE_IOERR | 15 << 8
  static let shmLock = SQLITE_IOERR | 20 << 8
  static let shmMap = SQLITE_IOERR | 21 << 8
}
