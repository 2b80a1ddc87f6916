import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorRecovery
import Testing

@Suite("salvor.json5 (interfaces.md)")
struct HostConfigurationTests {
  private let directory: Directory
  private let registry: ModuleRegistry

  init() throws {
    directory = try Directory()
    registry = try TestModules.registry()
    try directory.write("schema.json5", ExampleFiles.schema)
    try directory.write("before.sh", "#!/bin/sh\n", executable: true)
    try directory.write("after.sh", "#!/bin/sh\n", executable: true)
  }

  private func load(
    _ text: String, environment: [String: String] = ["SALVOR_TOKEN": "hunter2"],
    sections: Set<HostSection> = [.server, .client]
  ) throws -> ConfigurationResult {
    try directory.write("salvor.json5", text)
    return HostConfiguration.load(
      path: directory.path + "/salvor.json5", registry: registry, environment: environment, sections: sections)
  }

  private func report(_ text: String, environment: [String: String] = [:]) throws -> String {
    directory.report(try load(text, environment: environment).diagnostics)
  }

  private let server = """
    server: { storage: { module: "sqlite", path: "c.db" }, listen: { module: "http" }, authentication: { module: "none" } }
    """
  private let client = """
    client: { storage: { module: "sqlite", path: "f.db" }, transport: { module: "http", url: "http://x" } }
    """
  private let schema = "schema: {tables: {a: {primaryKey: 'x', columns: {x: 'text'}}}}"

  @Test("the example of interfaces.md means what it says; only the library that it names is not there")
  func example() throws {
    let whole = directory.report(try load(ExampleFiles.configuration).diagnostics)
    #expect(
      whole.contains("plugins[0]: names the library ./libMyStrategy.so, which") && !whole.contains("\n"), "\(whole)")
    let result = try load(ExampleFiles.configurationWithoutLibraries)
    #expect(directory.report(result.diagnostics) == "")
    let configuration = try result.get()
    #expect(configuration.directory == directory.path)
    #expect(configuration.schema.tables.count == 5)

    let server = try #require(configuration.server)
    #expect(server.storage.descriptor.kind == .serverStorage)
    #expect(server.listen.descriptor.name == "http")
    #expect(server.compressions.map(\.descriptor.name) == ["gzip"])
    #expect(server.authentication.descriptor.name == "tokens")
    #expect(server.clientRecoveryEnabled && !server.selfServiceRemoteDeletion && server.historyCheck)
    #expect(server.tombstoneRetentionMilliseconds == 90 * 24 * 3600 * 1000)
    #expect(server.administrationToken == nil)
    #expect(server.limits == Limits())

    let client = try #require(configuration.client)
    #expect(client.storage.descriptor.kind == .clientStorage)
    #expect(client.transport.descriptor.kind == .clientTransport)
    #expect(client.compression?.descriptor.name == "gzip")
    #expect(client.credentials == ["token": "hunter2"])
    #expect(client.recovery.strategy == "recover-unsynced-changes")
    #expect(client.recovery.reasons == [.schemaIncompatible: "manual"])
    #expect(
      try client.recovery.strategies.first { $0.descriptor.name == "upload-then-recreate" }?.make().guarantees
        .clientOnlyTables == .kept)
    #expect(client.recovery.beforeReset == directory.path + "/./before.sh")
    #expect(client.recovery.afterReset == directory.path + "/./after.sh")
    #expect(client.recovery.hookTimeoutSeconds == 300)
    #expect(client.recovery.backupsKept == 3)
    #expect(client.recovery.heal == .own)
    #expect(!client.individualDeletion)
    #expect(!client.optimisesQueue)
  }

  @Test("a dozen and more mistakes are reported in one list, each with line, key path and the nearest right name")
  func golden() throws {
    try directory.write(
      "bad-schema.json5",
      """
      {
        tables: {
          visit: {
            primaryKey: "idd",
            columns: { id: "text", shop: "txt" },
            references: { shop: "shopp" },
          },
          shop: { primaryKey: "id", columns: { id: "text" }, group: "g" },
        },
        groups: {},
      }
      """)
    let result = try load(
      """
      {
        schema: "bad-schema.json5",
        server: {
          storage: { module: "sqlit", path: "c.db" },
          listen: { module: "http", prot: 8484, port: "8484" },
          compression: ["gzip", "brotli", "gzip"],
          authentication: { modul: "tokens" },
          recovery: { historyCheck: "yes" },
          retention: { tombstones: 90 },
          limits: { uploadByteMax: 1, depthMax: 1 },
        },
        client: {
          storage: { module: "sqlite" },
          transport: { module: "http", url: "${SERVER_URL}", compression: "zip" },
          credentials: { tokn: "secret-of-anna" },
          recovery: {
            strategy: "recover-unsynced-change",
            reasons: { "schema-incompatibel": "manual", "server-restored": "recrate" },
            options: { "upload-then-recreate": { then: "manual" }, recreate: { then: "manual" } },
            hooks: { before: "./x" },
            backups: { keep: -1 },
            heal: "mine",
          },
          errorArchive: { individualDeletion: 1 }, queue: { optimize: true },
          recovery: {},
        },
        plugin: [],
      }
      """)
    let strategies =
      "copy-and-resubscribe, discard-unsynced-changes, manual, program, recover-or-discard-unsynced-changes, "
      + "recover-unsynced-changes, recreate, upload-then-recreate"
    let limits = LimitSetting.all.map(\.name).joined(separator: ", ")
    let reasons = RecoveryReason.allCases.map(\.rawValue).joined(separator: ", ")
    let expected = """
      salvor.json5:4: server.storage.module: "sqlit" is no server-storage module here; known: sqlite; did you mean "sqlite"?
      salvor.json5:5: server.listen.port: must be a whole number from 0 to 65535, found a string
      salvor.json5:5: server.listen.prot: is not a key here; allowed: module, address, port; did you mean "port"?
      salvor.json5:6: server.compression[1]: "brotli" is no compression module here; known: gzip, identity
      salvor.json5:6: server.compression[2]: is named before; keep one
      salvor.json5:7: server.authentication.module: is missing; known: card, none, tokens
      salvor.json5:8: server.recovery.historyCheck: must be true or false, found a string
      salvor.json5:9: server.retention.tombstones: must be a length of time in quotes, like "90d" or "12h" (units: ms, s, m, h, d, w)
      salvor.json5:10: server.limits.depthMax: must be a whole number from 8 to 256, found a smaller one
      salvor.json5:10: server.limits.uploadByteMax: is not a key here; allowed: \(limits); did you mean "uploadBytesMax"?
      salvor.json5:13: client.storage.path: is missing; give a string
      salvor.json5:14: client.transport.url: needs the environment variable SERVER_URL, which is not set
      salvor.json5:14: client.transport.compression: "zip" is no compression module here; known: gzip, identity; did you mean "gzip"?
      salvor.json5:15: client.credentials.tokn: is not a key here; allowed: token, principal, pin; did you mean "token"?
      salvor.json5:17: client.recovery.strategy: is "recover-unsynced-change"; allowed: \(strategies); did you mean "recover-unsynced-changes"?
      salvor.json5:18: client.recovery.reasons.server-restored: is "recrate"; allowed: \(strategies); did you mean "recreate"?
      salvor.json5:18: client.recovery.reasons.schema-incompatibel: is not a key here; allowed: \(reasons); did you mean "schema-incompatible"?
      salvor.json5:19: client.recovery.options.recreate.then: is not a key here; none is allowed
      salvor.json5:19: client.recovery.options.upload-then-recreate.then: is "manual"; allowed: recreate, copy-and-resubscribe
      salvor.json5:20: client.recovery.hooks.before: is not a key here; allowed: beforeReset, afterReset, timeoutSeconds
      salvor.json5:21: client.recovery.backups.keep: must be a whole number from 0 to 1000, found a smaller one
      salvor.json5:22: client.recovery.heal: is "mine"; allowed: own, all, review, off
      salvor.json5:24: client.errorArchive.individualDeletion: must be true or false, found a whole number
      salvor.json5:24: client.queue.optimize: is not a key here; allowed: optimise; did you mean "optimise"?
      salvor.json5:25: client.recovery: stands here again, first in line 16; keep one of them
      salvor.json5:27: plugin: is not a key here; allowed: plugins, schema, server, client; did you mean "plugins"?
      bad-schema.json5:4: tables.visit.primaryKey: names the column "idd", which the table does not have; did you mean "id"?
      bad-schema.json5:5: tables.visit.columns.shop: is the type "txt"; allowed: text, integer, real, blob, boolean, timestamp, json; did you mean "text"?
      bad-schema.json5:6: tables.visit.references.shop: names the table "shopp", which is not in the schema; did you mean "shop"?
      bad-schema.json5:8: tables.shop.group: is "g", which is not declared under groups; declared: none
      """
    #expect(directory.report(result.diagnostics).split(separator: "\n") == expected.split(separator: "\n"))
    #expect(result.configuration == nil)
    let error = try #require(throws: SalvorError.self) { _ = try result.get() }
    #expect(error.code == .configuration)
    #expect(error.message.hasPrefix("The configuration has 30 mistakes; nothing was started.\n"))
    #expect(!error.message.contains("secret-of-anna"))
  }

  @Test("a file for a server only, and one for devices only, are both whole")
  func halves() throws {
    let forServer = try load("{\(schema), \(server)}").get()
    #expect(forServer.client == nil)
    #expect(forServer.server?.compressions.map(\.descriptor.name) == ["gzip"])
    let forClient = try load("{\(schema), \(client)}").get()
    #expect(forClient.server == nil)
    #expect(forClient.client?.recovery.strategy == "recover-unsynced-changes")
    #expect(
      try report("{\(schema)}")
        == "salvor.json5:1: has neither a server nor a client section; give one of them, or both")
  }

  @Test("a wrong key is answered with every key that is one, those that nobody gave, too")
  func allowedKeys() throws {
    let told = try report("{\(schema), \(server.dropLast()), retentoin: 1 }, \(client.dropLast()), lgo: 1 }}")
    #expect(
      told.contains("retention, messages, administration, log, traces, backups, snapshots; did you mean"), "\(told)")
    #expect(told.contains("errorArchive, queue, log, seed; did you mean"), "\(told)")
  }

  @Test("the address of snapshots is a URL that links can be put behind; the wrong ones are named with what is wrong")
  func snapshotAddress() throws {
    func made(_ url: String) throws -> ConfigurationResult {
      try load("{\(schema), \(server.dropLast()), snapshots: { url: '\(url)' } }}")
    }
    let good = try made("https://files.example.org/salvor//")
    #expect(directory.report(good.diagnostics) == "")
    #expect(try good.get().server?.snapshots?.url == "https://files.example.org/salvor")
    #expect(try load("{\(schema), \(server.dropLast()), snapshots: {} }}").get().server?.snapshots?.url == nil)
    for (url, why) in [
      ("files.example.org", "must begin with http:// or https://"), ("ftp://a", "must begin with http:// or https://"),
      ("https://a/b?c=d", "must have no query and no fragment"), ("https://a#b", "must have no query and no fragment"),
      ("https://anna:secret@a", "must hold no user and no password"), ("https://", "names no host"),
      ("https://a b", "must be a URL without spaces"), ("https://a:x", "has a port that is not a number"),
      ("https://a/" + String(repeating: "b", count: 2048), "must not be longer than 2048 bytes"),
    ] {
      let told = directory.report(try made(url).diagnostics)
      #expect(told.contains("snapshots.url") && told.contains(why) && !told.contains("secret"), "\(told)")
    }
    let clear = try made("http://files.example.org")
    #expect(clear.diagnostics.errors.isEmpty)
    #expect(directory.report(clear.diagnostics).contains("client.transport.insecure"))
    #expect(try made("http://127.0.0.1:8080").diagnostics.isEmpty)
  }

  @Test("loading opens nothing but the two files, and makes nothing")
  func touchesNothing() throws {
    let before = try directory.contents() + ["salvor.json5"]
    _ = try load(ExampleFiles.configurationWithoutLibraries).get()
    #expect(try directory.contents() == before.sorted())
  }

  @Test("modules are made with the file's directory and their section's limits")
  func context() throws {
    let configuration = try load(
      "{\(schema), \(server.dropLast(2)), limits: {columnsMax: 7}}, \(client.dropLast(2)), limits: {columnsMax: 9}}}"
    ).get()
    let fromServer = #expect(throws: SalvorError.self) { _ = try configuration.server?.storage.make() }
    #expect(fromServer?.message == "\(directory.path) 7")
    let fromClient = #expect(throws: SalvorError.self) { _ = try configuration.client?.storage.make() }
    #expect(fromClient?.message == "\(directory.path) 9")
  }

  @Test("the schema is checked with the stricter columnsMax of both sections")
  func schemaLimits() throws {
    #expect(
      try report(
        "{schema: {tables: {a: {primaryKey: 'x', columns: {x: 'text', y: 'text'}}}}, "
          + "\(server.dropLast(2)), limits: {columnsMax: 1}}}"
      ) == "salvor.json5:1: schema.tables.a.columns: has 2 columns; at most 1 travel (limits.columnsMax)")
  }

  @Test(
    "the schema: a file beside the configuration, or inline",
    arguments: [
      ("", "salvor.json5:1: schema: is missing; name the schema's file (\"schema.json5\"), or give the schema here"),
      ("schema: 3,", "salvor.json5:1: schema: must be a file's name or the schema itself, found a whole number"),
      ("schema: 'none.json5',", "salvor.json5:1: schema: names a file that cannot be read: No such file or directory"),
      ("schema: '.',", "salvor.json5:1: schema: names a file that cannot be read: Is a directory"),
      (
        "schema: {tables: {a: {}}},",
        """
        salvor.json5:1: schema.tables.a.primaryKey: is missing; give the key column, or a list of them
        salvor.json5:1: schema.tables.a.columns: is missing; give an object of columns: { id: "text" }
        """
      ),
      ("schema: {tables: {a: {primaryKey: 'x', columns: {x: 'text = ${HOME}'}}}},", ""),
    ])
  func schemas(text: String, expected: String) throws {
    #expect(try report("{\(text) \(client)}") == expected)
  }

  @Test("a file that cannot be read or is not JSON5 has one diagnostic")
  func unreadable() throws {
    let missing = HostConfiguration.load(path: directory.path + "/none.json5", registry: registry, environment: [:])
    #expect(
      directory.report(missing.diagnostics)
        == "none.json5: cannot be read: No such file or directory. Name another file with --config, or make one with salvor init"
    )
    #expect(try report("{\n  schema 'x'}") == "salvor.json5:2:10: expected a : after the key, found “'”")
    #expect(try report("[]") == "salvor.json5:1: must be an object { … }, found a list")
    #expect(
      try report("{\(schema), server: 1, client: []}") == """
        salvor.json5:1: server: must be an object { … }, found a whole number
        salvor.json5:1: client: must be an object { … }, found a list
        """)
  }

  @Test("${NAME} is taken from the environment, in values only; an unset one is named, a set one never shown")
  func environment() throws {
    let head = "{\(schema), \(client.dropLast(2)), credentials: "
    let set = try load(
      head + "{token: '<${A}$${A}${B_1}$5>'}}}", environment: ["A": "one", "B_1": "${A}"]
    ).get()
    #expect(set.client?.credentials == ["token": "<one${A}${A}$5>"])
    #expect(
      try report(
        head + "{token: '${A}${B}'}, recovery: {strategy: '${C}', heal: '${D}'}}}", environment: ["C": "secret"]
      )
      .split(separator: "\n") == [
        "salvor.json5:1: client.credentials.token: needs the environment variable A, which is not set",
        "salvor.json5:1: client.credentials.token: needs the environment variable B, which is not set",
        "salvor.json5:1: client.recovery.heal: needs the environment variable D, which is not set",
        "salvor.json5:1: client.recovery.strategy: is what the environment gives; allowed: copy-and-resubscribe, discard-unsynced-changes, manual, program, recover-or-discard-unsynced-changes, recover-unsynced-changes, recreate, upload-then-recreate",
        "salvor.json5:1: client.recovery.heal: is \"${D}\"; allowed: own, all, review, off",
      ])
    #expect(
      try report(head + "{token: '${1A}'}}}")
        == "salvor.json5:1: client.credentials.token: has a ${…} that is no name of letters, digits and _; $${ stands for the characters ${"
    )
    #expect(
      try report(head + "{token: 'a${A'}}}")
        == "salvor.json5:1: client.credentials.token: has a ${ without }; write ${NAME}, or $${ for the characters themselves"
    )
    #expect(
      try report(head + "{'${A}': 'x'}}}", environment: ["A": "token"])
        == "salvor.json5:1: client.credentials[\"${A}\"]: is not a key here; allowed: token, principal, pin")
  }

  @Test(
    "keys, tokens and passwords are nowhere in what an administrator is shown",
    arguments: [
      "postgresql://salvor:hunter2@db/site", "host=db user=salvor password=hunter2 dbname=site",
      "host=db PASSWORD = 'hun\\'ter2' user=salvor",
      "postgresql://db/site?sslmode=require&password=hunter2&user=salvor",
    ])
  func masksSecrets(url: String) throws {
    let text = """
      { \(schema),
        server: { storage: { module: "sqlite", path: "c.db" }, listen: { module: "http" }, authentication: { module: "none" },
          administration: { token: "hunter2" } },
        client: { storage: { module: "sqlite", path: "f.db" },
          transport: { module: "http", url: "\(url.replacing("\\", with: "\\\\"))" }, credentials: { token: "hunter2", principal: "hunter2" } },
      }
      """
    let shown = try load(text).get().description.text
    #expect(!shown.contains("ter2"), "\(shown)")
    for word in ["f.db", "db", "salvor", "***"] where word != "salvor" || !url.contains("@") {
      #expect(shown.contains(word), "\(word): \(shown)")
    }
  }

  @Test("a server can start without a device's token, and says that it is not set")
  func unusedSection() throws {
    let result = try load(ExampleFiles.configurationWithoutLibraries, environment: [:], sections: [.server])
    #expect(
      directory.report(result.diagnostics)
        == "salvor.json5:14: warning: client.credentials.token: needs the environment variable SALVOR_TOKEN, which is not set"
    )
    #expect(result.configuration?.server != nil)
    #expect(
      try load(ExampleFiles.configurationWithoutLibraries, environment: [:], sections: [.client]).configuration == nil)
  }

  @Test(
    "the client's compression is its transport's option or its default; a transport without the option reports the key")
  func compression() throws {
    let head = "{\(schema), client: {storage: {module: 'sqlite', path: 'f'}, transport: "
    #expect(
      try report(head + "{module: 'pipe', compression: 'gzip'}}}")
        == "salvor.json5:1: client.transport.compression: is not a key here; allowed: module")
    for (keys, expected) in [
      ("module: 'http', url: 'u', compression: 'identity'", "identity"), ("module: 'http', url: 'u'", "gzip"),
      ("module: 'pipe'", nil),
    ] {
      let client = try #require(try load(head + "{\(keys)}}}").get().client)
      #expect(client.compression?.descriptor.name == expected)
      // What nobody has written is the least that both ends have.
      #expect(client.isCompressionWritten == (expected != "gzip"))
    }
    // This host has no zstd. A list that nobody has written has what the host has.
    #expect(try load("{\(schema), \(server)}").get().server?.compressions.map(\.descriptor.name) == ["gzip"])
    #expect(
      try report("{\(schema), \(server.dropLast(2)), compression: 'gzip'}}")
        == "salvor.json5:1: server.compression: must be a list of names, best first, like [\"gzip\"]; found a string")
    #expect(try load("{\(schema), \(server.dropLast(2)), compression: []}}").get().server?.compressions.count == 0)
  }

  @Test("semantics 9: a strategy for each reason; server-replaced is manual unless it is named")
  func routing() throws {
    let head = "{\(schema), \(client.dropLast(2)), recovery: "
    let settings = try #require(
      try load(head + "{strategy: 'recreate', reasons: {'client-rewound': 'discard-unsynced-changes'}}}}").get()
        .client?.recovery)
    func chain(_ settings: RecoverySettings) throws -> StrategyChain {
      StrategyChain(
        try settings.strategies.map { try $0.make() }, standard: settings.strategy, byReason: settings.reasons)
    }
    #expect(try chain(settings).name(for: .serverRestored) == "recreate")
    #expect(try chain(settings).name(for: .clientRewound) == "discard-unsynced-changes")
    #expect(try chain(settings).name(for: .serverReplaced) == "manual")
    // Semantics 6: a file strategy is named for a destructive schema change, or does not run over it.
    #expect(try chain(settings).name(for: .schemaIncompatible) == "manual")
    let named = try #require(
      try load(head + "{reasons: {'server-replaced': 'recreate'}}}}").get().client?.recovery)
    #expect(try chain(named).name(for: .serverReplaced) == "recreate")
    #expect(try chain(named).name(for: .historyTrimmed) == "recover-unsynced-changes")
    // Works in place: it names what differs, and falls through.
    #expect(try chain(named).name(for: .schemaIncompatible) == "recover-unsynced-changes")
    let schema = try #require(
      try load(head + "{reasons: {'schema-incompatible': 'recreate'}}}}").get().client?.recovery)
    #expect(try chain(schema).name(for: .schemaIncompatible) == "recreate")
    #expect(
      try chain(named).chain(from: "recover-or-discard-unsynced-changes")
        == ["recover-or-discard-unsynced-changes", "discard-unsynced-changes", "manual"])
  }

  @Test("a hook that cannot be run is warned of")
  func hooks() throws {
    #expect(
      try report("{\(schema), \(client.dropLast(2)), recovery: {hooks: {beforeReset: 'none.sh', afterReset: ''}}}}")
        .split(separator: "\n") == [
          "salvor.json5:1: warning: client.recovery.hooks.beforeReset: names no file that can be run; recoveries would stop there",
          "salvor.json5:1: client.recovery.hooks.afterReset: is empty; name a program, or leave it out",
        ])
  }

  @Test("administration carries its token")
  func administration() throws {
    let head = "{\(schema), \(server.dropLast(2)), administration: "
    #expect(try load(head + "{token: 'x'}}}").get().server?.administrationToken == "x")
    #expect(
      try report(head + "{token: ''}}}")
        == "salvor.json5:1: server.administration.token: is empty; give a token, or leave it out")
  }

  @Test("what stands under plugins is a list of paths")
  func plugins() throws {
    #expect(
      try report("{\(schema), \(client), plugins: [3]}")
        == "salvor.json5:1: plugins[0]: must be a string, found a whole number")
  }

  @Test("every field of Limits can be set by its name, and its default is in its range")
  func limits() throws {
    #expect(Mirror(reflecting: Limits()).children.compactMap(\.label) == LimitSetting.all.map(\.name))
    for setting in LimitSetting.all {
      #expect(setting.range.contains(setting.defaultValue), "\(setting.name)")
    }
    for setting in LimitSetting.all {
      let value = setting.name == "chunkBytesMax" ? setting.range.upperBound : setting.range.lowerBound
      let limits = try #require(
        try load("{\(schema), \(client.dropLast(2)), limits: {\(setting.name): \(value)}}}").get().client?.limits)
      let changed = zip(Mirror(reflecting: limits).children, Mirror(reflecting: Limits()).children)
        .filter { "\($0.value)" != "\($1.value)" }.map { "\($0.0.label ?? "") \($0.0.value)" }
      #expect(changed == ["\(setting.name) \(value)"])
    }
    #expect(
      try report(
        "{\(schema), \(client.dropLast(2)), limits: {chunkBytesMax: 2048, chunkBytesTarget: 4096, singleRoundTripBytesMax: 1024}}}"
      )
        == "salvor.json5:1: client.limits.chunkBytesTarget: does not fit: chunkBytesTarget (4096) is more than chunkBytesMax (2048)"
    )
  }

  @Test(
    "lengths of time have a unit",
    arguments: [
      ("'90d'", 7_776_000_000), ("'12h'", 43_200_000), ("'1ms'", 1), ("'2w'", 1_209_600_000), ("'45s'", 45_000),
      ("'30m'", 1_800_000), ("'0d'", nil), ("'d'", nil), ("'90'", nil), ("'-1d'", nil), ("'1.5d'", nil),
      ("'9223372036854775807d'", nil), ("'90 d'", nil), ("90", nil),
    ] as [(String, Int64?)])
  func lengths(text: String, expected: Int64?) throws {
    let result = try load("{\(schema), \(server.dropLast(2)), retention: {tombstones: \(text)}}}")
    #expect(result.configuration?.server?.tombstoneRetentionMilliseconds == expected)
  }
}
