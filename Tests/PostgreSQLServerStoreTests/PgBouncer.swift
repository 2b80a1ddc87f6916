#if PostgreSQL
  import Foundation
  import SalvorModel

  @testable import PostgreSQLServerStore

  /// A pooler of the tests' own before a cluster, which hands its connections out by transaction.
  final class PgBouncer: Sendable {
    static let isThere = path != nil

    private static let path = ["/usr/sbin/pgbouncer", "/usr/bin/pgbouncer", "/usr/local/bin/pgbouncer"].first {
      FileManager.default.isExecutableFile(atPath: $0)
    }

    private let folder: String

    init(_ cluster: PrivateCluster, poolSize: Int = 40) throws {
      guard let path = Self.path else { throw SalvorError(.notFound, "PgBouncer is not installed here.") }
      folder = "/tmp/salvor-pgb-\(UInt32.random(in: .min ... .max))"
      try FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
      try Data("\"postgres\" \"\"\n".utf8).write(to: URL(fileURLWithPath: "\(folder)/users"))
      try """
      [databases]
      * = host=\(cluster.folder)
      [pgbouncer]
      listen_addr =
      listen_port = 5432
      unix_socket_dir = \(folder)
      auth_type = trust
      auth_file = \(folder)/users
      pool_mode = transaction
      default_pool_size = \(poolSize)
      max_client_conn = 500
      logfile = \(folder)/log
      pidfile = \(folder)/pid
      """.write(toFile: "\(folder)/ini", atomically: true, encoding: .utf8)
      if getuid() == 0 {
        try PrivateCluster.run("/bin/chown", ["-R", "postgres", folder])
        // It refuses to run as root.
        try PrivateCluster.run(
          "/usr/bin/setpriv",
          ["--reuid=postgres", "--regid=postgres", "--clear-groups", path, "-q", "-d", "\(folder)/ini"])
      } else {
        try PrivateCluster.run(path, ["-q", "-d", "\(folder)/ini"])
      }
      while !FileManager.default.fileExists(atPath: "\(folder)/.s.PGSQL.5432") { usleep(10_000) }
      register()
    }

    /// With the process, where nobody has let it go before.
    private func register() {
      let folder = folder
      PgBouncer.running.withLock { folders in
        if folders.isEmpty {
          atexit { PgBouncer.running.withLock { all in for folder in all { PgBouncer.end(folder) } } }
        }
        folders.append(folder)
      }
    }

    private static let running = Mutex<[String]>([])

    deinit { Self.end(folder) }

    private static func end(_ folder: String) {
      if let text = try? String(contentsOfFile: "\(folder)/pid", encoding: .utf8),
        let process = pid_t(text.trimmingCharacters(in: .whitespacesAndNewlines))
      {
        kill(process, SIGKILL)
      }
      try? FileManager.default.removeItem(atPath: folder)
    }

    /// The same database, through the pooler.
    func settings(_ direct: ConnectionSettings) -> ConnectionSettings {
      var settings = direct
      settings.url = "host=\(folder) user=postgres dbname=\(PrivateCluster.name(direct))"
      return settings
    }
  }
#endif
