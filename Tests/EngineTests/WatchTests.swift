import LoopbackTransport
import MemoryStore
import NoAuthentication
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

@testable import SalvorClientEngine

private let schema = Schema(
  groups: [Schema.Group(name: "live", serverInitiated: true), Schema.Group(name: "slow")],
  tables: ["live", "slow"].map { name in
    Table(
      name, group: name, primaryKey: ["id"], columns: [Column("id", .text), Column("v", .text, nullable: true)])
  })

/// Waits, generously: a loaded machine is no failure.
private func eventually(_ condition: () async throws -> Bool) async throws {
  for _ in 0..<6000 {
    if try await condition() { return }
    try await Task.sleep(for: .milliseconds(20))
  }
  Issue.record("it did not come about in two minutes")
}

/// A server that can be stopped and started again, over the memory store and the loopback transport.
private final class Place: Sendable {
  let store = MemoryServerStore()
  let network = LoopbackNetwork()
  private let running = Mutex<(engine: ServerEngine, transport: LoopbackServerTransport)?>(nil)

  func start(_ schema: Schema = schema) async throws {
    var limits = Limits()
    limits.eventLookMilliseconds = 20
    let (engine, _) = try await ServerEngine.start(
      ServerConfiguration(
        schema: schema, store: store, authentication: NoAuthentication(), compressions: [], limits: limits))
    let transport = LoopbackServerTransport(network)
    _ = try await transport.start { await engine.handle($0) }
    running.withLock { $0 = (engine, transport) }
  }

  func stop() async {
    guard let (engine, transport) = running.withLock({ $0 }) else { return }
    engine.endWaiting()
    await transport.stop(graceMilliseconds: 10_000)
    await engine.stop()
  }

  func client(_ store: MemoryClientStore, principal: String = "anna") -> SalvorClient {
    SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: principal, store: store, transport: LoopbackClientTransport(network),
        credentials: credentialHeaders(["principal": principal])))
  }
}

private final class Count: Sendable {
  private let count = Mutex(0)
  var value: Int { count.withLock { $0 } }
  func add() { count.withLock { $0 += 1 } }
}

private func insert(_ table: String, _ id: String) -> ApplicationWrite {
  .insert(table: table, values: [NamedValue("id", .text(id))])
}

@Suite("Watching, over memory stores")
struct WatchTests {
  @Test("A write on one device is on the other, without anybody asking; a device hears nothing of its own uploads")
  func twoDevices() async throws {
    let place = Place()
    try await place.start()
    let stores = [MemoryClientStore(), MemoryClientStore()]
    let clients = [place.client(stores[0]), place.client(stores[1])]
    let changes = Count()
    let events = clients[0].events
    let counting = Task {
      for await event in events { if case .changed = event { changes.add() } }
    }
    let syncs = [Count(), Count()]
    func watching(_ place: Int) -> Task<SyncReport?, Never> {
      let (client, count) = (clients[place], syncs[place])
      return Task { await client.watch { _ in count.add() } }
    }
    let watches = [watching(0), watching(1)]
    try await eventually { syncs.map(\.value) == [1, 1] }
    try await stores[0].write([insert("live", "l1")])
    try await eventually { try await stores[1].rows(of: "live") == [["l1", .null]] }
    #expect(changes.value == 0)
    try await stores[1].write([insert("live", "l2")])
    try await eventually { try await stores[0].rows(of: "live").count == 2 }
    #expect(changes.value >= 1)
    try await place.store.write([insert("live", "l3")])
    for store in stores { try await eventually { try await store.rows(of: "live").count == 3 } }
    for watch in watches {
      watch.cancel()
      #expect(await watch.value == nil)
    }
    counting.cancel()
    await place.stop()
  }

  @Test("What happens is told in order: listening, changed, captured, synchronized, and the end with the client's")
  func events() async throws {
    let place = Place()
    try await place.start()
    let store = MemoryClientStore()
    let client = place.client(store)
    let events = client.events
    let watch = Task { await client.watch() }
    var seen: [String] = []
    for await event in events {
      switch event {
      case .synchronized where seen.isEmpty: seen.append("first")
      case .listening(let groups):
        #expect(groups == ["live"])
        seen.append("listening")
        try await place.store.write([insert("live", "l1")])
      case .changed(let groups, let commit):
        #expect(groups == ["live"])
        #expect(commit == 1)
        seen.append("changed")
      case .synchronized(let report) where seen.last == "changed":
        #expect(report.upserts == 1)
        seen.append("received")
        try await store.write([insert("slow", "s1")])
      case .captured(let groups):
        #expect(groups == ["slow"])
        seen.append("captured")
      case .synchronized(let report) where seen.last == "captured":
        #expect(report.uploaded == 1)
        seen.append("sent")
        watch.cancel()
        _ = await watch.value
        await client.close()
      default: break
      }
    }
    #expect(seen == ["first", "listening", "changed", "received", "captured", "sent"])
    await place.stop()
  }

  @Test("A group that the server does not tell of, or that is not to be told of, is synchronized at its interval")
  func intervals() async throws {
    let place = Place()
    try await place.start()
    let store = MemoryClientStore()
    let client = place.client(store)
    try await client.open()
    try await store.setDeviceSettings(
      DeviceSettings(settings: [
        "salvor.serverInitiated.live": "off", "salvor.interval.live": 0.2, "salvor.interval.slow": "0.2",
      ]))
    let listens = Count()
    let events = client.events
    let listening = Task {
      for await event in events { if case .listening = event { listens.add() } }
    }
    let syncs = Count()
    let watch = Task { await client.watch { _ in syncs.add() } }
    try await eventually { syncs.value >= 2 }
    try await place.store.write([insert("live", "l1"), insert("slow", "s1")])
    for table in ["live", "slow"] { try await eventually { try await store.rows(of: table).count == 1 } }
    #expect(listens.value == 0)
    watch.cancel()
    _ = await watch.value
    listening.cancel()
    await place.stop()
  }

  @Test("A group whose interval is 0 is synchronized when it is written here, and not otherwise")
  func never() async throws {
    let place = Place()
    try await place.start()
    let store = MemoryClientStore()
    let client = place.client(store)
    try await client.open()
    try await store.setDeviceSettings(DeviceSettings(settings: ["salvor.interval.slow": 0]))
    let syncs = Count()
    let watch = Task { await client.watch { _ in syncs.add() } }
    try await eventually { syncs.value == 1 }
    try await place.store.write([insert("slow", "s1"), insert("live", "l1")])
    try await eventually { try await store.rows(of: "live").count == 1 }
    #expect(try await store.rows(of: "slow") == [])
    try await store.write([insert("slow", "s2")])
    try await eventually { try await store.rows(of: "slow").count == 2 }
    watch.cancel()
    _ = await watch.value
    await place.stop()
  }

  @Test("A watch outlives its server: what was written meanwhile on either side meets when it is back")
  func restart() async throws {
    let place = Place()
    try await place.start()
    let store = MemoryClientStore()
    let client = place.client(store)
    let syncs = Count()
    let watch = Task { await client.watch { _ in syncs.add() } }
    try await eventually { syncs.value == 1 }
    await place.stop()
    try await store.write([insert("live", "mine")])
    try await place.start()
    try await place.store.write([insert("live", "theirs")])
    try await eventually { try await store.rows(of: "live").count == 2 }
    try await eventually { try await place.store.rows(of: "live").count == 2 }
    watch.cancel()
    #expect(await watch.value == nil)
    await place.stop()
  }

  @Test("A group that comes with a new schema is synchronized whole, and told of from then on")
  func newGroup() async throws {
    let place = Place()
    try await place.start()
    let store = MemoryClientStore()
    let client = place.client(store)
    let watch = Task { await client.watch() }
    try await place.store.write([insert("live", "l1")])
    try await eventually { (try? await store.rows(of: "live").count) == 1 }
    await place.stop()
    var later = schema
    later.version = 2
    later.groups.append(Schema.Group(name: "later", serverInitiated: true))
    later.tables.append(Table("later", group: "later", primaryKey: ["id"], columns: [Column("id", .text)]))
    try await place.start(later)
    try await place.store.write([insert("later", "n1"), insert("live", "l2")])
    try await eventually { (try? await store.rows(of: "later").count) == 1 }
    try await place.store.write([insert("later", "n2")])
    try await eventually { try await store.rows(of: "later").count == 2 }
    watch.cancel()
    _ = await watch.value
    await place.stop()
  }

  @Test("A watch ends with the report that needs a person: an unknown group, a principal that is locked out")
  func needsAPerson() async throws {
    let place = Place()
    try await place.start()
    let unknown = await place.client(MemoryClientStore()).watch(groups: ["nosuch"])
    #expect(unknown?.exitCode == 2)
    let store = MemoryClientStore()
    let client = place.client(store)
    #expect(await client.attemptSync().error == nil)
    _ = try await place.store.deleteRemote(try await store.status().state.remoteID, block: true)
    #expect(await client.watch()?.exitCode == 4)
    await place.stop()
  }

  @Test("Watching one group leaves the others alone")
  func oneGroup() async throws {
    let place = Place()
    try await place.start()
    let store = MemoryClientStore()
    let client = place.client(store)
    let syncs = Count()
    let watch = Task { await client.watch(groups: ["live"]) { _ in syncs.add() } }
    try await eventually { syncs.value == 1 }
    try await store.write([insert("slow", "s1")])
    try await store.write([insert("live", "l1")])
    try await eventually { try await place.store.rows(of: "live").count == 1 }
    #expect(try await place.store.rows(of: "slow") == [])
    #expect(try await store.status().state.groups.map(\.isSynchronized) == [true, false])
    watch.cancel()
    _ = await watch.value
    await place.stop()
  }
}

@Suite("Settings of a watch")
struct WatchSettingsTests {
  @Test(
    "serverInitiated is on unless it says otherwise",
    arguments: [
      (Value.text("off"), false), ("OFF", false), ("0", false), (0, false), ("no", false), ("false", false),
      ("on", true), (1, true), (.null, true), ("", true),
    ])
  func serverInitiated(value: Value, isOn: Bool) {
    #expect(WatchSettings(["salvor.serverInitiated.a b": value]).isServerInitiated("a b") == isOn)
    #expect(WatchSettings(["salvor.serverInitiated.a b": value]).isServerInitiated("a"))
  }

  @Test(
    "an interval is a number of seconds; 0 is never, what is no number is the default",
    arguments: [
      (Value.integer(5), 5000), (0.5, 500), ("2.5", 2500), (0.001, 100), (0, nil), (-1, nil), ("soon", 60_000),
      (.null, 60_000), (.real(.infinity), 60_000), (.integer(.max), 1_000_000_000_000),
    ] as [(Value, Int64?)])
  func interval(value: Value, milliseconds: Int64?) {
    #expect(WatchSettings(["salvor.interval.a": value]).intervalMilliseconds("a") == milliseconds)
    #expect(WatchSettings().intervalMilliseconds("a") == 60_000)
  }
}
