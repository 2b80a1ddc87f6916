import Foundation
import MemoryStore
import SQLiteClientStore
import SQLiteServerStore
import SalvorContracts
import SalvorModel
import SalvorStorage
import Testing

/// A directory of one database and what stands beside it, in memory where the system has such a file system; removed when
/// nobody has the database any more, and with all others when the process ends.
private final class Folder: Sendable {
  private static let base: URL = {
    let memory = URL(fileURLWithPath: "/dev/shm")
    let base =
      FileManager.default.isWritableFile(atPath: memory.path) ? memory : FileManager.default.temporaryDirectory
    let made = base.appendingPathComponent("salvor-recovery-tests-\(UUID().uuidString)")
    folderOfAll.withLock { $0 = made }
    atexit { folderOfAll.withLock { $0.map { try? FileManager.default.removeItem(at: $0) } } }
    return made
  }()
  private let url: URL
  init() throws {
    url = Self.base.appendingPathComponent(UUID().uuidString)
    try FileManager.default.createDirectory(at: url, withIntermediateDirectories: true)
  }
  deinit { try? FileManager.default.removeItem(at: url) }
  func path(_ name: String) -> String { url.appendingPathComponent(name).path }
}

private let folderOfAll = Mutex<URL?>(nil)

let sqliteStores = StorePairSubject(
  client: StoreSubject {
    let folder = try Folder()
    return { SQLiteClientStore(path: folder.path("device.db")) }
  },
  server: StoreSubject(makeRestorable: {
    let folder = try Folder()
    return .backedUp(freshPath: { folder.path("\(UUID().uuidString).backup") }) {
      SQLiteServerStore(SQLiteServerStore.Options(path: folder.path("consolidated.db"), durability: .normal))
    }
  }) {
    let folder = try Folder()
    return { SQLiteServerStore(SQLiteServerStore.Options(path: folder.path("consolidated.db"), durability: .normal)) }
  })

@Sendable func overwriteFile(of store: any RecoveringClientStore) throws {
  for suffix in ["-wal", "-shm"] { try? FileManager.default.removeItem(atPath: store.location + suffix) }
  try Data(repeating: 0x2E, count: 20_000).write(to: URL(fileURLWithPath: store.location))
}

@Sendable func damageMemory(of store: any RecoveringClientStore) throws {
  try #require(store as? MemoryClientStore).damage()
}

let memoryStores = StorePairSubject(
  client: StoreSubject {
    let database = MemoryClientDatabase()
    return { MemoryClientStore(database) }
  },
  server: .inMemory(
    { MemoryServerDatabase() }, open: { MemoryServerStore($0) }, backup: { $0.backup() }, restore: { $0.restore($1) }))
