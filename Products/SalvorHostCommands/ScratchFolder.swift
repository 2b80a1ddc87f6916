import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A folder of a command's own making, under `TMPDIR`. Removed with what is in it where nobody holds it any more, unless it
/// is kept.
package final class ScratchFolder: Sendable {
  package let path: String
  private static let made = Mutex<Set<String>>([])

  /// - Parameter purpose: a word of its name, which tells a person whose it is.
  package init(_ purpose: String) throws {
    let base = getenv("TMPDIR").map { String(cString: $0) } ?? "/tmp"
    var template = Array("\(base)/salvor-\(purpose)-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else {
      throw SalvorError(.failed, "No temporary directory can be made in \(base): \(String(cString: strerror(errno))).")
    }
    let path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    self.path = path
    Self.made.withLock { _ = $0.insert(path) }
  }

  deinit { if Self.forget(path) { Self.remove(path) } }

  /// It stays, for a person to look into.
  package func keep() { _ = Self.forget(path) }

  /// At the end of a command: what somebody still holds is never given back by a process that ends.
  package static func removeAll() { for path in made.withLock({ $0 }) where forget(path) { remove(path) } }

  /// False: somebody has before.
  private static func forget(_ path: String) -> Bool { made.withLock { $0.remove(path) != nil } }

  package func file(_ name: String) -> String { "\(path)/\(name)" }

  private static func remove(_ path: String) {
    guard let folder = opendir(path) else { return }
    var names: [String] = []
    while let entry = readdir(folder) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { names.append(name) }
    }
    closedir(folder)
    for name in names where unlink("\(path)/\(name)") != 0 { remove("\(path)/\(name)") }
    rmdir(path)
  }
}
