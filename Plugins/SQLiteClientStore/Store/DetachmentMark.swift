import SQLiteSupport
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Says beside a database that Salvor was taken out of it: nothing in it does. Void where Salvor's tables are there, or none.
struct DetachmentMark {
  private let path: String

  init(database: String) { path = Self.path(of: database) }

  static func path(of database: String) -> String { database + ".salvor-detached" }

  var isThere: Bool { access(path, F_OK) == 0 }

  func write() throws { try DurableFile.write([], to: path, Self.what) }

  func remove() throws { if isThere { try DurableFile.remove(path, Self.what) } }

  static var refusal: SalvorError {
    SalvorError(
      .detached,
      "Salvor was taken out of this database (salvor detach): its tables are plain ones. To synchronize them again, each row as a new one, run salvor sync."
    )
  }

  private static let what = "mark of the detachment"
}

extension SQLiteConnection {
  /// There are tables, and none of Salvor's.
  func isDetached() throws -> Bool {
    try integer("SELECT count(*) > 0 AND sum(name = 'salvor_state') = 0 FROM sqlite_schema WHERE type = 'table'") == 1
  }
}
