import SalvorConfiguration
import SalvorModel
import SalvorServerEngine
import SalvorStorage

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// Copies of the server's database in a folder, named `salvor-2026-11-22T02-30-05Z.db`, the newest of which are kept.
package struct BackupRotation {
  package var directory: String
  package var keep: Int

  package init(directory: String, keep: Int) {
    self.directory = directory
    self.keep = keep
  }

  /// Where the next copy goes: a second later in its name than now where that name is taken. Makes the folder, for its owner alone, where
  /// there is none.
  package func next(now: Int64) throws -> String {
    guard mkdir(directory, 0o700) == 0 || errno == EEXIST else {
      throw SalvorError(
        .storage,
        "The folder \(directory) cannot be made: \(String(cString: strerror(errno))). Make it, or name another.")
    }
    var moment = now
    while access(path(at: moment), F_OK) == 0 { moment += 1000 }
    return path(at: moment)
  }

  private func path(at moment: Int64) -> String {
    let time = timestamp(moment).replacing(" ", with: "T").replacing(":", with: "-")
    return "\(directory)/salvor-\(time)Z.db"
  }

  /// Removes what is beyond `keep`, oldest first; the paths of what went.
  package func removeOld() throws -> [String] {
    let old = try names().sorted().dropLast(keep)
    for name in old {
      guard unlink("\(directory)/\(name)") == 0 || errno == ENOENT else {
        throw SalvorError(
          .storage,
          "The old copy \(directory)/\(name) cannot be removed: \(String(cString: strerror(errno))). The new one is whole."
        )
      }
    }
    return old.map { "\(directory)/\($0)" }
  }

  /// Newest first.
  package func list() throws -> [ServerBackup] {
    // The folder is made with the first copy.
    guard access(directory, F_OK) == 0 else { return [] }
    return try names().sorted(by: >).map { name in
      var found = stat()
      guard stat("\(directory)/\(name)", &found) == 0 else { return ServerBackup(name: name, time: 0, bytes: 0) }
      #if canImport(Darwin)
        let time = found.st_mtimespec.tv_sec
      #else
        let time = found.st_mtim.tv_sec
      #endif
      return ServerBackup(name: name, time: Int64(time) * 1000, bytes: Int64(found.st_size))
    }
  }

  /// Those that `next` has given; names that sort as their times do.
  private func names() throws -> [String] {
    guard let names = fileNames(in: directory) else {
      throw SalvorError(.storage, "The folder \(directory) cannot be read: \(String(cString: strerror(errno))).")
    }
    return names.filter(Self.isName)
  }

  static func isName(_ name: String) -> Bool {
    let form = "salvor-0000-00-00T00-00-00Z.db"
    return name.utf8.count == form.utf8.count
      && zip(name.utf8, form.utf8).allSatisfy { $1 == 48 ? (48...57).contains($0) : $0 == $1 }
  }
}

/// `server.backups`: the copies that a running server makes when it is asked to.
struct BackupDirectory: ServerBackups {
  let rotation: BackupRotation
  let store: any RecoveringServerStore
  let clock: any Clock

  var keep: Int { rotation.keep }

  func list() throws -> [ServerBackup] { try rotation.list() }

  func make() async throws -> (made: ServerBackup, removed: [String]) {
    let now = clock.now()
    let path = try rotation.next(now: now)
    try await store.backup(to: path)
    let name = String(path.drop { $0 != "/" }.split(separator: "/").last ?? "")
    let made = ServerBackup(name: name, time: now, bytes: try fileSize(path))
    let removed = try rotation.removeOld().map { String($0.split(separator: "/").last ?? "") }
    return (made, removed)
  }
}
