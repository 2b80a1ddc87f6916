#if PostgreSQL
  import CPQ
  import SalvorModel

  /// How the database is reached. A password stays in `url`, and is in no message and no description.
  struct ConnectionSettings: Sendable, CustomStringConvertible {
    /// A libpq URL or keyword list; it may name several hosts.
    var url: String
    /// The schema of Salvor's own tables.
    var schema = "salvor"
    /// The schema of the application's tables.
    var tablesIn = "public"
    /// Milliseconds; nil: as the role has it.
    var statementTimeout: Int64?
    /// How long another program's lock is waited for, in milliseconds.
    var lockTimeout: Int64 = 5000
    /// So long who holds the head waits for another program's lock, in milliseconds: everybody else waits for him meanwhile. Then he lets go of it, and
    /// tries again (`StoreSession.patiently`).
    var heldLockTimeout: Int64 = 100
    /// How long the head is waited for, in milliseconds: somebody's upload may be under way.
    var headTimeout: Int64 = 60_000
    /// A standby is refused.
    var isWriter = true
    /// The module's option that `url` is of.
    var option = "url"
    /// One of the hosts of `url`, by libpq's keywords; empty: any.
    var only: [String: String] = [:]

    var description: String { "a PostgreSQL database (tables in \(tablesIn), Salvor's own in \(schema))" }

    /// libpq's keywords, `url` first.
    func parameters() throws -> [(keyword: String, value: String)] {
      var parameters = [("dbname", url), ("client_encoding", "UTF8"), ("application_name", "salvor")]
      if isWriter { parameters.append(("target_session_attrs", "read-write")) }
      if !only.isEmpty { parameters += only.map { ($0.key, $0.value) } + [("connect_timeout", "2")] }
      let given = try parts()
      let local = (given["hostaddr"] ?? given["host"] ?? "").split(separator: ",", omittingEmptySubsequences: false)
        .allSatisfy(Self.isLocal)
      // Where a service file leads nobody knows here.
      guard !local || given["service"] != nil else { return parameters }
      if let mode = given["sslmode"], mode != "verify-full" {
        throw SalvorError(
          .configuration,
          "The \(option) of the module postgresql asks for sslmode=\(mode). Off this machine Salvor connects by verify-full only: leave sslmode out of the url, and give sslrootcert where the certificate is your own."
        )
      }
      parameters.append(("sslmode", "verify-full"))
      return parameters
    }

    /// Each host that `url` names by itself, standbys too; none where it names no more than one.
    func hosts() throws -> [ConnectionSettings] {
      let given = try parts()
      let lists = ["host", "hostaddr", "port"].compactMap { keyword in
        given[keyword].map { (keyword, $0.split(separator: ",", omittingEmptySubsequences: false).map(String.init)) }
      }
      let count = lists.filter { $0.0 != "port" }.map(\.1.count).max() ?? 1
      guard count > 1 else { return [] }
      return (0..<count).compactMap { place in
        var host = self
        host.isWriter = false
        for (keyword, values) in lists {
          let value = values.count == 1 ? values[0] : values.indices.contains(place) ? values[place] : ""
          // libpq takes an empty one for what `url` says.
          guard !value.isEmpty || keyword == "port" else { return nil }
          host.only[keyword] = value
        }
        return host
      }
    }

    /// A socket's folder, this machine's own names and addresses.
    private static func isLocal(_ host: Substring) -> Bool {
      host.isEmpty || host.hasPrefix("/") || host.hasPrefix("@") || host == "localhost" || host.hasPrefix("127.")
        || host == "::1"
    }

    /// What `url` says itself, and of the host what the environment says (`PGHOST`).
    private func parts() throws -> [String: String] {
      var parts = try given()
      if parts["host"] == nil, parts["hostaddr"] == nil, let defaults = PQconndefaults() {
        defer { PQconninfoFree(defaults) }
        for (keyword, value) in Self.read(defaults) where ["host", "hostaddr", "service"].contains(keyword) {
          parts[keyword] = value
        }
      }
      return parts
    }

    private func given() throws -> [String: String] {
      var message: UnsafeMutablePointer<CChar>?
      guard let options = PQconninfoParse(url, &message) else {
        // libpq's own words would repeat a part of the url, which may be the password.
        PQfreemem(message)
        throw SalvorError(
          .configuration,
          "The \(option) of the module postgresql cannot be read. Its form is postgresql://USER@HOST:PORT/DATABASE; characters such as @ and / within a part are percent-encoded."
        )
      }
      defer { PQconninfoFree(options) }
      let parts = Self.read(options)
      try refuseMisread(parts)
      return parts
    }

    /// A `/` or `@` of a password that stands for itself ends it, and what follows is a host's name, a port or the database's for libpq, which
    /// prints such.
    private func refuseMisread(_ parts: [String: String]) throws {
      let ports = (parts["port"] ?? "").split(separator: ",")
      let hosts = (parts["host"] ?? "").split(separator: ",").filter { !$0.hasPrefix("@") && !$0.hasPrefix("/") }
      let isMisread =
        ports.contains { UInt16($0) == nil } || hosts.contains { $0.contains("@") }
        || isURL
          && (url.split(separator: "?")[0].split(separator: "@", omittingEmptySubsequences: false).count > 2
            || parts["password"] == nil && parts["dbname"]?.contains("@") == true)
      guard isMisread else { return }
      throw SalvorError(
        .configuration,
        "The \(option) of the module postgresql has a port that is no number, or an @ or / that stands for itself. Its form is postgresql://USER@HOST:PORT/DATABASE; within a part, such as the password, @ is written %40, / is %2F, : is %3A, % is %25."
      )
    }

    private var isURL: Bool { url.hasPrefix("postgresql://") || url.hasPrefix("postgres://") }

    private static func read(_ options: UnsafeMutablePointer<PQconninfoOption>) -> [String: String] {
      var found: [String: String] = [:]
      var option = options
      while let keyword = option.pointee.keyword {
        if let value = option.pointee.val { found[String(cString: keyword)] = String(cString: value) }
        option += 1
      }
      return found
    }
  }
#endif
