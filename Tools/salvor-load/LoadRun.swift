import Foundation
import SalvorHost
import SalvorModel
import StandardModules

/// Devices and, where it is asked for, attackers against one server.
struct LoadRun: Sendable {
  let options: LoadOptions
  init(_ options: LoadOptions) { self.options = options }

  /// How long devices are measured before an attack begins, and how long both go on before the server is told to end.
  private var secondsBefore: Double { min(30, max(2, options.seconds / 2)) }
  private static let secondsBeforeTheEnd = 2.0

  /// True: the server lived, health was answered, honest devices were served, what was acknowledged is there, the database is
  /// healthy.
  func run() async throws -> Bool {
    let server = try ServerUnderTest(options.salvor, files: options.files)
    let schema = try Host.load(server.configuration, modules: StandardModules.all, environment: [:]).schema
    let figures = Figures()
    let acknowledged = Acknowledged()
    let watch = Watch(server, figures)
    let devices = try Devices(options, schema: schema, url: server.url, figures: figures, acknowledged: acknowledged)
    try await devices.join()
    if !options.attacks.isEmpty { await devices.run(.before, seconds: secondsBefore) }
    var made: [Attack] = []
    for kind in options.attacks { made.append(try await Attack(kind, port: server.port, figures: figures)) }
    let attacks = made
    let watching = Task { await watch.run() }
    try await during(attacks) { await devices.run(.measured, seconds: options.seconds) }
    // All clear: what is left of the attack is gone.
    let clear = await watch.secondsUntilClear()
    watching.cancel()
    await watching.value
    let isAlive = server.isAlive
    let peak = server.kilobytes("VmHWM")
    let resident = server.kilobytes("VmRSS")
    let cpu = server.seconds
    // It is told to end in the middle of all this.
    let stop = try await during(attacks) {
      async let others: Void = devices.run(.ending, seconds: Self.secondsBeforeTheEnd + 1)
      try await Task.sleep(for: .seconds(Self.secondsBeforeTheEnd))
      let stop = await onThread { server.stop() }
      await others
      return stop
    }
    await devices.close()
    let damage = try server.damage()
    let lost = try server.missing(acknowledged.all)
    let health = figures["health"]
    let unserved = options.honest.map { figures[$0.rawValue].failures.values.reduce(0, +) }.reduce(0, +)
    let served = options.honest.map { figures[$0.rawValue].milliseconds.count }.reduce(0, +)
    let isWell =
      isAlive && damage.isEmpty && lost.isEmpty && stop.isClean && health.failures.isEmpty
      && !health.milliseconds.isEmpty
      && unserved * 100 <= served && (options.devices == 0 || served > 0)
    report(
      figures,
      [
        ("alive", isAlive ? "yes" : "no"),
        ("acknowledged rows", "\(acknowledged.all.count)" + (lost.isEmpty ? "" : ", lost: \(lost.prefix(3))")),
        ("database", damage.isEmpty ? "healthy" : "damaged: \(damage.prefix(3))"),
        ("memory peak", "\(peak / 1024) MB"), ("memory after", "\(resident / 1024) MB"),
        ("processor", "\(String(format: "%.1f", cpu)) s"),
        ("clear after", clear.map { String(format: "%.1f s", $0) } ?? "not within 10 s"),
        ("slower than before", options.attacks.isEmpty ? "" : slower(figures)),
        ("SIGTERM to end", String(format: "%.1f s, exit code %@", stop.seconds, stop.isClean ? "0" : "not 0")),
      ].filter { !$0.1.isEmpty }, isWell: isWell)
    return isWell
  }

  /// Runs `body` while the attackers do what they do.
  private func during<Result: Sendable>(
    _ attacks: [Attack], _ body: @Sendable () async throws -> Result
  ) async throws -> Result {
    try await withThrowingTaskGroup(of: Void.self) { group in
      for attack in attacks {
        attack.begin()
        group.addTask { await attack.run() }
      }
      defer { for attack in attacks { attack.stop() } }
      return try await body()
    }
  }

  /// What an attack made of the devices' times: medians.
  private func slower(_ figures: Figures) -> String {
    options.honest.compactMap { kind in
      let (before, now) = (figures[LoadPhase.before.name(kind)], figures[kind.rawValue])
      guard before.p50 > 0, now.p50 > 0 else { return nil }
      return "\(kind.rawValue) " + String(format: "%.1fx", now.p50 / before.p50)
    }.joined(separator: ", ")
  }

  private func report(_ figures: Figures, _ facts: [(String, String)], isWell: Bool) {
    if options.isJSON {
      var kinds: [String: Any] = [:]
      for (name, kind) in figures.all {
        kinds[name] = ["answers": kind.milliseconds.count, "p50": kind.p50, "p99": kind.p99, "failures": kind.failures]
      }
      let json: [String: Any] = [
        "well": isWell, "kinds": kinds,
        "server": Dictionary(facts.map { ($0.0, $0.1) }) { first, _ in first },
      ]
      if let data = try? JSONSerialization.data(withJSONObject: json, options: [.sortedKeys]) {
        print(String(decoding: data, as: UTF8.self))
      }
      return
    }
    func padded(_ text: String, _ width: Int) -> String {
      text + String(repeating: " ", count: max(1, width - text.count))
    }
    print(padded("", 28) + padded("answers", 10) + padded("p50 ms", 10) + padded("p99 ms", 10) + "not served")
    for (name, kind) in figures.all {
      let failures = kind.failures.sorted { $0.key < $1.key }.map { "\($0.value) \($0.key)" }.joined(separator: ", ")
      print(
        padded(name, 28) + padded("\(kind.milliseconds.count)", 10) + padded(String(format: "%.1f", kind.p50), 10)
          + padded(String(format: "%.1f", kind.p99), 10) + failures)
    }
    for (name, value) in facts { print(padded(name, 28) + value) }
    print(isWell ? "well" : "not well")
  }
}

/// Asks for the server's health all the time, and looks at its process.
final class Watch: Sendable {
  private let server: ServerUnderTest
  private let figures: Figures
  private let filesBefore: Int

  init(_ server: ServerUnderTest, _ figures: Figures) {
    self.server = server
    self.figures = figures
    filesBefore = server.openFiles
  }

  func run() async {
    while !Task.isCancelled, server.isAlive {
      let start = ContinuousClock.now
      let port = server.port
      let status = await onThread { () -> Int? in
        guard let connection = RawConnection(port) else { return nil }
        connection.send("GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        return connection.receive().flatMap { try? RawAnswer($0) }?.status
      }
      if status == 200 {
        figures.add("health", milliseconds: milliseconds(since: start))
      } else {
        figures.fail("health", status.map { "status \($0)" } ?? "no answer")
      }
      try? await Task.sleep(for: .milliseconds(100))
    }
  }

  /// Until the process has no more than a few files open beyond those that it began with.
  func secondsUntilClear() async -> Double? {
    let start = ContinuousClock.now
    while milliseconds(since: start) < 10_000 {
      if server.openFiles <= filesBefore + 24 { return milliseconds(since: start) / 1000 }
      try? await Task.sleep(for: .milliseconds(50))
    }
    return nil
  }
}
