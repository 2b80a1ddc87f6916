#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The way of stores to the files that they keep beside a database: the identity file, the recovery journal, copies, the side file, the
/// ledger. Each call is the system's own, and leaves `errno` as the system does.
///
/// Where `disk` is set it is asked before each call. So a simulation knows what a power cut may take, and a test what was synced.
public enum FileSystem {
  /// What is asked of the system. Paths are as they were given.
  public enum Call: Sendable, Hashable {
    /// A file is opened to be read.
    case read(String)
    /// A file is opened to be written, and made where it is missing; `empties`: what it had is gone.
    case make(String, empties: Bool)
    /// These bytes of the file are written.
    case write(String, Range<Int>)
    /// A file is cut to so many bytes.
    case cut(String, Int)
    /// What was written to a file outlives a power cut from here on.
    case sync(String)
    /// The names in the folder that this file is in do.
    case syncFolder(of: String)
    /// A file gets another name, in the place of the one that has it.
    case rename(String, to: String)
    /// A name of a file goes.
    case remove(String)
    /// A folder is made.
    case makeFolder(String)
  }

  /// Asked before each call.
  public protocol Disk: Sendable {
    /// 0: the call goes ahead; else it fails with this `errno`.
    func ask(_ call: Call) -> Int32
  }

  /// Nil: nobody is asked.
  @TaskLocal public static var disk: (any Disk)?

  private static func goes(_ call: @autoclosure () -> Call) -> Bool {
    guard let disk else { return true }
    let code = disk.ask(call())
    errno = code
    return code == 0
  }

  /// As `open(2)`, with `O_CLOEXEC`: a descriptor, or a number below 0.
  public static func open(_ path: String, _ flags: Int32, _ mode: mode_t = 0) -> Int32 {
    let writes = flags & O_ACCMODE != O_RDONLY
    guard goes(writes ? .make(path, empties: flags & O_TRUNC != 0) : .read(path)) else { return -1 }
    return systemOpen(path, flags | O_CLOEXEC, mode)
  }

  /// Writes all of it. False: some of it may have been written.
  ///
  /// - Parameters:
  ///   - path: the file's, as it was opened.
  ///   - place: where it goes; nil: where the descriptor stands.
  public static func write(_ bytes: [UInt8], to descriptor: Int32, of path: String, at place: Int? = nil) -> Bool {
    guard goes(.write(path, range(of: bytes, descriptor, place))) else { return false }
    return bytes.withUnsafeBytes { buffer in
      var offset = 0
      while offset < buffer.count {
        let rest = buffer.baseAddress?.advanced(by: offset)
        let count =
          if let place {
            pwrite(descriptor, rest, buffer.count - offset, off_t(place + offset))
          } else {
            systemWrite(descriptor, rest, buffer.count - offset)
          }
        if count < 0 && errno == EINTR { continue }
        guard count > 0 else { return false }
        offset += count
      }
      return true
    }
  }

  private static func range(of bytes: [UInt8], _ descriptor: Int32, _ place: Int?) -> Range<Int> {
    var found = stat()
    let isAtEnd = fcntl(descriptor, F_GETFL) & O_APPEND != 0 && fstat(descriptor, &found) == 0
    let start = place ?? (isAtEnd ? Int(found.st_size) : max(0, Int(lseek(descriptor, 0, SEEK_CUR))))
    return start..<start + bytes.count
  }

  /// What was written to the file outlives a power cut where this is true.
  public static func sync(_ descriptor: Int32, of path: String) -> Bool {
    goes(.sync(path)) && fsync(descriptor) == 0
  }

  /// The names of the files beside `path` outlive a power cut. Failures are let go: the file itself is synced.
  public static func syncFolder(of path: String) {
    let folder = folder(of: path)
    let descriptor = systemOpen(folder, O_RDONLY | O_CLOEXEC, 0)
    guard descriptor >= 0 else { return }
    if goes(.syncFolder(of: path)) { fsync(descriptor) }
    close(descriptor)
  }

  /// The folder that a file is in; `.` where the path names none.
  public static func folder(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  /// A file that has the other name is gone then.
  public static func rename(_ path: String, to other: String) -> Bool {
    goes(.rename(path, to: other)) && systemRename(path, other) == 0
  }

  /// True also where there was none.
  public static func remove(_ path: String) -> Bool {
    guard goes(.remove(path)) else { return false }
    return unlink(path) == 0 || errno == ENOENT
  }

  /// What the file has beyond so many bytes is gone then.
  public static func cut(_ path: String, to bytes: Int) -> Bool {
    goes(.cut(path, bytes)) && truncate(path, off_t(bytes)) == 0
  }

  /// True also where there is one.
  public static func makeFolder(_ path: String, _ mode: mode_t) -> Bool {
    guard goes(.makeFolder(path)) else { return false }
    return mkdir(path, mode) == 0 || errno == EEXIST
  }
}

private func systemOpen(_ path: String, _ flags: Int32, _ mode: mode_t) -> Int32 { open(path, flags, mode) }
private func systemWrite(_ file: Int32, _ bytes: UnsafeRawPointer?, _ count: Int) -> Int { write(file, bytes, count) }
private func systemRename(_ path: String, _ other: String) -> Int32 { rename(path, other) }
