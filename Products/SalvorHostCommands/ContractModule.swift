import SQLiteClientStore
import SQLiteServerStore
import SalvorContracts
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage

// Not Foundation: it would bring its tables of all languages into the executable, 40 MB.
#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// A module as the command line names it: kind, name, options.
final class ContractModule: Sendable {
  let factory: ModuleFactory
  private let options: String
  private let context: ModuleContext
  /// Removed when the run is over: a product outlives what made it.
  private let folders = Mutex<[ScratchFolder]>([])

  init(_ kind: String, _ name: String, _ invocation: Invocation) throws {
    guard let kind = ModuleKind(rawValue: kind) else {
      let known = ModuleKind.allCases.map(\.rawValue)
      throw SalvorError(
        .usage,
        "There is no kind of module \"\(kind)\"\(suggestion(kind, among: known)). Kinds: \(known.joined(separator: ", "))."
      )
    }
    factory = try invocation.registry.factory(kind, name)
    let hasPath = factory.descriptor.options.contains { $0.name == "path" }
    if invocation.options["options"] == nil, !hasPath, kind == .clientStorage || kind == .serverStorage {
      throw SalvorError(
        .usage,
        "The storage module \(name) has no option path, and its database must outlive it for the contract: name it with --options and {file}."
      )
    }
    options = invocation.options["options"] ?? (hasPath ? "{ path: \"{file}\" }" : "{}")
    context = ModuleContext(environment: invocation.environment, modules: invocation.registry)
  }

  /// How to make products that have one database, which nobody has used before.
  func maker<Product>(_ type: Product.Type) throws -> @Sendable () throws -> Product {
    let folder = try ScratchFolder("contract")
    folders.withLock { $0.append(folder) }
    let options = options.split(separator: "{file}", omittingEmptySubsequences: false)
      .joined(separator: folder.file("database"))
    return { try self.make(type, options) }
  }

  private func make<Product>(_ type: Product.Type, _ options: String) throws -> Product {
    let value: ConfigurationValue
    do {
      value = try JSON5Reader.read(Array(options.utf8), file: "--options")
    } catch {
      throw SalvorError(.usage, "The options cannot be read: \(render([error]))")
    }
    var reader = OptionReader(value, file: "--options", path: "")
    let make = factory.prepare(&reader, context, as: type)
    reader.reportUnknownKeys()
    guard let make, reader.diagnostics.errors.isEmpty else {
      throw SalvorError(.usage, "The options do not make the module: \(render(reader.diagnostics))")
    }
    return try make()
  }
}

/// Fresh SQLite databases of both sides, for contracts that ask for some.
let contractStores = StorePairSubject(
  client: StoreSubject {
    let folder = try ScratchFolder("contract")
    return { SQLiteClientStore(path: folder.file("device.db")) }
  },
  server: StoreSubject(makeRestorable: {
    let folder = try ScratchFolder("contract")
    let count = Atomic<Int>(0)
    return .backedUp(freshPath: { folder.file("\(count.wrappingAdd(1, ordering: .relaxed).newValue).backup") }) {
      contractServer(folder)
    }
  }) {
    let folder = try ScratchFolder("contract")
    return { contractServer(folder) }
  })

/// What is left of a device's file is no database.
@Sendable func overwriteFile(of store: any RecoveringClientStore) throws {
  for suffix in ["-wal", "-shm"] { unlink(store.location + suffix) }
  guard let file = fopen(store.location, "w") else {
    throw SalvorError(.storage, "\(store.location) cannot be written: \(String(cString: strerror(errno))).")
  }
  defer { fclose(file) }
  let dots = [UInt8](repeating: 0x2E, count: 20_000)
  guard fwrite(dots, 1, dots.count, file) == dots.count else {
    throw SalvorError(.storage, "\(store.location) cannot be written.")
  }
}

private func contractServer(_ folder: ScratchFolder) -> SQLiteServerStore {
  SQLiteServerStore(SQLiteServerStore.Options(path: folder.file("consolidated.db"), durability: .normal))
}
