import SalvorContracts
import SalvorModel
import SalvorStorage

@testable import SQLiteClientStore

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A directory of the test run, removed when the process ends.
enum Scratch {
  private static let counter = Atomic<Int>(0)
  private static let directory: String = {
    var template = Array("/tmp/salvor-client-tests-XXXXXX".utf8CString)
    guard mkdtemp(&template) != nil else { return "/tmp" }
    let path = String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    scratchPath.withLock { $0 = path }
    atexit { removeScratch() }
    return path
  }()

  static func path() -> String {
    "\(directory)/\(counter.wrappingAdd(1, ordering: .relaxed).newValue).db"
  }
}

private let scratchPath = Mutex<String>("")

private func removeScratch() {
  let path = scratchPath.withLock { $0 }
  if !path.isEmpty { removeFolder(path) }
}

/// With the folders of backups in it.
private func removeFolder(_ path: String) {
  guard let directory = opendir(path) else { return }
  while let entry = readdir(directory) {
    let name = withUnsafePointer(to: &entry.pointee.d_name) {
      $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
    }
    if name == "." || name == ".." { continue }
    if unlink(path + "/" + name) != 0 { removeFolder(path + "/" + name) }
  }
  closedir(directory)
  rmdir(path)
}

let sqliteClient = StoreSubject<any ClientStore> {
  let path = Scratch.path()
  return { SQLiteClientStore(path: path) }
}
