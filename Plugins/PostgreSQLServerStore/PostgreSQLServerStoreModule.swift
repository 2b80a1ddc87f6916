#if PostgreSQL
  import CPQ
  import SalvorModel
  import SalvorModuleKit
  import SalvorStorage

  extension PostgreSQLServerStore {
    /// What `salvor modules` shows of the module `postgresql`: its options with their defaults, and what it guarantees.
    public static let descriptor = ModuleDescriptor(
      kind: .serverStorage, name: "postgresql", summary: "The consolidated database in PostgreSQL.",
      options: [
        ModuleOption(
          "url", type: "string", default: nil,
          "libpq's own: postgresql://USER@HOST/DATABASE, or keywords. Several hosts may stand in it. Off this machine sslmode is verify-full."
        ),
        ModuleOption("schema", type: "string", default: "\"salvor\"", "The schema of Salvor's own tables."),
        ModuleOption("tablesIn", type: "string", default: "\"public\"", "The schema of the application's tables."),
        ModuleOption("connections", type: "integer", default: "8", "Connections at most, 4 to 100."),
        ModuleOption(
          "lockTimeoutMilliseconds", type: "integer", default: "5000",
          "How long another program's lock is waited for."),
        ModuleOption(
          "statementTimeoutMilliseconds", type: "integer", default: "none",
          "How long one statement may take; 0 is without end. Without it, as the role has it."),
        ModuleOption(
          "readReplica", type: "string", default: "none",
          "A standby of the database, as url: it answers downloads and comparisons where it has replayed enough."),
        ModuleOption(
          "captureReplicas", type: "boolean", default: "false",
          "What a logical subscriber writes is captured, too."),
        ModuleOption(
          "stateDirectory", type: "string", default: "none",
          "A folder of this process's own, which remembers the last commit and the purged rows: a start on a restored database says so."
        ),
      ],
      guarantees: [
        "An upload is one transaction; what it acknowledges is as durable as the database's commits.",
        "What any program commits in the real tables reaches the clients, whatever order transactions end in.",
        "A page is one snapshot; a download is whole at its end.",
      ],
      libraries: {
        let version = Int(PQlibVersion())
        return ["libpq": "\(version / 10_000).\(version % 10_000)"]
      }())

    /// The module `postgresql` of the kind server storage. `url` must be given.
    public static let factory = ModuleFactory(descriptor, product: (any ServerStore).self) { reader, context in
      let url = reader.string("url")
      let schema = reader.optionalString("schema") ?? "salvor"
      let tablesIn = reader.optionalString("tablesIn") ?? "public"
      let connections = reader.integer("connections", in: 4...100, default: 8)
      let lockTimeout = reader.integer("lockTimeoutMilliseconds", in: 1...600_000, default: 5000)
      let hasTimeout = reader.has("statementTimeoutMilliseconds")
      let timeout = reader.integer("statementTimeoutMilliseconds", in: 0...86_400_000, default: 0)
      let replica = reader.optionalString("readReplica")
      let capturesReplicas = reader.boolean("captureReplicas", default: false)
      let folder = reader.optionalString("stateDirectory")
      if let folder, folder.isEmpty || folder.unicodeScalars.contains("\0") {
        reader.report("stateDirectory", "is no folder's path; name a folder, or leave it out")
        return nil
      }
      if schema == tablesIn {
        reader.report("schema", "is tablesIn, too; Salvor's own tables have a schema of their own")
      }
      guard let url else { return nil }
      let options = Options(
        url: url, schema: schema, tablesIn: tablesIn, connections: Int(connections),
        lockTimeoutMilliseconds: lockTimeout, statementTimeoutMilliseconds: hasTimeout ? timeout : nil,
        readReplica: replica, capturesReplicas: capturesReplicas, stateDirectory: folder.map(context.resolve),
        limits: context.limits,
        random: context.random,
        clock: context.clock,
        log: context.log)
      do {
        _ = try options.settings.parameters()
      } catch {
        reader.report("url", (error as? SalvorError)?.message ?? "cannot be read")
        return nil
      }
      if let replica {
        do {
          _ = try ConnectionSettings(url: replica, isWriter: false, option: "readReplica").parameters()
        } catch {
          reader.report("readReplica", (error as? SalvorError)?.message ?? "cannot be read")
          return nil
        }
      }
      return { PostgreSQLServerStore(options) }
    }
  }
#endif
