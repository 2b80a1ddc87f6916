import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

struct FileFailure: Error {}

/// A new directory for one test.
struct Directory {
  let path: String

  init() throws {
    var template = Array("/tmp/salvor-test-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { throw FileFailure() }
    path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
  }

  func remove() { removeTree(path) }
}

/// The error that `body` throws. (`#require(throws:)` in nested closures runs the wrong closure under Swift 6.3: two
/// of them get one symbol.)
func failure<Result>(_ body: () throws -> Result) -> SalvorError? {
  do {
    _ = try body()
    return nil
  } catch {
    return error as? SalvorError
  }
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

func readFile(_ path: String) throws -> [UInt8] {
  guard let file = fopen(path, "r") else { throw FileFailure() }
  defer { fclose(file) }
  var bytes: [UInt8] = []
  var buffer = [UInt8](repeating: 0, count: 1 << 16)
  while true {
    let count = fread(&buffer, 1, buffer.count, file)
    if count == 0 { return bytes }
    bytes += buffer.prefix(count)
  }
}
