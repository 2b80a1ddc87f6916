// swift-tools-version: 6.1
import PackageDescription

// The house: Modules/ is what Salvor is (protocols and engines, no C library), Plugins/ is what can be
// exchanged (one folder, one seam), Products/ is what an application imports, Tools/ and Examples/ are the executables. Which module may import which is
// written in docs/architecture/house.md and checked by Tests/HouseTests.

/// The SQLite that is linked, by its library's and its pkg-config file's name: one that can encrypt is `sqlcipher`.
let sqlite = Context.environment["SALVOR_SQLITE"] ?? "sqlite3"

/// A module of Modules/: it imports only modules that stand above it.
func module(_ name: String, _ dependencies: [Target.Dependency] = []) -> Target {
  .target(name: name, dependencies: dependencies, path: "Modules/\(name)", exclude: ["README.md"])
}

/// A plug-in of Plugins/: it imports protocols, never an engine or another plug-in.
func plugin(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
  .target(name: name, dependencies: dependencies, path: "Plugins/\(name)", exclude: ["README.md"])
}

/// What an application adds: one import for a client, a server, or the seams. Nothing but lists of what stands elsewhere.
func product(_ name: String, _ dependencies: [Target.Dependency]) -> Target {
  .target(name: name, dependencies: dependencies, path: "Products/\(name)", exclude: ["README.md"])
}

func example(_ name: String, _ dependencies: [Target.Dependency], files: [String] = []) -> Target {
  .executableTarget(
    name: "example-\(name)", dependencies: dependencies, path: "Examples/\(name)", exclude: ["README.md"] + files)
}

func systemLibrary(_ name: String, pkgConfig: String, apt: String, brew: String) -> Target {
  .systemLibrary(
    name: name, path: "Plugins/\(name)", pkgConfig: pkgConfig,
    providers: [.apt([apt]), .brew([brew])])
}

func tests(_ name: String, _ dependencies: [Target.Dependency], resources: [Resource] = []) -> Target {
  .testTarget(
    name: name, dependencies: dependencies, path: "Tests/\(name)", resources: resources)
}

let protocols: [Target.Dependency] = [
  "SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorStorage", "SalvorTransport",
]

let strategyProtocols: [Target.Dependency] = ["SalvorModel", "SalvorModuleKit", "SalvorStorage", "SalvorRecovery"]

let policyProtocols: [Target.Dependency] = ["SalvorModuleKit", "SalvorStorage"]

let package = Package(
  name: "salvor",
  platforms: [.macOS(.v13), .iOS(.v16)],
  products: [
    .library(name: "SalvorClient", targets: ["SalvorClient"]),
    .library(name: "SalvorServer", targets: ["SalvorServer"]),
    .library(name: "SalvorModules", targets: ["SalvorModules"]),
    .library(name: "SalvorFoundation", targets: ["SalvorFoundation"]),
    .library(name: "SalvorHost", targets: ["SalvorHost", "SalvorHostCommands", "StandardModules"]),
    .library(name: "SalvorContracts", targets: ["SalvorContracts"]),
    // libsalvor-c.so: the C ABI. An executable has the name salvor; Tools/libsalvor makes libsalvor.so of it.
    .library(name: "salvor-c", type: .dynamic, targets: ["LibSalvor"]),
    .executable(name: "salvor", targets: ["salvor"]),
    .executable(name: "salvor-bench", targets: ["salvor-bench"]),
  ],
  traits: [
    .trait(name: "HTTPServer", description: "The HTTP server transport (needs libmicrohttpd)"),
    .trait(name: "HTTPClient", description: "The HTTP client transport (needs libcurl on Linux)"),
    .trait(name: "Zstd", description: "The content coding zstd (needs libzstd)"),
    .trait(
      name: "PostgreSQL", description: "PostgreSQL as the consolidated database (needs libpq)"),
    .default(enabledTraits: ["HTTPServer", "HTTPClient", "Zstd"]),
  ],
  targets: [
    // Modules, in the order of the import rule.
    module("SalvorModel"),
    module("SalvorModuleKit", ["SalvorModel"]),
    module("SalvorWire", ["SalvorModel"]),
    module("SalvorStorage", ["SalvorModel", "SalvorModuleKit", "SalvorWire"]),
    module("SalvorTransport", ["SalvorModel", "SalvorModuleKit"]),
    module("SalvorRecovery", ["SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorStorage"]),
    module("SalvorConfiguration", protocols + ["SalvorRecovery"]),
    module("SalvorClientEngine", protocols + ["SalvorRecovery"]),
    module("SalvorServerEngine", protocols),
    module("SalvorClientHost", protocols + ["SalvorRecovery", "SalvorConfiguration", "SalvorClientEngine"]),
    module("SalvorServerHost", protocols + ["SalvorConfiguration", "SalvorServerEngine"]),
    module(
      "SalvorHost",
      protocols + [
        "SalvorRecovery", "SalvorConfiguration", "SalvorClientEngine", "SalvorServerEngine", "SalvorClientHost",
        "SalvorServerHost",
      ]),
    module("SalvorContracts", protocols + ["SalvorRecovery", "SalvorClientEngine", "SalvorServerEngine"]),
    module(
      "SalvorSimulation",
      protocols + ["SalvorRecovery", "SalvorClientEngine", "SalvorServerEngine", "SalvorHost", "SalvorContracts"]),

    // Plugins.
    systemLibrary("CSQLite", pkgConfig: sqlite, apt: "libsqlite3-dev", brew: "sqlite"),
    systemLibrary("CZstd", pkgConfig: "libzstd", apt: "libzstd-dev", brew: "zstd"),
    systemLibrary("CZlib", pkgConfig: "zlib", apt: "zlib1g-dev", brew: "zlib"),
    systemLibrary("CCurl", pkgConfig: "libcurl", apt: "libcurl4-openssl-dev", brew: "curl"),
    systemLibrary(
      "CMicrohttpd", pkgConfig: "libmicrohttpd", apt: "libmicrohttpd-dev", brew: "libmicrohttpd"),
    systemLibrary("CCrypto", pkgConfig: "libcrypto", apt: "libssl-dev", brew: "openssl@3"),
    systemLibrary("CPQ", pkgConfig: "libpq", apt: "libpq-dev", brew: "libpq"),
    plugin("ContentHash", ["SalvorWire", .target(name: "CCrypto", condition: .when(platforms: [.linux]))]),
    .target(
      name: "SQLiteSupport", dependencies: ["SalvorModel", "SalvorWire", "SalvorStorage", "CSQLite"],
      path: "Plugins/SQLiteSupport", exclude: ["README.md"], linkerSettings: [.linkedLibrary(sqlite)]),
    plugin("SnapshotFiles", ["SalvorModel", "SalvorWire", "SalvorStorage", "SQLiteSupport", "ContentHash"]),
    plugin("SQLiteClientStore", protocols + ["SQLiteSupport", "ContentHash", "SnapshotFiles"]),
    plugin("ServerStoreSupport", protocols + ["ContentHash"]),
    plugin("SQLiteServerStore", protocols + ["ServerStoreSupport", "SQLiteSupport", "ContentHash", "SnapshotFiles"]),
    plugin(
      "PostgreSQLServerStore",
      protocols + [
        "ServerStoreSupport", "ContentHash", "SnapshotFiles",
        .target(name: "CPQ", condition: .when(traits: ["PostgreSQL"])),
      ]),
    plugin("MemoryStore", protocols + ["ContentHash"]),
    plugin(
      "HTTPClientTransport",
      [
        "SalvorModel", "SalvorModuleKit", "SalvorTransport",
        .target(name: "CCurl", condition: .when(platforms: [.linux], traits: ["HTTPClient"])),
      ]),
    plugin(
      "HTTPServerTransport",
      [
        "SalvorModel", "SalvorModuleKit", "SalvorTransport",
        .target(name: "CMicrohttpd", condition: .when(traits: ["HTTPServer"])),
        // When a certificate ends, for `salvor doctor`.
        .target(name: "CCrypto", condition: .when(platforms: [.linux], traits: ["HTTPServer"])),
      ]),
    plugin("LoopbackTransport", ["SalvorModel", "SalvorModuleKit", "SalvorTransport"]),
    plugin("GzipCompression", ["SalvorModel", "SalvorModuleKit", "SalvorTransport", "CZlib"]),
    plugin(
      "ZstdCompression",
      [
        "SalvorModel", "SalvorModuleKit", "SalvorTransport",
        .target(name: "CZstd", condition: .when(traits: ["Zstd"])),
      ]),
    plugin("IdentityCompression", ["SalvorModel", "SalvorModuleKit", "SalvorTransport"]),
    plugin("TokenAuthentication", ["SalvorModel", "SalvorModuleKit", "SalvorTransport", "ContentHash"]),
    plugin("WebhookValidator", protocols + ["ContentHash"]),
    plugin("RecreateRecovery", strategyProtocols),
    plugin("CopyAndResubscribeRecovery", strategyProtocols),
    plugin("UploadThenRecreateRecovery", strategyProtocols),
    plugin("RecoverUnsyncedChangesRecovery", strategyProtocols),
    plugin("DiscardUnsyncedChangesRecovery", strategyProtocols),
    plugin("ManualRecovery", strategyProtocols),
    plugin("ClientWinsPolicy", policyProtocols),
    plugin("ServerWinsPolicy", policyProtocols),
    plugin("KeepVersionsPolicy", policyProtocols),
    plugin("ModuleProgram", ["SalvorModel", "SalvorModuleKit", "SalvorWire"]),
    plugin("ProgramRecovery", strategyProtocols + ["SalvorWire", "ModuleProgram"]),
    plugin("ProgramPolicy", ["SalvorModel", "SalvorWire", "ModuleProgram"] + policyProtocols),
    plugin("NoAuthentication", ["SalvorModel", "SalvorModuleKit", "SalvorTransport"]),
    plugin(
      "ClientModules",
      [
        "SalvorModuleKit", "SQLiteClientStore", "HTTPClientTransport", "GzipCompression", "IdentityCompression",
        "ZstdCompression", "RecreateRecovery", "CopyAndResubscribeRecovery", "UploadThenRecreateRecovery",
        "RecoverUnsyncedChangesRecovery", "DiscardUnsyncedChangesRecovery", "ManualRecovery", "ProgramRecovery",
      ]),
    plugin(
      "ServerModules",
      [
        "SalvorModuleKit", "SQLiteServerStore",
        .target(name: "PostgreSQLServerStore", condition: .when(traits: ["PostgreSQL"])), "HTTPServerTransport",
        "HTTPClientTransport", "GzipCompression", "IdentityCompression", "ZstdCompression", "TokenAuthentication",
        "NoAuthentication", "ClientWinsPolicy",
        "ServerWinsPolicy",
        "KeepVersionsPolicy", "ProgramPolicy", "WebhookValidator",
      ]),
    plugin(
      "StandardModules",
      ["SalvorModuleKit", "ClientModules", "ServerModules", "MemoryStore", "LoopbackTransport"]),

    // What an application imports.
    product(
      "SalvorClient",
      protocols + [
        "SalvorRecovery", "SalvorConfiguration", "SalvorClientEngine", "SalvorClientHost", "ClientModules",
        "SQLiteClientStore", .target(name: "SalvorFoundation", condition: .when(platforms: [.macOS, .iOS])),
      ]),
    product(
      "SalvorServer",
      protocols + ["SalvorConfiguration", "SalvorServerEngine", "SalvorServerHost", "ServerModules"]),
    product("SalvorModules", protocols + ["SalvorRecovery"]),
    product("SalvorFoundation", ["SalvorModel"]),

    // The C ABI: nothing but the functions of its header is seen from outside, and Swift's runtime is inside where the toolchain
    // can (Linux).
    .target(
      name: "LibSalvor",
      dependencies: ["SalvorClient", "SalvorModel", "SalvorModuleKit", "SalvorStorage", "SalvorWire"],
      path: "Products/LibSalvor",
      exclude: ["README.md", "include", "exports.map"],
      linkerSettings: [
        .unsafeFlags(
          [
            "-static-stdlib", "-Xlinker", "--version-script=\(Context.packageDirectory)/Products/LibSalvor/exports.map",
            "-Xlinker", "-soname=libsalvor.so.1",
          ], .when(platforms: [.linux]))
      ]),
    product(
      "SalvorHostCommands",
      protocols + [
        "SalvorRecovery", "SalvorHost", "SalvorContracts", "SQLiteClientStore", "SQLiteServerStore",
        "TokenAuthentication",
      ]),

    // Examples that are programs.
    example("quickstart", ["SalvorClient"]),
    example("own-server", ["SalvorServer"]),
    example("pages", ["SalvorClient", "SalvorModules"]),
    example("notes", ["SalvorClient", "CSQLite"], files: ["salvor.json5", "schema.json5"]),
    example(
      "modules", ["SalvorModules", "SalvorHost", "SalvorHostCommands", "StandardModules", "SQLiteClientStore"]),
    example("own-host", ["SalvorModules", "SalvorHost", "SalvorHostCommands", "StandardModules"]),

    // Tools.
    .executableTarget(
      name: "salvor",
      dependencies: [
        "SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorStorage", "SalvorTransport", "SalvorRecovery",
        "SalvorHost", "SalvorHostCommands", "SalvorContracts", "StandardModules", "TokenAuthentication",
        "SQLiteSupport", "SQLiteClientStore",
        "SQLiteServerStore", "GzipCompression",
      ], path: "Tools/salvor",
      // A library under `plugins` has no Salvor of its own: it uses this one.
      linkerSettings: [.unsafeFlags(["-Xlinker", "--export-dynamic"], .when(platforms: [.linux]))]),
    .executableTarget(
      name: "salvor-crash", dependencies: ["SalvorModel", "SalvorWire", "SQLiteSupport"], path: "Tools/salvor-crash"),
    .executableTarget(
      name: "salvor-simulate",
      dependencies: [
        "SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorSimulation", "StandardModules", "SQLiteSupport",
        "CSQLite",
      ],
      path: "Tools/salvor-simulate"),
    .executableTarget(
      name: "salvor-load",
      dependencies: [
        "SalvorModel", "SalvorStorage", "SalvorTransport", "SalvorClientEngine", "SalvorHost", "StandardModules",
        "SQLiteSupport", "SQLiteClientStore", "HTTPClientTransport", "GzipCompression", "ManualRecovery",
        "RecoverUnsyncedChangesRecovery",
      ], path: "Tools/salvor-load"),
    .executableTarget(
      name: "salvor-bench",
      dependencies: protocols + [
        "SalvorRecovery", "SalvorConfiguration", "SalvorClientEngine", "SalvorServerEngine", "SalvorServerHost",
        "SQLiteSupport", "SQLiteClientStore", "SQLiteServerStore",
        "HTTPClientTransport", "HTTPServerTransport", "GzipCompression", "ZstdCompression", "NoAuthentication",
        "RecoverUnsyncedChangesRecovery", "RecreateRecovery", "CopyAndResubscribeRecovery",
        .target(name: "PostgreSQLServerStore", condition: .when(traits: ["PostgreSQL"])),
        .target(name: "ServerStoreSupport", condition: .when(traits: ["PostgreSQL"])),
      ],
      path: "Tools/salvor-bench"),

    // Tests.
    tests("SalvorModelTests", ["SalvorModel", "SalvorFoundation"]),
    tests("SalvorModuleKitTests", ["SalvorModuleKit", "SalvorContracts"]),
    tests("SalvorWireTests", ["SalvorWire"]),
    tests(
      "SalvorServerTests",
      protocols + [
        "SalvorServerEngine", "SQLiteServerStore", "SQLiteSupport", "MemoryStore", "NoAuthentication",
        "SalvorContracts",
      ]),
    tests(
      "SalvorHostTests",
      [
        "SalvorHost", "SalvorRecovery", "StandardModules", "ClientModules", "ServerModules", "SalvorContracts",
        "ModuleProgram", "ProgramRecovery", "ProgramPolicy",
      ]),
    tests(
      "SQLiteSupportTests",
      ["SQLiteSupport", "SnapshotFiles", "ContentHash", "SalvorModel", "SalvorWire", "SalvorStorage"]),
    tests(
      "SQLiteClientStoreTests",
      protocols + ["CSQLite", "SQLiteClientStore", "SQLiteSupport", "MemoryStore", "SalvorContracts"]),
    tests(
      "SQLiteServerStoreTests",
      protocols + ["SQLiteServerStore", "ServerStoreSupport", "SQLiteSupport", "SalvorContracts", "MemoryStore"]),
    // Empty without the trait PostgreSQL.
    tests(
      "PostgreSQLServerStoreTests",
      protocols + [
        "PostgreSQLServerStore", "ServerStoreSupport", "SalvorContracts", "MemoryStore", "SQLiteClientStore",
        "ContentHash",
      ]),
    tests("MemoryStoreTests", protocols + ["MemoryStore", "SalvorContracts"]),
    tests(
      "TransportTests",
      protocols + [
        "HTTPClientTransport", "HTTPServerTransport", "LoopbackTransport", "GzipCompression",
        "IdentityCompression", "ZstdCompression", "TokenAuthentication", "NoAuthentication", "SalvorContracts",
        "WebhookValidator",
        "ContentHash",
      ]),
    // The transport of Apple's systems, on Foundation's URLSession for Linux.
    tests(
      "URLSessionTests",
      [
        "SalvorModel", "SalvorModuleKit", "SalvorTransport", "SalvorContracts", "HTTPServerTransport",
      ]),
    tests(
      "EngineTests",
      protocols + [
        "SalvorClientEngine", "SalvorServerEngine", "MemoryStore", "LoopbackTransport", "GzipCompression",
        "NoAuthentication",
        "SalvorContracts",
      ]),
    tests(
      "ScenarioTests",
      protocols + [
        "SalvorHost", "SalvorContracts", "StandardModules", "SQLiteClientStore", "SQLiteSupport", "GzipCompression",
        "TokenAuthentication", "ContentHash",
        .target(name: "PostgreSQLServerStore", condition: .when(traits: ["PostgreSQL"])),
        .target(name: "ServerStoreSupport", condition: .when(traits: ["PostgreSQL"])),
      ]),
    tests(
      "RecoveryTests",
      protocols + [
        "SalvorRecovery", "SalvorContracts", "SQLiteClientStore", "SQLiteServerStore", "MemoryStore",
        "RecreateRecovery", "CopyAndResubscribeRecovery", "UploadThenRecreateRecovery",
        "RecoverUnsyncedChangesRecovery", "DiscardUnsyncedChangesRecovery", "ManualRecovery", "ModuleProgram",
        "ProgramRecovery",
      ]),
    tests(
      "EndToEndTests",
      [
        "salvor", "salvor-crash", "salvor-load", "example-quickstart", "example-own-server", "example-own-host",
        "example-notes", "example-modules", "example-pages",
        "SQLiteSupport",
        "SalvorModel",
        .target(name: "PostgreSQLServerStore", condition: .when(traits: ["PostgreSQL"])),
        .target(name: "ServerStoreSupport", condition: .when(traits: ["PostgreSQL"])),
      ]),
    tests("SimulationTests", ["salvor-simulate", "SalvorSimulation", "SalvorModel"]),
    tests("HouseTests", ["SalvorModel"]),
  ],
  swiftLanguageModes: [.v6]
)

for target in package.targets where target.type != .system {
  target.swiftSettings = [.enableUpcomingFeature("ExistentialAny")]
  if target.name == "URLSessionTests" { target.swiftSettings?.append(.define("URLSESSION_TESTED")) }
}
