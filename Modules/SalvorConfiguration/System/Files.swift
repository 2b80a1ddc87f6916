import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

package func fileExists(_ path: String) -> Bool { access(path, F_OK) == 0 }

/// In bytes.
package func fileSize(_ path: String) throws -> Int64 {
  var found = stat()
  guard stat(path, &found) == 0 else {
    throw SalvorError(.storage, "\(path) cannot be read: \(String(cString: strerror(errno))).")
  }
  return Int64(found.st_size)
}

/// The names of what is in a folder, in no order; nil: it cannot be read, and `errno` says why.
package func fileNames(in folder: String) -> [String]? {
  guard let directory = opendir(folder) else { return nil }
  defer { closedir(directory) }
  var names: [String] = []
  while let entry = readdir(directory) {
    names.append(
      withUnsafeBytes(of: &entry.pointee.d_name) { bytes in String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self) })
  }
  return names
}

package func makeDirectory(_ path: String) throws {
  guard mkdir(path, 0o755) == 0 || errno == EEXIST else {
    throw SalvorError(.usage, "The directory \(path) cannot be made: \(String(cString: strerror(errno))).")
  }
}

package func writeFile(_ path: String, _ text: String, mode: mode_t = 0o644) throws {
  let descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL, mode)
  guard descriptor >= 0 else {
    throw SalvorError(.usage, "\(path) cannot be written: \(String(cString: strerror(errno))).")
  }
  defer { close(descriptor) }
  var rest = Array(text.utf8)[...]
  while !rest.isEmpty {
    let count = rest.withUnsafeBytes { write(descriptor, $0.baseAddress, $0.count) }
    guard count > 0 else {
      let reason = String(cString: strerror(errno))
      // A file that is cut off would be taken for the whole.
      unlink(path)
      throw SalvorError(.storageFull, "\(path) cannot be written: \(reason).")
    }
    rest = rest.dropFirst(count)
  }
}
