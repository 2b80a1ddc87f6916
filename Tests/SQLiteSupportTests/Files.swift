#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

struct FileFailure: Error {}

/// Runs `body` with a new directory, which is removed afterwards.
func withDirectory<Result>(_ body: (String) throws -> Result) throws -> Result {
  var template = Array("/tmp/salvor-test-XXXXXX".utf8CString)
  guard mkdtemp(&template) != nil else { throw FileFailure() }
  let path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  defer { removeTree(path) }
  return try body(path)
}

func removeTree(_ path: String) {
  if let directory = opendir(path) {
    while let entry = readdir(directory) {
      let name = withUnsafePointer(to: &entry.pointee.d_name) {
        $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
      }
      if name != ".", name != ".." { unlink(path + "/" + name) }
    }
    closedir(directory)
  }
  rmdir(path)
}

func writeFile(_ path: String, _ bytes: [UInt8]) throws {
  guard let file = fopen(path, "w") else { throw FileFailure() }
  defer { fclose(file) }
  guard fwrite(bytes, 1, bytes.count, file) == bytes.count else { throw FileFailure() }
}
