#if PostgreSQL
  import Foundation
  import SalvorModel

  @testable import PostgreSQLServerStore

  /// A PostgreSQL of the tests' own: made by `initdb` in a temporary folder, reached by a socket there, and gone with the process.
  /// It is never the system's cluster.
  final class PrivateCluster: Sendable {
    let folder: String
    private let programs: String

    /// Nil: PostgreSQL is not installed here. In CI that is an error.
    static let shared: PrivateCluster? = {
      guard let programs = find() else { return nil }
      return try? PrivateCluster(programs)
    }()

    static var isThere: Bool {
      if shared != nil { return true }
      // What CI has to have is missing: the tests run, and fail.
      return ProcessInfo.processInfo.environment["CI"] != nil
    }

    private static func find() -> String? {
      let files = FileManager.default
      let versions = (try? files.contentsOfDirectory(atPath: "/usr/lib/postgresql")) ?? []
      let folders = versions.compactMap { Int($0) }.sorted(by: >).map { "/usr/lib/postgresql/\($0)/bin" }
      let path = (ProcessInfo.processInfo.environment["PATH"] ?? "").split(separator: ":").map(String.init)
      return (folders + path).first { files.isExecutableFile(atPath: $0 + "/initdb") }
    }

    private init(_ programs: String) throws {
      self.programs = programs
      folder = Self.newFolder()
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      if getuid() == 0 { try Self.run("/bin/chown", ["postgres", folder]) }
      try initialize()
      try start()
      register()
    }

    /// In memory where there is room for it (they take up to 5 GB): most of what a database of its own costs each test is hundreds of new files.
    /// A socket's path has 107 bytes at most.
    private static func newFolder() -> String {
      var room = statvfs()
      let isInMemory =
        statvfs("/dev/shm", &room) == 0 && UInt64(room.f_bavail) * UInt64(room.f_frsize) >= 8 << 30
        && access("/dev/shm", W_OK) == 0
      return "\(isInMemory ? "/dev/shm" : "/tmp")/salvor-pg-\(UInt32.random(in: .min ... .max))"
    }

    /// A cluster of one test's own.
    static func another() throws -> PrivateCluster {
      guard let programs = find() else { throw SalvorError(.notFound, "PostgreSQL is not installed here.") }
      return try PrivateCluster(programs)
    }

    /// A standby of another cluster as it is now. It does not run yet.
    ///
    /// - Parameter follows: it gets what the other one does from now on, as soon as it runs.
    init(standbyOf primary: PrivateCluster, follows: Bool = false) throws {
      programs = primary.programs
      folder = Self.newFolder()
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      if getuid() == 0 { try Self.run("/bin/chown", ["postgres", folder]) }
      try asOwner(
        "pg_basebackup",
        ["--no-sync", "-h", primary.folder, "-U", "postgres", "-D", "\(folder)/data", "-c", "fast"]
          + (follows ? ["-R"] : []))
      try Data().write(to: URL(fileURLWithPath: "\(folder)/data/standby.signal"))
      register()
    }

    /// What `pg_upgrade` makes of another cluster, which is stopped in order for it. It does not run yet.
    init(upgradeOf old: PrivateCluster) throws {
      programs = old.programs
      folder = Self.newFolder()
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      if getuid() == 0 { try Self.run("/bin/chown", ["postgres", folder]) }
      try initialize()
      try old.asOwner("pg_ctl", ["-s", "-w", "-D", "\(old.folder)/data", "-m", "fast", "stop"])
      // Its scripts and its socket go where it stands.
      try asOwner(
        "/bin/sh",
        [
          "-c",
          "cd \(folder) && exec \(programs)/pg_upgrade -U postgres -b \(programs) -B \(programs) "
            + "-d \(old.folder)/data -D \(folder)/data",
        ])
      register()
    }

    private func initialize() throws {
      try asOwner(
        "initdb", ["--no-sync", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "-D", "\(folder)/data"])
    }

    private func register() {
      PrivateCluster.running.withLock { clusters in
        if clusters.isEmpty {
          atexit { PrivateCluster.running.withLock { all in for cluster in all { cluster.end() } } }
        }
        clusters.append(self)
      }
    }

    func start() throws {
      try asOwner(
        "pg_ctl",
        [
          "-s", "-w", "-t", "120", "-D", "\(folder)/data", "-l", "\(folder)/log", "-o",
          "-k \(folder) -c listen_addresses='' -c fsync=off -c full_page_writes=off -c autovacuum=off -c max_wal_size=256MB "
            + "-c max_connections=1000 -c max_prepared_transactions=10 "
            + "-c max_standby_streaming_delay=-1 -c max_standby_archive_delay=-1",
          "start",
        ])
    }

    /// At once, as a crash does.
    func stop() throws { try asOwner("pg_ctl", ["-s", "-w", "-D", "\(folder)/data", "-m", "immediate", "stop"]) }
    func promote() throws { try asOwner("pg_ctl", ["-s", "-w", "-t", "120", "-D", "\(folder)/data", "promote"]) }

    /// A dump of one database, restored as another.
    func restoreDump(of database: String, as copy: String) throws {
      try asOwner("pg_dump", ["-h", folder, "-U", "postgres", "-Fc", "-f", "\(folder)/\(copy).dump", database])
      try asOwner("createdb", ["-h", folder, "-U", "postgres", copy])
      try asOwner("pg_restore", ["-h", folder, "-U", "postgres", "-d", copy, "\(folder)/\(copy).dump"])
    }

    /// What `pg_dump` makes of a database with these options, in a file of this name.
    func dump(_ database: ConnectionSettings, as file: String, _ options: String...) throws {
      try asOwner(
        "pg_dump",
        ["-h", folder, "-U", "postgres", "-Fc", "-f", "\(folder)/\(file)"] + options + [Self.name(database)])
    }

    /// Puts it into the database with these options of `pg_restore`.
    func restore(_ file: String, into database: ConnectionSettings, _ options: String...) throws {
      try asOwner(
        "pg_restore",
        ["-h", folder, "-U", "postgres", "-d", Self.name(database)] + options + ["\(folder)/\(file)"])
    }

    /// A line of its own before those that let everybody in. Counts from the next reload on.
    func allow(_ line: String) throws {
      let path = "\(folder)/data/pg_hba.conf"
      let before = try String(contentsOfFile: path, encoding: .utf8)
      // In place: it stays the owner's.
      try Data("\(line)\n\(before)".utf8).write(to: URL(fileURLWithPath: path))
    }

    private static let running = Mutex<[PrivateCluster]>([])

    /// The files of some hundred databases go while others go on: that takes as long as many tests.
    private func end() {
      try? stop()
      _ = try? Self.spawn("/bin/rm", ["-rf", folder])
    }

    /// PostgreSQL refuses to run as root.
    private func asOwner(_ program: String, _ arguments: [String]) throws {
      let path = program.hasPrefix("/") ? program : "\(programs)/\(program)"
      guard getuid() == 0 else { return try Self.run(path, arguments) }
      try Self.run(
        "/usr/bin/setpriv", ["--reuid=postgres", "--regid=postgres", "--clear-groups", path] + arguments)
    }

    static func run(_ path: String, _ arguments: [String]) throws {
      let process = try spawn(path, arguments)
      var status: Int32 = 0
      guard waitpid(process, &status, 0) == process, status == 0 else {
        throw SalvorError(.storage, "\(path) ended with the status \(status).")
      }
    }

    private static func spawn(_ path: String, _ arguments: [String]) throws -> pid_t {
      // Foundation's Process would wait for the server, too, which `pg_ctl` leaves running.
      var actions = posix_spawn_file_actions_t()
      posix_spawn_file_actions_init(&actions)
      defer { posix_spawn_file_actions_destroy(&actions) }
      for file in Int32(0)...2 { posix_spawn_file_actions_addopen(&actions, file, "/dev/null", O_RDWR, 0) }
      let texts = ([path] + arguments).map { strdup($0) } + [nil]
      defer { for text in texts { free(text) } }
      var process: pid_t = 0
      guard posix_spawn(&process, path, &actions, nil, texts, environ) == 0 else {
        throw SalvorError(.storage, "\(path) does not start.")
      }
      return process
    }

    /// A database of its own.
    func database() throws -> ConnectionSettings {
      let name = "d\(UInt64.random(in: .min ... .max))"
      let postgres = try PostgreSQLConnection(settings("postgres"))
      try postgres.execute("CREATE DATABASE \(name)")
      return settings(name)
    }

    /// Takes it and its copies away, whoever has it open.
    func drop(_ database: ConnectionSettings) {
      let name = Self.name(database)
      guard let postgres = try? PostgreSQLConnection(settings("postgres")),
        let names = try? postgres.rows("SELECT datname::text FROM pg_database WHERE datname LIKE '\(name)%'")
      else { return }
      for found in names.compactMap({ $0[0].string }) {
        try? postgres.execute("DROP DATABASE IF EXISTS \(found) WITH (FORCE)")
      }
    }

    /// As `pg_dump` would, of a database that nobody has open.
    func copy(_ database: ConnectionSettings, to slot: String) throws {
      let (postgres, name) = (try PostgreSQLConnection(settings("postgres")), Self.name(database))
      try postgres.execute("DROP DATABASE IF EXISTS \(name)_\(slot)")
      try postgres.execute("CREATE DATABASE \(name)_\(slot) TEMPLATE \(name)")
    }

    /// The copy of a slot, in the database's place.
    func putBack(_ database: ConnectionSettings, from slot: String) throws {
      let (postgres, name) = (try PostgreSQLConnection(settings("postgres")), Self.name(database))
      try postgres.execute("DROP DATABASE \(name) WITH (FORCE)")
      try postgres.execute("CREATE DATABASE \(name) TEMPLATE \(name)_\(slot)")
    }

    static func name(_ database: ConnectionSettings) -> String {
      database.url.split(separator: "=").last.map(String.init) ?? ""
    }

    func settings(_ database: String) -> ConnectionSettings {
      ConnectionSettings(url: "host=\(folder) user=postgres dbname=\(database)")
    }
  }

  /// A database of its own, gone with whoever has it: of those there are hundreds.
  final class PrivateDatabase: Sendable {
    let settings: ConnectionSettings
    private let cluster: PrivateCluster

    init(in cluster: PrivateCluster) throws {
      self.cluster = cluster
      settings = try cluster.database()
    }

    deinit { cluster.drop(settings) }
  }
#endif
