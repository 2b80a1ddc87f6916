import Foundation
import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import StandardModules

/// The two files that docs/reference/configuration.md and the design show.
enum ExampleFiles {
  static let schema = """
    {
      version: 1,
      parameters: { region: "text" },               // sync parameters that subscriptions give values to
      groups: { reference: {}, inspections: { serverInitiated: true } },   // a table without a group is in "default"
      tables: {
        severity: { maintained: "server", group: "reference", download: "key-set",
                    primaryKey: "id", columns: { id: "integer", name: "text" } },
        establishment: { maintained: "dual", group: "inspections", primaryKey: "id",
                    columns: { id: "text", name: "text", region: "text?", min_inspections_per_year: "integer = 1" },
                    scope: { region: "parameter:region" } },
        inspection: { maintained: "dual", group: "inspections", primaryKey: "id",
                    columns: { id: "text", establishment_id: "text", date: "text", inspector: "text?" },
                    references: { establishment_id: { table: "establishment", scope: "inherit", onDelete: "cascade" } },
                    conflicts: "keep-versions" },
        infraction: { maintained: "dual", group: "inspections", primaryKey: ["inspection_id", "line"],
                    columns: { inspection_id: "text", line: "integer", note: "text?", IsDirty: "boolean = 0", IsDeleted: "boolean = 0" },
                    references: { inspection_id: { table: "inspection", scope: "inherit" } },
                    flags: { dirty: "IsDirty", deleted: "IsDeleted" } },
        draft: { maintained: "client", primaryKey: "id", columns: { id: "text", body: "text?" } },
      },
    }
    """

  static let configuration = """
    {
      schema: "schema.json5",                      // relative to this file; may be given inline
      server: {
        storage: { module: "sqlite", path: "consolidated.db" },     // or: module: "postgresql", url: "…"
        listen: { module: "http", address: "127.0.0.1", port: 8484 },
        compression: ["gzip"],                     // offered, best first; "identity" always works
        authentication: { module: "tokens", file: "tokens.json5" }, // or: module: "none" (loopback only)
        recovery: { clientRecoveryEnabled: true, selfServiceRemoteDeletion: false, historyCheck: true },
        retention: { tombstones: "90d" },
      },
      client: {
        storage: { module: "sqlite", path: "field.db" },
        transport: { module: "http", url: "http://127.0.0.1:8484", compression: "gzip" },
        credentials: { token: "${SALVOR_TOKEN}" }, // ${NAME} is taken from the environment;
                                                   // with authentication "none": { principal: "anna" }
        recovery: {
          strategy: "recover-unsynced-changes",
          reasons: { "schema-incompatible": "manual" },             // a strategy for one reason
          options: { "upload-then-recreate": { then: "copy-and-resubscribe" } },
          hooks: { beforeReset: "./before.sh", afterReset: "./after.sh" },
          backups: { keep: 3 },
          heal: "own",
        },
        errorArchive: { individualDeletion: false },
      },
      plugins: ["./libMyStrategy.so"],             // modules loaded at start
    }
    """
}

extension ExampleFiles {
  /// Libraries are refused as yet.
  static let configurationWithoutLibraries = configuration.replacingOccurrences(
    of: "\"./libMyStrategy.so\"", with: "")
}

/// A directory of its own, removed with it.
final class Directory {
  let path: String

  init() throws {
    path = NSTemporaryDirectory() + "salvor-configuration-" + UUID().uuidString
    try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
  }

  deinit { try? FileManager.default.removeItem(atPath: path) }

  func write(_ name: String, _ text: String, executable: Bool = false) throws {
    try Data(text.utf8).write(to: URL(fileURLWithPath: path + "/" + name))
    if executable {
      try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: path + "/" + name)
    }
  }

  func contents() throws -> [String] { try FileManager.default.contentsOfDirectory(atPath: path).sorted() }

  /// The report without the directory, which is another one each time.
  func report(_ diagnostics: [Diagnostic]) -> String {
    render(diagnostics).replacingOccurrences(of: path + "/", with: "")
  }
}

/// Modules whose options are read and that cannot be made: a configuration is checked without them.
enum TestModules {
  static func registry() throws -> ModuleRegistry {
    try ModuleRegistry(
      [
        store(.clientStorage, (any ClientStore).self), store(.serverStorage, (any ServerStore).self),
        module(.serverTransport, "http", (any ServerTransport).self, ["address", "port"]) { reader, _ in
          _ = reader.string("address", default: "127.0.0.1")
          _ = reader.integer("port", in: 0...65535, default: 8484)
        },
        module(.clientTransport, "http", (any ClientTransport).self, ["url", "compression"]) { reader, _ in
          _ = reader.string("url")
          _ = reader.string("compression", default: "identity")
        },
        module(.clientTransport, "pipe", (any ClientTransport).self, []) { _, _ in },
        module(.compression, "gzip", (any Compression).self, []) { _, _ in },
        module(.compression, "identity", (any Compression).self, []) { _, _ in },
        module(.authentication, "tokens", (any Authentication).self, ["file"], credentials: ["token"]) { reader, _ in
          _ = reader.string("file")
        },
        module(.authentication, "none", (any Authentication).self, [], credentials: ["principal"]) { _, _ in },
        module(.authentication, "card", (any Authentication).self, [], credentials: ["pin"]) { _, _ in },
      ] + StandardModules.all.filter { [.recoveryStrategy, .conflictPolicy].contains($0.descriptor.kind) })
  }

  private static func store<Product: Sendable>(_ kind: ModuleKind, _ product: Product.Type) -> ModuleFactory {
    module(kind, "sqlite", product, ["path"]) { reader, _ in _ = reader.string("path") }
  }

  private static func module<Product: Sendable>(
    _ kind: ModuleKind, _ name: String, _ product: Product.Type, _ options: [String], credentials: [String] = [],
    read: @escaping @Sendable (inout OptionReader, ModuleContext) -> Void
  ) -> ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(
        kind: kind, name: name, summary: "A test's",
        options: options.map {
          ModuleOption($0, type: "string", default: $0 == "compression" ? "\"gzip\"" : "none", "an option")
        },
        credentialKeys: credentials),
      product: product
    ) { reader, context in
      read(&reader, context)
      let seen = "\(context.directory) \(context.limits.columnsMax)"
      return { throw SalvorError(.failed, seen) }
    }
  }
}
