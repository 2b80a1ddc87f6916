import SalvorModel
import SalvorModuleKit

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Reading of whole configuration files. Nothing is written, made or locked.
enum ConfigurationFile {
  struct Failure: Error {
    /// The system's words, e.g. `No such file or directory`.
    var reason: String
  }

  /// At most `JSON5Reader.fileBytesMax` and one byte more, so that the reader can say that there is too much.
  static func read(_ path: String) throws(Failure) -> [UInt8] {
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

  static func isExecutable(_ path: String) -> Bool { access(path, X_OK) == 0 }

  /// The directory part, `.` for a bare name.
  static func directory(of path: String) -> String {
    guard let slash = path.lastIndex(of: "/") else { return "." }
    return slash == path.startIndex ? "/" : String(path[..<slash])
  }

  /// `path` as it is found from where the file in `directory` stands, in the shortest form for messages.
  static func resolve(_ path: String, in directory: String) -> String {
    path.hasPrefix("/") || directory == "." ? path : (directory == "/" ? "/" : directory + "/") + path
  }
}
