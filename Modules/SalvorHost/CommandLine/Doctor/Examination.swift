import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// What `salvor doctor` looks at, one after the other. Nothing is changed.
struct Examination {
  let configuration: HostConfiguration?
  let environment: [String: String]
  private(set) var findings: [Finding] = []

  init(configuration: HostConfiguration?, environment: [String: String]) {
    self.configuration = configuration
    self.environment = environment
  }

  mutating func add(_ finding: Finding) { findings.append(finding) }

  private mutating func add(_ state: Finding.State, _ about: String, _ message: String, _ way: String = "") {
    findings.append(Finding(state: state, about: about, message: message, way: way))
  }

  // MARK: Configuration

  mutating func takeConfiguration(_ loaded: ConfigurationResult) {
    for diagnostic in loaded.diagnostics {
      let place = diagnostic.path.isEmpty ? diagnostic.file : "\(diagnostic.file):\(diagnostic.line) \(diagnostic.path)"
      add(
        diagnostic.severity == .error ? .bad : .note, "configuration", "\(place) \(diagnostic.message)",
        diagnostic.severity == .error ? "correct it; salvor check says whether it is right" : "")
    }
    guard let configuration else { return }
    if loaded.diagnostics.isEmpty { add(.good, "configuration", "\(configuration.file) is valid") }
    for problem in configuration.servingProblems() {
      add(.bad, "configuration", "\(problem.path) \(problem.message)", "salvor serve would not start with it")
    }
    for problem in configuration.listProblems() {
      add(.bad, "configuration", "\(problem.path) \(problem.message)", "correct the list")
    }
  }

  // MARK: Files

  mutating func files() {
    guard let configuration else { return }
    var databases: [(String, String)] = []
    if let store = try? configuration.server?.storage.make() as? any FileDatabase, let file = store.databaseFile {
      databases.append(("server's database", file))
    }
    if let store = try? configuration.client?.storage.make() as? any FileDatabase, let file = store.databaseFile {
      databases.append(("device's database", file))
    }
    for (name, path) in databases { database(name, path) }
  }

  private mutating func database(_ name: String, _ path: String) {
    var found = stat()
    let folder = path.lastIndex(of: "/").map { String(path[..<$0]) } ?? "."
    guard stat(path, &found) == 0 else {
      if let beside = remembering(path, in: folder) {
        add(
          .bad, name, "\(path) is not there, and \(beside) remembers it",
          name.hasPrefix("server")
            ? "put it back (salvor server restore FILE): salvor serve makes no new one beside that file"
            : "put it back from a copy: salvor sync makes a new one, which has nothing of what waited in the old one")
        return space(folder, needed: 0)
      }
      let isWritable = access(folder.isEmpty ? "/" : folder, W_OK) == 0
      add(
        isWritable ? .note : .bad, name, "\(path) is not there yet",
        isWritable ? "the first serve or sync makes it" : "its folder cannot be written by this user: change its owner")
      space(folder, needed: 0)
      return
    }
    if access(path, R_OK | W_OK) != 0 {
      add(
        .bad, name, "\(path) cannot be read and written by this user",
        "run salvor as the file's owner (sudo -u salvor …)")
    } else if found.st_mode & 0o007 != 0 {
      add(
        .note, name, "\(path) can be read by every user of this machine", "chmod o-rwx '\(path)'*")
    } else {
      add(.good, name, "\(path), \(bytes(Int64(found.st_size)))")
    }
    companions(name, path, folder)
    // A copy of the database needs as much again.
    space(folder, needed: Int64(found.st_size))
    var log = stat()
    if stat(path + "-wal", &log) == 0, Int64(log.st_size) > max(256 << 20, Int64(found.st_size)) {
      add(
        .note, name, "its write-ahead log has \(bytes(Int64(log.st_size)))",
        "some program reads for very long: look for one that leaves a transaction open")
    }
  }

  /// What Salvor has beside a database that was there; nil: nothing.
  private func remembering(_ path: String, in folder: String) -> String? {
    let place = folder.isEmpty ? "/" : folder
    let begin = (path.lastIndex(of: "/").map { String(path[path.index(after: $0)...]) } ?? path) + ".salvor-"
    let found = fileNames(in: place)?.filter { $0.hasPrefix(begin + "side") || $0.hasPrefix(begin + "identity") }
    return found?.min().map { place == "/" ? "/\($0)" : "\(place)/\($0)" }
  }

  /// What SQLite and Salvor have beside the database: a file that another user has made, with sudo for instance, stops every write.
  private mutating func companions(_ name: String, _ path: String, _ folder: String) {
    let place = folder.isEmpty ? "/" : folder
    if access(place, W_OK | X_OK) != 0 {
      add(
        .bad, name, "its folder \(place) cannot be written by this user: SQLite makes files there",
        "run salvor as the folder's owner, or change its owner")
    }
    let begin = path.lastIndex(of: "/").map { String(path[path.index(after: $0)...]) } ?? path
    for file in (fileNames(in: place) ?? []).sorted()
    where file.hasPrefix(begin + "-") || file.hasPrefix(begin + ".salvor-") {
      let beside = place == "/" ? "/\(file)" : "\(place)/\(file)"
      var found = stat()
      guard stat(beside, &found) == 0 else { continue }
      let isFolder = found.st_mode & S_IFMT == S_IFDIR
      if access(beside, isFolder ? R_OK | W_OK | X_OK : R_OK | W_OK) != 0 {
        add(
          .bad, name, "\(beside) cannot be read and written by this user",
          "give it the owner of the database: chown -R --reference='\(path)' '\(beside)'")
      } else if found.st_mode & 0o007 != 0 {
        add(.note, name, "\(beside) can be read by every user of this machine", "chmod -R o-rwx '\(beside)'")
      }
    }
  }

  private mutating func space(_ folder: String, needed: Int64) {
    var system = statvfs()
    guard statvfs(folder.isEmpty ? "/" : folder, &system) == 0 else { return }
    let free = Int64(clamping: UInt64(system.f_bavail) * UInt64(system.f_frsize))
    let state: Finding.State = free < 100 << 20 ? .bad : free < max(1 << 30, 2 * needed) ? .note : .good
    add(
      state, "disk", "\(bytes(free)) free where \(folder) is",
      state == .good ? "" : "make room: backups and recoveries need a copy's size, and a full disk refuses uploads")
  }

  // MARK: System

  mutating func system() {
    clock()
    guard let server = configuration?.server else { return }
    var limit = rlimit()
    #if canImport(Glibc)
      getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    #else
      getrlimit(RLIMIT_NOFILE, &limit)
    #endif
    let allowed = UInt64(limit.rlim_max)
    let wanted = UInt64(server.limits.connectionsMax + 128)
    if allowed < wanted {
      add(
        .note, "system",
        "a process may have \(allowed) files open, fewer than connectionsMax (\(server.limits.connectionsMax)) needs",
        "raise the hard limit (LimitNOFILE= of the unit, ulimit -Hn), or lower server.limits.connectionsMax")
    } else {
      add(.good, "system", "enough open files for \(server.limits.connectionsMax) connections")
    }
  }

  private mutating func clock() {
    let released = Self.releaseDay
    let now = SystemClock().now()
    // A machine without a battery begins in 1970; TLS fails then, and dates of the log are wrong.
    if now < released {
      add(
        .bad, "clock", "it says \(moment(now)), before this release was made",
        "set the clock (timedatectl set-ntp true)")
    } else {
      add(.good, "clock", "\(moment(now))")
    }
  }

  /// Milliseconds since 1970, less two days for who builds ahead of the date.
  private static let releaseDay: Int64 = {
    let parts = salvorReleaseDate.split(separator: "-").compactMap { Int64($0) }
    guard parts.count == 3 else { return 0 }
    // Days of the Gregorian calendar from 1970, from 1 March of a year on.
    let year = parts[1] <= 2 ? parts[0] - 1 : parts[0]
    let era = year / 400
    let yearOfEra = year - era * 400
    let dayOfYear = (153 * (parts[1] + (parts[1] > 2 ? -3 : 9)) + 2) / 5 + parts[2] - 1
    let days = era * 146_097 + yearOfEra * 365 + yearOfEra / 4 - yearOfEra / 100 + dayOfYear - 719_468
    return (days - 2) * 86_400_000
  }()

  // MARK: Server

  /// Health checks of containers give up after thirty seconds.
  private static let patience: Int64 = 10_000

  /// Whether the server answers: at the address of the device's section, or at the one that the server listens on.
  func reach(_ invocation: Invocation) async -> Finding {
    do {
      guard let transport = try transport(invocation) else {
        return Finding(state: .note, about: "server", message: "its address is not known here", way: "")
      }
      let began = ContinuousClock.now
      invocation.terminal.progress("asking the server, \(Self.patience / 1000) s at most")
      defer { invocation.terminal.endProgress() }
      var response = try await transport.ask("/readyz", withinMilliseconds: Self.patience, SystemClock())
      // Its readiness may be told at an address of its own, or to a role alone; that it lives, to everybody.
      let isApart = [401, 403, 404].contains(response.status)
      if isApart { response = try await transport.ask("/healthz", withinMilliseconds: Self.patience, SystemClock()) }
      await transport.close()
      let taken = (ContinuousClock.now - began).components
      let milliseconds = taken.seconds * 1000 + taken.attoseconds / 1_000_000_000_000_000
      if response.status == 200 {
        let apart = "; whether its database does, it tells its monitoring alone"
        return Finding(
          state: .good, about: "server", message: "it answers, within \(milliseconds) ms\(isApart ? apart : "")")
      }
      let why = (try? JSONValue(parsing: response.body))?["detail"]?.string
      return Finding(
        state: .bad, about: "server",
        message: "it answers with status \(response.status): \(why.map(visible) ?? "its database does not")",
        way: "read its log (journalctl -u salvor)")
    } catch let error as SalvorError where error.code == .timeout {
      return Finding(
        state: .bad, about: "server", message: error.message,
        way: "it runs and hangs, or something drops the way to it: read its log (journalctl -u salvor)")
    } catch {
      let message = (error as? SalvorError)?.message ?? "\(error)"
      return Finding(
        state: configuration?.client == nil ? .note : .bad, about: "server", message: message,
        way: "start it (salvor serve, systemctl start salvor), or correct client.transport.url")
    }
  }

  private func transport(_ invocation: Invocation) throws -> (any ClientTransport)? {
    if let client = configuration?.client { return try client.transport.make() }
    let server = configuration?.description["server"]
    let places = [server?["monitoring"], server?["listen"]].compactMap { $0 }
    guard let listen = places.first(where: { $0["module"]?.string == "http" && $0["tls"]?.members == nil }) else {
      return nil
    }
    let port = listen["port"]?.integer ?? 8484
    var host = listen["address"]?.string ?? "127.0.0.1"
    if host == "0.0.0.0" { host = "127.0.0.1" }
    if host == "::" { host = "::1" }
    if host.contains(":") { host = "[\(host)]" }
    return try AdministrationClient.transport(
      url: "http://\(host):\(port)", registry: invocation.registry, environment: environment)
  }

  /// Whether it is reached from outside, through whatever stands before it.
  func reach(outside url: String, _ invocation: Invocation) async -> Finding {
    do {
      let transport = try AdministrationClient.transport(
        url: url, registry: invocation.registry, environment: environment)
      let response = try await transport.ask("/healthz", withinMilliseconds: Self.patience, SystemClock())
      await transport.close()
      if response.status == 200, response.body == Array("ok\n".utf8) {
        return Finding(state: .good, about: "outside", message: "\(url) reaches it")
      }
      return Finding(
        state: .bad, about: "outside",
        message: "\(url) answers with status \(response.status), and not as a Salvor server does",
        way: "look at the proxy's log, and at Packaging/proxies for one that works")
    } catch {
      return Finding(
        state: .bad, about: "outside", message: (error as? SalvorError)?.message ?? "\(error)",
        way: "look at the name, the firewall and the proxy; the server's own address is under \"server\"")
    }
  }

  /// What the modules run on: to be compared with what the libraries' makers have mended.
  mutating func libraries(_ registry: ModuleRegistry) {
    let found = ToolVersion(registry).libraries.map { "\($0.name) \($0.version)" }
    add(.good, "libraries", "salvor \(salvorVersion), " + found.joined(separator: ", "))
  }

  private static let day: Int64 = 86_400_000

  mutating func certificates() {
    guard let transport = try? configuration?.server?.listen.make() as? any CertifiedTransport else { return }
    do {
      guard let end = try transport.certificateEnd() else { return }
      let left = end - SystemClock().now()
      let renew = "renew it; systemctl reload salvor (SIGHUP) takes it into use without a restart"
      if left <= 0 {
        add(.bad, "certificate", "it ended at \(moment(end)): no device connects", renew)
      } else if left < 21 * Self.day {
        add(
          left < 3 * Self.day ? .bad : .note, "certificate",
          "it ends at \(moment(end)), in \(left / Self.day) days", renew)
      } else {
        add(.good, "certificate", "until \(moment(end))")
      }
    } catch {
      add(.bad, "certificate", (error as? SalvorError)?.message ?? "\(error)", "correct server.listen.tls")
    }
  }

  /// Of a storage that is no file of this machine.
  mutating func storage() async {
    guard let configuration, configuration.server != nil else { return }
    do {
      guard let found = try await Host.examineServerStore(configuration) else { return }
      for problem in found.problems { add(.bad, "server's database", problem, "salvor serve would say the same") }
      if found.problems.isEmpty { add(.good, "server's database", found.description) }
    } catch {
      add(
        .bad, "server's database", (error as? SalvorError)?.message ?? "\(error)",
        "correct server.storage, or start the database")
    }
  }

  /// Which releases devices have, as the running server has seen them.
  private mutating func releases(_ invocation: Invocation, _ database: String) async {
    let file = AdministrationToken.file(of: database)
    let ofFile = (try? ConfigurationFile.read(file)).map {
      String(decoding: $0, as: UTF8.self).filter { !$0.isWhitespace }
    }
    guard let token = configuration?.server?.administrationToken ?? ofFile, let transport = try? transport(invocation),
      let response = try? await transport.send(
        TransportRequest(
          method: "GET", path: "/admin/v1/overview", headers: ["authorization": "Bearer \(token)"], contentLength: 0)),
      response.status == 200, let body = try? await response.body.collect(upTo: 1 << 20),
      let releases = try? JSONValue(parsing: body)["releases"]?.members, !releases.isEmpty
    else { return }
    await transport.close()
    let text = releases.map { "\(grouped($0.value.integer ?? 0)) with \(visible($0.key))" }.joined(separator: ", ")
    let others = releases.filter { $0.key != salvorVersion }
    add(
      others.isEmpty ? .good : .note, "releases",
      "devices since the server's start: \(text); the server has \(salvorVersion)",
      others.isEmpty ? "" : "a server serves devices of the minor version before: bring older ones up")
  }

  mutating func fleet(_ invocation: Invocation) async {
    guard let store = try? configuration?.server?.storage.make(), let file = (store as? any FileDatabase)?.databaseFile,
      fileExists(file)
    else { return }
    do {
      await releases(invocation, file)
      let store = try await invocation.openServerStore()
      let stats = try await store.stats()
      let month = SystemClock().now() - 30 * 86_400_000
      let away = try await store.remotes(RemoteQuery(limit: 1000, state: .known, unseenSince: month)).count
      await store.close()
      add(
        .good, "remotes", "\(grouped(stats.remotes)) known, \(grouped(stats.openConflicts)) conflicts wait for a person"
      )
      if away > 0 {
        add(
          .note, "remotes", "\(away == 1000 ? "1,000 or more" : grouped(Int64(away))) have not uploaded for 30 days",
          "salvor remotes lists them; salvor remotes delete forgets one")
      }
    } catch {
      add(
        .bad, "server's database", (error as? SalvorError)?.message ?? "\(error)", "salvor serve would say the same")
    }
  }
}
