import LoopbackTransport
import MemoryStore
import SalvorModel
import SalvorServerEngine
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing

@testable import SalvorClientEngine

/// - Parameter keySet: sites and visits are compared in every sync.
private func places(keySet: Bool) -> Schema {
  var schema = everything
  for place in schema.tables.indices where keySet && schema.tables[place].group == "places" {
    schema.tables[place].download = .keySet
  }
  return schema
}

private let everything = Schema(
  parameters: [Schema.Parameter(name: "region", type: .text), Schema.Parameter(name: "size", type: .integer)],
  groups: [Schema.Group(name: "places"), Schema.Group(name: "lookups"), Schema.Group(name: "photos")],
  tables: [
    Table(
      "site", group: "places", primaryKey: ["id"],
      columns: [Column("id", .text), Column("region", .text), Column("size", .integer), Column("name", .text)],
      scope: [
        ScopeColumn(column: "region", source: .parameter("region")),
        ScopeColumn(column: "size", source: .parameter("size")),
      ]),
    Table(
      "visit", group: "places", primaryKey: ["id"],
      columns: [Column("id", .text), Column("site_id", .text), Column("note", .text, nullable: true)],
      references: [Reference(column: "site_id", table: "site", inheritsScope: true, onDelete: .cascade)]),
    Table(
      "photo", group: "photos", primaryKey: ["id"], columns: [Column("id", .text), Column("visit_id", .text)],
      references: [Reference(column: "visit_id", table: "visit", inheritsScope: true)]),
    Table("word", maintained: .server, group: "lookups", primaryKey: ["id"], columns: [Column("id", .text)]),
  ])

/// Everybody, but for one who may see one region.
private struct Credentials: Authentication {
  func authenticate(_ request: TransportRequest) async throws -> Principal {
    let name = request.headers["salvor-principal"] ?? "anna"
    return Principal(name: name, parameters: name == "limited" ? ["region": ["EU"]] : [:])
  }
  func headers(credentials: [String: String]) throws -> [String: String] { credentialHeaders(credentials) }
}

private func insert(_ table: String, _ values: KeyValuePairs<String, Value>) -> ApplicationWrite {
  .insert(table: table, values: values.map { NamedValue($0.key, $0.value) })
}

/// A server with two sites in each of two regions, one of each size, and a visit to each.
private struct Place {
  let server = MemoryServerStore()
  let network = LoopbackNetwork()
  let schema: Schema

  init(keySet: Bool = false) async throws {
    let schema = places(keySet: keySet)
    self.schema = schema
    let (engine, _) = try await ServerEngine.start(
      ServerConfiguration(schema: schema, store: server, authentication: Credentials(), compressions: []))
    _ = try await LoopbackServerTransport(network).start { await engine.handle($0) }
    var writes = [insert("word", ["id": "w"])]
    for (region, name) in [("EU", "eu"), ("US", "us")] {
      for size in 1...2 {
        let id = Value.text("\(name)\(size)")
        writes.append(
          insert("site", ["id": id, "region": .text(region), "size": .integer(Int64(size)), "name": "as it was"]))
        writes.append(insert("visit", ["id": .text("v-\(name)\(size)"), "site_id": id]))
      }
    }
    try await server.write(writes)
  }

  func device(_ name: String = "anna") async throws -> Device {
    let store = MemoryClientStore()
    let client = SalvorClient(
      SalvorClient.Configuration(
        schema: schema, principal: name, store: store, transport: LoopbackClientTransport(network),
        credentials: credentialHeaders(["principal": name])))
    try await client.open()
    return Device(client: client, store: store)
  }
}

private struct Device {
  let client: SalvorClient
  let store: MemoryClientStore

  func sites() async throws -> [Value] { try await store.rows(of: "site").map { $0[0] } }
  func visits() async throws -> [Value] { try await store.rows(of: "visit").map { $0[0] } }

  /// Upserts and deletes of one sync that goes well.
  func sync(_ groups: Set<String>? = nil) async -> [Int64] {
    let report = await client.attemptSync(groups: groups)
    #expect(report.error == nil)
    #expect(report.refused == 0 && report.displaced == 0)
    return [report.upserts, report.deletes]
  }
}

@Suite("Subscriptions, over memory stores")
struct SubscriptionTests {
  @Test(
    "Adding a subscription fetches only what is new, removing one drops only what no other one covers",
    arguments: [false, true])
  func addAndRemove(keySet: Bool) async throws {
    let device = try await Place(keySet: keySet).device()
    #expect(try await device.client.subscribe("site", ["region": .value("EU")]))
    #expect(await device.sync() == [5, 0])
    #expect(try await device.sites() == ["eu1", "eu2"])
    #expect(try await device.client.subscribe("site", ["size": .value(1)]))
    #expect(await device.sync() == [2, 0])
    #expect(try await device.sites() == ["eu1", "eu2", "us1"])
    #expect(try await device.visits() == ["v-eu1", "v-eu2", "v-us1"])
    try await device.client.unsubscribe("site", ["region": .value("EU")])
    #expect(await device.sync() == [0, 2])
    #expect(try await device.sites() == ["eu1", "us1"])
    #expect(await device.sync() == [0, 0])
    try await device.client.unsubscribe("site", ["size": .value(1)])
    #expect(await device.sync() == [0, 4])
    #expect(try await device.sites() == [])
    #expect(try await device.store.rows(of: "word") == [["w"]])
    #expect(try await device.client.subscribe("site"))
    #expect(await device.sync() == [8, 0])
  }

  @Test("A device that never subscribed has everything; the first subscription narrows it, --all brings nothing")
  func firstNarrows() async throws {
    let device = try await Place().device()
    #expect(await device.sync() == [9, 0])
    #expect(try await device.client.subscribe("places", ["region": .value("US")]))
    #expect(await device.sync() == [0, 4])
    #expect(try await device.sites() == ["us1", "us2"])
    #expect(try await device.client.unsubscribe(allOf: "places").map(\.text) == ["places region=US"])
    #expect(await device.sync() == [0, 4])
    #expect(try await device.client.unsubscribe(allOf: "site") == [])
    #expect(await device.sync() == [0, 0])
  }

  @Test(
    "Unsynced changes of dropped rows are sent, their parents stay until then, and then they go",
    arguments: [false, true])
  func dirtyRows(keySet: Bool) async throws {
    let place = try await Place(keySet: keySet)
    let device = try await place.device()
    try await device.client.subscribe("site", ["region": .value("EU")])
    #expect(await device.sync() == [5, 0])
    try await device.client.unsubscribe("site", ["region": .value("EU")])
    let update = ApplicationWrite.update(table: "site", key: ["eu1"], values: [NamedValue("name", "mine")])
    try await device.store.write([update, insert("visit", ["id": "v9", "site_id": "eu2"])])
    let report = await device.client.attemptSync()
    #expect(report.error == nil && report.uploaded == 2 && report.refused == 0 && report.displaced == 0)
    #expect(try await place.server.rows(of: "site").first == ["eu1", "EU", 1, "mine"])
    #expect(try await place.server.rows(of: "visit").count == 5)
    #expect(try await device.sites() == [])
    #expect(try await device.visits() == [])
    #expect(try await device.client.status().displaced == 0)
  }

  @Test(
    "A local insert outside of every subscription is sent, and goes afterwards",
    arguments: [false, true])
  func insertOutside(keySet: Bool) async throws {
    let place = try await Place(keySet: keySet)
    let device = try await place.device()
    try await device.client.subscribe("site", ["region": .value("EU")])
    #expect(await device.sync() == [5, 0])
    try await device.store.write([
      insert("site", ["id": "us9", "region": "US", "size": 1, "name": "mine"]),
      insert("visit", ["id": "v9", "site_id": "us9"]),
    ])
    let report = await device.client.attemptSync()
    #expect(report.uploaded == 2 && report.deletes == 2)
    #expect(try await device.sites() == ["eu1", "eu2"])
    #expect(try await place.server.rows(of: "site").count == 5)
  }

  @Test("Verifying compares what is subscribed to, by the subscriptions of the last sync", arguments: [false, true])
  func verify(keySet: Bool) async throws {
    let place = try await Place(keySet: keySet)
    let device = try await place.device()
    try await device.client.subscribe("site", ["region": .value("EU")])
    try await device.client.subscribe("site", ["size": .value(2)])
    #expect(await device.sync() == [7, 0])
    let all = try await device.client.verify()
    #expect(all.differences == [] && all.remaining == 0)
    #expect(all.tables.map(\.rows) == all.tables.map(\.serverRows))
    #expect(all.tables.first { $0.name == "site" }?.rows == 3)
    try await device.client.unsubscribe("site", ["region": .value("EU")])
    let less = try await device.client.verify()
    #expect(less.differences == [] && less.tables.first { $0.name == "visit" }?.serverRows == 2)
    #expect(try await device.sites() == ["eu2", "us2"])
  }

  @Test("A personalization key as a value: unset it brings nothing and is named; a change moves the rows")
  func settings() async throws {
    let device = try await Place().device()
    try await device.client.subscribe("site", ["region": .setting("home"), "size": .setting("size")])
    let unset = await device.client.attemptSync()
    #expect(unset.notices.count == 1 && unset.notices[0].contains("home, size"))
    #expect(try await device.sites() == [])
    func choose(_ region: Value, _ size: Value) async throws {
      var settings = try await device.store.deviceSettings()
      settings.settings = ["home": region, "size": size]
      try await device.store.setDeviceSettings(settings)
    }
    // A text where the parameter is an integer.
    try await choose("EU", "2")
    #expect(await device.sync() == [2, 0])
    #expect(try await device.sites() == ["eu2"])
    try await choose("US", 2)
    #expect(await device.sync() == [2, 2])
    #expect(try await device.sites() == ["us2"])
    try await choose("US", "large")
    #expect(await device.sync() == [0, 2])
    #expect(try await device.client.subscriptions.map(\.isSynchronized) == [false])
  }

  @Test("A value that the credential does not allow brings nothing, and the sync says so")
  func notAllowed() async throws {
    let device = try await Place().device("limited")
    try await device.client.subscribe("site", ["region": .value("US")])
    let report = await device.client.attemptSync()
    #expect(report.error == nil && report.upserts == 1)
    #expect(report.notices.contains { $0.contains("region") && $0.contains("site") })
    try await device.client.subscribe("site", ["region": .value("EU")])
    #expect(await device.sync() == [4, 0])
  }

  @Test(
    "Other devices write meanwhile: what comes and goes is what is covered at the end",
    arguments: [false, true])
  func othersWrite(keySet: Bool) async throws {
    let place = try await Place(keySet: keySet)
    let device = try await place.device(), other = try await place.device("berta")
    try await device.client.subscribe("site", ["region": .value("EU")])
    for device in [device, other] { _ = await device.sync() }
    try await device.client.subscribe("site", ["region": .value("US")])
    try await device.client.unsubscribe("site", ["region": .value("EU")])
    try await other.store.write([
      .update(table: "site", key: ["us1"], values: [NamedValue("name", "of berta")]),
      insert("site", ["id": "us3", "region": "US", "size": 3, "name": "new"]),
      .delete(table: "site", key: ["eu1"]),
    ])
    _ = await other.sync()
    _ = await device.sync()
    #expect(
      try await device.store.rows(of: "site") == [
        ["us1", "US", 1, "of berta"], ["us2", "US", 2, "as it was"], ["us3", "US", 3, "new"],
      ])
    #expect(await device.sync() == [0, 0])
  }

  @Test("One group at a time: a group that was never synchronized stays so, whatever is subscribed to")
  func groups() async throws {
    let device = try await Place().device()
    try await device.client.subscribe("site", ["region": .value("EU")])
    for _ in 1...2 {
      _ = await device.sync(["lookups"])
      let groups = try await device.client.status().state.groups
      #expect(groups.map(\.isSynchronized) == [false, true, false])
      #expect(groups.map { $0.lastSync != nil } == [false, true, false])
      #expect(try await device.client.subscriptions.map(\.isSynchronized) == [false])
    }
    #expect(await device.sync(["places"]) == [4, 0])
    #expect(try await device.client.subscriptions.map(\.isSynchronized) == [true])
    try await device.client.unsubscribe("site", ["region": .value("EU")])
    #expect(await device.sync(["lookups"]) == [0, 0])
    #expect(try await device.sites() == ["eu1", "eu2"])
  }

  @Test("One group alone whose subscriptions have changed takes those along that reference it, and no others")
  func referencingGroups() async throws {
    let place = try await Place()
    try await place.server.write([insert("photo", ["id": "p", "visit_id": "v-eu1"])])
    let device = try await place.device()
    try await device.client.subscribe("site", ["region": .value("EU")])
    #expect(await device.sync(["places"]) == [4, 0])
    #expect(try await device.client.status().state.groups.map(\.isSynchronized) == [true, false, false])
    #expect(await device.sync(["photos"]) == [1, 0])
    for _ in 1...2 {
      try await device.client.unsubscribe("site", ["region": .value("EU")])
      #expect(await device.sync(["places"]) == [0, 5])
      try await device.client.subscribe("site", ["region": .value("EU")])
      #expect(await device.sync(["places"]) == [5, 0])
    }
    #expect(try await device.store.rows(of: "photo") == [["p", "v-eu1"]])
  }

  @Test("A subscription by a parameter that there is not (any more) brings nothing, and the sync says so")
  func unknownParameter() async throws {
    let device = try await Place().device()
    #expect(await device.sync() == [9, 0])
    try await device.store.setDeviceSettings(
      DeviceSettings(subscriptions: [Subscription(target: "site", parameters: ["area": .value("EU")])]))
    for deletes in [8, 0] as [Int64] {
      let report = await device.client.attemptSync()
      #expect(report.error == nil && report.deletes == deletes)
      #expect(report.notices.contains { $0.contains("site area=EU") })
    }
    try await device.client.subscribe("site", ["region": .value("EU")])
    #expect(await device.sync() == [4, 0])
  }

  @Test("What cannot be subscribed to is refused by name, with what is near; the same again is the same")
  func refusals() async throws {
    let client = try await Place().device().client
    func refusal(_ target: String, _ parameters: [String: Subscription.Choice] = [:]) async -> SalvorError? {
      do { try await client.subscribe(target, parameters) } catch { return error as? SalvorError }
      return nil
    }
    #expect(await refusal("sitte")?.message.contains("did you mean \"site\"?") == true)
    #expect(await refusal("site", ["regoin": .value("EU")])?.message.contains("did you mean \"region\"?") == true)
    #expect(await refusal("visit", ["region": .value("EU")])?.message.contains("site") == true)
    #expect(await refusal("word")?.code == .usage)
    #expect(await refusal("site", ["size": .value("EU")])?.message.contains("integer") == true)
    #expect(try await client.subscriptions == [])
    #expect(try await client.subscribe("site", ["size": .value(1), "region": .value("EU")]))
    #expect(try await !client.subscribe("site", ["region": .value("EU"), "size": .value(1)]))
    #expect(try await client.subscriptions.map(\.subscription.text) == ["site region=EU size=1"])
    await #expect(throws: SalvorError.self) { try await client.unsubscribe("site", ["size": .value(1)]) }
    do { try await client.unsubscribe("site") } catch { #expect((error as? SalvorError)?.code == .notFound) }
  }

  @Test("A watch acts upon a subscription that changes, and upon the value of a personalization key")
  func watched() async throws {
    let device = try await Place().device()
    try await device.client.subscribe("site", ["region": .setting("home")])
    let watch = Task { await device.client.watch() }
    func eventually(_ sites: [Value]) async throws {
      for _ in 0..<6000 {
        if try await device.sites() == sites { return }
        try await Task.sleep(for: .milliseconds(20))
      }
      Issue.record("\(sites) did not come in two minutes")
    }
    for (region, sites) in [("EU", ["eu1", "eu2"]), ("US", ["us1", "us2"])] as [(Value, [Value])] {
      var settings = try await device.store.deviceSettings()
      settings.settings["home"] = region
      try await device.store.setDeviceSettings(settings)
      try await eventually(sites)
    }
    try await device.client.subscribe("site", ["size": .value(1)])
    try await eventually(["eu1", "us1", "us2"])
    watch.cancel()
    _ = await watch.value
  }
}
