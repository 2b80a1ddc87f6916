import SalvorModel
import SalvorModuleKit

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Reading of whole configuration files, and questions about others. Nothing is written, made or locked.
package enum ConfigurationFile {
  package struct Failure: Error {
    /// The system's words, e.g. `No such file or directory`.
    package var reason: String
  }

  /// At most `JSON5Reader.fileBytesMax` and one byte more, so that the reader can say that there is too much.
  package static func read(_ path: String) throws(Failure) -> [UInt8] {
    guard let handle = fopen(path, "rb") else { throw Failure(reason: String(cString: strerror(errno))) }
    defer { fclose(handle) }
    var bytes: [UInt8] = []
    var piece = [UInt8](repeating: 0, count: 64 << 10)
    while bytes.count <= JSON5Reader.fileBytesMax {
      let count = fread(&piece, 1, piece.count, handle)
      bytes += piece[..<count]
      if count < piece.count {
        if ferror(handle) != 0 { throw Failure(reason: String(cString: strerror(errno))) }
        break
      }
    }
    return bytes
  }

  package static func isExecutable(_ path: String) -> Bool { access(path, X_OK) == 0 }

  // MARK: Databases

  /// Why there can be no database file at `path`, as `names …`; nil: there is one, or it can be made there.
  package static func obstacle(toDatabase path: String) -> String? {
    if isDirectory(path) { return "names a directory, \(path); name a file in it" }
    let parent = directory(of: path)
    if isDirectory(parent) { return nil }
    let isThere = access(parent, F_OK) == 0
    return "names \(path), but \(parent) is \(isThere ? "no directory" : "not there"): make that directory first, or "
      + "name a file somewhere else"
  }

  package static func isDirectory(_ path: String) -> Bool {
    var found = stat()
    return stat(path, &found) == 0 && found.st_mode & S_IFMT == S_IFDIR
  }

  /// Whether two paths are one file, by whatever links, there already or not.
  package static func isSame(_ a: String, _ b: String) -> Bool {
    var (foundA, foundB) = (stat(), stat())
    if stat(a, &foundA) == 0, stat(b, &foundB) == 0 {
      return foundA.st_dev == foundB.st_dev && foundA.st_ino == foundB.st_ino
    }
    return resolved(a) == resolved(b)
  }

  /// With the directory's links followed, where it is there.
  private static func resolved(_ path: String) -> String {
    let name = path.split(separator: "/", omittingEmptySubsequences: false).last.map(String.init) ?? path
    guard let directory = realpath(directory(of: path), nil) else { return path }
    defer { free(directory) }
    return String(cString: directory) + "/" + name
  }

  /// The directory part, `.` for a bare name.
  package static func directory(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  /// `path` as it is found from where the file in `directory` stands, in the shortest form for messages.
  package static func resolve(_ path: String, in directory: String) -> String {
    path.hasPrefix("/") || directory == "." ? path : (directory == "/" ? "/" : directory + "/") + path
  }
}
