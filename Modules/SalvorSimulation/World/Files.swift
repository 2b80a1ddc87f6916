import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The files of a simulation.
enum Files {
  static func makeDirectory(in parent: String) throws -> String {
    var template = Array("\(parent)/salvor-simulation-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else {
      throw SalvorError(.storage, "No directory can be made in \(parent). Name another one.")
    }
    return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  static func write(_ text: String, to path: String) throws {
    guard let file = fopen(path, "w") else { throw SalvorError(.storage, "\(path) cannot be written.") }
    defer { fclose(file) }
    fputs(text, file)
  }

  static func exists(_ path: String) -> Bool { access(path, F_OK) == 0 }

  /// The source's content, or no file where there is none.
  static func copy(_ source: String, to target: String) throws {
    unlink(target)
    guard let input = fopen(source, "r") else { return }
    defer { fclose(input) }
    guard let output = fopen(target, "w") else { throw SalvorError(.storage, "\(target) cannot be written.") }
    defer { fclose(output) }
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while case let count = fread(&buffer, 1, buffer.count, input), count > 0 { fwrite(buffer, 1, count, output) }
  }

  static func remove(_ path: String) { unlink(path) }

  /// Nil where it cannot be read.
  static func read(_ path: String) -> [UInt8]? {
    guard let input = fopen(path, "r") else { return nil }
    defer { fclose(input) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 1 << 16)
    while case let count = fread(&buffer, 1, buffer.count, input), count > 0 { bytes += buffer.prefix(count) }
    return bytes
  }

  /// A file that is there stays the same file.
  static func overwrite(_ path: String, _ bytes: [UInt8]) throws {
    guard let output = fopen(path, "w") else { throw SalvorError(.storage, "\(path) cannot be written.") }
    defer { fclose(output) }
    fwrite(bytes, 1, bytes.count, output)
  }

  /// The files whose paths begin with `prefix`, those of folders, too.
  static func all(beginning prefix: String) -> [String] {
    let folder = prefix.split(separator: "/", omittingEmptySubsequences: false).dropLast().joined(separator: "/")
    return (entries(of: folder) ?? []).flatMap { name -> [String] in
      let path = folder + "/" + name
      guard path.hasPrefix(prefix) else { return [] }
      return entries(of: path) == nil ? [path] : all(beginning: path + "/")
    }
  }

  /// Nil where it is no folder.
  private static func entries(of path: String) -> [String]? {
    guard let directory = opendir(path) else { return nil }
    defer { closedir(directory) }
    var names: [String] = []
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != ".." { names.append(name) }
    }
    return names
  }

  static func removeDirectory(_ path: String) {
    guard let directory = opendir(path) else { return }
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != "." && name != "..", unlink(path + "/" + name) != 0 { removeDirectory(path + "/" + name) }
    }
    closedir(directory)
    rmdir(path)
  }
}

/// A database with what SQLite keeps beside it.
enum DatabaseFiles {
  static let own = ["", "-wal", "-shm", "-journal"]
  /// What Salvor keeps beside a device's.
  static let identity = ".salvor-identity"
  static let journal = ".salvor-recovery"
  /// What it keeps beside the server's.
  static let side = ".salvor-side"
  static let ledger = ".salvor-purged"

  static func copy(_ source: String, to target: String, others: [String] = []) throws {
    for suffix in own where suffix != "-shm" { try Files.copy(source + suffix, to: target + suffix) }
    Files.remove(target + "-shm")
    for suffix in others { try Files.copy(source + suffix, to: target + suffix) }
  }

  static func remove(_ path: String, others: [String] = []) {
    for suffix in own + others { Files.remove(path + suffix) }
  }
}
