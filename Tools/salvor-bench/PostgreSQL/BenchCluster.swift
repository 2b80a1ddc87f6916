#if PostgreSQL
  import PostgreSQLServerStore
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  #if canImport(Glibc)
    @preconcurrency import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// A PostgreSQL of a measurement's own, in a folder of it, with its log synced as on a server.
  final class BenchCluster {
    let folder: String
    private let programs: String
    private var databases = 0

    init(_ bench: Bench, _ name: String) throws {
      folder = bench.path(name)
      programs = try Self.programs()
      guard mkdir(folder, 0o755) == 0 else { throw SalvorError(.failed, "\(folder) cannot be made.") }
      // The owner of the database passes through.
      chmod(bench.directory, 0o755)
      if getuid() == 0 { try run("/bin/chown", ["postgres", folder]) }
      try asOwner(
        "initdb", ["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D", "\(folder)/data"])
      try start()
    }

    /// A standby of another cluster as it is now, which hears of nothing that comes later. It does not run yet.
    init(_ bench: Bench, _ name: String, standbyOf primary: BenchCluster) throws {
      folder = bench.path(name)
      programs = primary.programs
      guard mkdir(folder, 0o755) == 0 else { throw SalvorError(.failed, "\(folder) cannot be made.") }
      if getuid() == 0 { try run("/bin/chown", ["postgres", folder]) }
      try asOwner(
        "pg_basebackup",
        ["--no-sync", "-h", primary.folder, "-U", "postgres", "-D", "\(folder)/data", "-c", "fast"])
      try asOwner("touch", ["\(folder)/data/standby.signal"])
    }

    func start() throws {
      try asOwner(
        "pg_ctl",
        [
          "-s", "-w", "-t", "120", "-D", "\(folder)/data", "-l", "\(folder)/log", "-o",
          "-k \(folder) -c listen_addresses='' -c max_connections=200 -c shared_buffers=256MB -c max_wal_size=4GB",
          "start",
        ])
    }

    /// At once, as a crash does.
    func stop() throws { try asOwner("pg_ctl", ["-s", "-w", "-D", "\(folder)/data", "-m", "immediate", "stop"]) }
    func promote() throws { try asOwner("pg_ctl", ["-s", "-w", "-t", "120", "-D", "\(folder)/data", "promote"]) }

    func end() {
      try? stop()
      try? run("/bin/rm", ["-rf", folder])
    }

    /// The URL of a new database.
    func database() throws -> String {
      databases += 1
      try asOwner("createdb", ["-h", folder, "-U", "postgres", "d\(databases)"])
      return "postgresql://postgres@/d\(databases)?host=\(folder)"
    }

    /// The URL of a database here that another cluster has, too.
    func url(of database: String) -> String {
      "postgresql://postgres@/\(database.split(separator: "?")[0].split(separator: "/").last ?? "")?host=\(folder)"
    }

    /// Seconds that the processes of the cluster have used, those that have ended with them.
    func cpu() -> Double {
      let leader =
        Measure.contents(of: "\(folder)/data/postmaster.pid").split(separator: "\n").first.map(String.init) ?? ""
      guard let directory = opendir("/proc") else { return 0 }
      defer { closedir(directory) }
      var ticks = 0
      while let entry = readdir(directory) {
        let name = withUnsafePointer(to: entry.pointee.d_name) {
          $0.withMemoryRebound(to: CChar.self, capacity: 256) { String(cString: $0) }
        }
        guard Int(name) != nil else { continue }
        let fields = Measure.contents(of: "/proc/\(name)/stat").split(separator: ")").last?.split(separator: " ") ?? []
        guard fields.count > 14, name == leader || fields[1] == leader else { continue }
        ticks += (11...(name == leader ? 14 : 12)).reduce(0) { $0 + (Int(fields[$1]) ?? 0) }
      }
      return Double(ticks) / Double(sysconf(Int32(_SC_CLK_TCK)))
    }

    private static func programs() throws -> String {
      for version in (13...30).reversed() {
        let folder = "/usr/lib/postgresql/\(version)/bin"
        if access(folder + "/initdb", X_OK) == 0 { return folder }
      }
      throw SalvorError(.usage, "PostgreSQL is not installed here. Install the package postgresql.")
    }

    /// PostgreSQL refuses to run as root.
    private func asOwner(_ program: String, _ arguments: [String]) throws {
      let path = program == "touch" ? "/usr/bin/touch" : "\(programs)/\(program)"
      guard getuid() == 0 else { return try run(path, arguments) }
      try run("/usr/bin/setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", path] + arguments)
    }

    private func run(_ path: String, _ arguments: [String]) throws {
      #if canImport(Darwin)
        var actions: posix_spawn_file_actions_t?
      #else
        var actions = posix_spawn_file_actions_t()
      #endif
      posix_spawn_file_actions_init(&actions)
      defer { posix_spawn_file_actions_destroy(&actions) }
      for file in Int32(0)...2 { posix_spawn_file_actions_addopen(&actions, file, "/dev/null", O_RDWR, 0) }
      var texts = ([path] + arguments).map { strdup($0) }
      texts.append(nil)
      defer { for text in texts { free(text) } }
      var process: pid_t = 0
      var status: Int32 = 0
      guard posix_spawn(&process, path, &actions, nil, texts, environ) == 0, waitpid(process, &status, 0) == process,
        status == 0
      else {
        throw SalvorError(.failed, "\(path) \(arguments.joined(separator: " ")) ended with the status \(status).")
      }
    }
  }

  /// What other programs do with a PostgreSQL database.
  enum PlainPostgreSQL {
    /// A database that Salvor serves, with the table `record`.
    static func adopt(_ url: String) async throws {
      let store = PostgreSQLServerStore(url: url)
      _ = try await store.open(ServerSetup(schema: RecordData.schema))
      await store.close()
    }

    /// Nothing is captured.
    static func silence(_ url: String) throws {
      let connection = try PostgreSQLConnection(to: url)
      defer { connection.close() }
      try connection.execute("ALTER TABLE record DISABLE TRIGGER USER")
    }

    private static let types = RecordData.table.columns.map { column in
      switch column.type {
      case .integer: "bigint"
      case .real: "double precision"
      default: "text"
      }
    }

    /// Rows of `data` from `first` on, by sets of a thousand: arrays in the binary protocol, upserted by key. Making them is not in
    /// the time.
    @discardableResult
    static func upsert(
      _ url: String, _ data: RecordData, _ range: Range<Int>, rowsEach: Int = 1000, inOne: Bool = true
    ) throws -> Cost {
      let connection = try PostgreSQLConnection(to: url)
      defer { connection.close() }
      let names = RecordData.table.columns.map { quoted($0.name) }
      let arrays = types.enumerated().map { "?\($0 + 1)::\($1)[]" }.joined(separator: ", ")
      let statement = try connection.prepare(
        "INSERT INTO record (\(names.joined(separator: ", "))) SELECT * FROM unnest(\(arrays)) ON CONFLICT (id) DO UPDATE SET "
          + names.dropFirst().map { "\($0) = excluded.\($0)" }.joined(separator: ", "), persistent: true)
      var cost = try Cost.of { if inOne { try connection.execute("BEGIN") } }
      for start in stride(from: range.lowerBound, to: range.upperBound, by: rowsEach) {
        var rows = RowArena(columnCount: names.count)
        for place in start..<min(start + rowsEach, range.upperBound) { data.append(place, to: &rows) }
        try rows.bytes.withUnsafeBufferPointer { bytes in
          try cost.add {
            for column in names.indices {
              try statement.bindColumn(column + 1, count: rows.rowCount) { row in
                switch rows.cells[row * names.count + column] {
                case .null: .null
                case .integer(let x): .integer(x)
                case .real(let x): .real(x)
                case .text(let offset, let count): .text(UnsafeBufferPointer(rebasing: bytes[offset..<offset + count]))
                }
              }
            }
            try statement.run()
          }
        }
      }
      try cost.add { if inOne { try connection.execute("COMMIT") } }
      return cost
    }

    static func count(_ url: String, where condition: String = "TRUE") throws -> Int {
      let connection = try PostgreSQLConnection(to: url)
      defer { connection.close() }
      return Int(try connection.integer("SELECT count(*) FROM record WHERE \(condition)") ?? 0)
    }

    static func execute(_ url: String, _ sql: String) throws {
      let connection = try PostgreSQLConnection(to: url)
      defer { connection.close() }
      try connection.execute(sql)
    }
  }
#endif
