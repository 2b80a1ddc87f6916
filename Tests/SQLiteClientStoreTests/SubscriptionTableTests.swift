import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteClientStore

/// The tables of a remote database that say what it subscribes to (docs/reference/remote-database.md).
@Suite struct SubscriptionTableTests {
  private static let notes = Schema(tables: [
    Table("note", primaryKey: ["id"], columns: [Column("id", .text), Column("title", .text)])
  ])

  @Test("A file from before there were several subscriptions of one target keeps what it had")
  func migrates() async throws {
    let bench = try await StoreBench(Self.notes)
    await bench.store.close()
    try SQLiteConnection(bench.path).execute(
      """
      DROP TABLE salvor_subscription; DROP TABLE salvor_subscribed; DROP TABLE salvor_leaving;
      ALTER TABLE salvor_group DROP COLUMN subscriptions;
      CREATE TABLE salvor_subscription (target TEXT NOT NULL, parameter TEXT NOT NULL, value, PRIMARY KEY (target, parameter)) WITHOUT ROWID;
      INSERT INTO salvor_subscription VALUES ('note', 'city', 'Guelph'), ('note', 'seats', 40), ('default', 'city', NULL);
      """)
    let store = SQLiteClientStore(path: bench.path)
    _ = try await store.open(ClientSetup(schema: Self.notes, principal: "anna"))
    let wanted = DeviceSettings(subscriptions: [
      Subscription(target: "note", parameters: ["city": .value("Guelph"), "seats": .value(40)]),
      Subscription(target: "default", parameters: ["city": .value(.null)]),
    ])
    #expect(try await store.deviceSettings() == wanted)
    try await store.setDeviceSettings(wanted)
    #expect(try await store.deviceSettings() == wanted)
    await store.close()
  }

  @Test("What another program writes is taken, and a target that it subscribed to once stays marked")
  func written() async throws {
    let bench = try await StoreBench(Self.notes)
    try bench.write(
      """
      INSERT INTO salvor_subscription (target, parameter, value) VALUES ('note', 'city', 'Guelph');
      INSERT INTO salvor_subscription (target, id, parameter, setting) VALUES ('note', 'x', 'city', 'home'), ('note', 'x', 'seats', NULL);
      INSERT OR REPLACE INTO salvor_subscription (target, id) VALUES ('note', 'all');
      INSERT OR IGNORE INTO salvor_subscription (target, parameter, value) VALUES ('gone', 'city', 'Ottawa');
      UPDATE salvor_subscription SET target = 'moved' WHERE target = 'gone';
      DELETE FROM salvor_subscription WHERE target = 'moved'
      """)
    for _ in 1...2 {
      #expect(
        try await bench.store.deviceSettings()
          == DeviceSettings(
            subscriptions: [
              Subscription(target: "note"), Subscription(target: "note", parameters: ["city": .value("Guelph")]),
              Subscription(target: "note", parameters: ["city": .setting("home"), "seats": .value(.null)]),
            ], subscribed: ["gone", "moved"]))
      await bench.store.close()
      _ = try await bench.store.open(ClientSetup(schema: Self.notes, principal: "anna"))
    }
    // The triggers are still there.
    try bench.write("INSERT INTO salvor_subscription (target) VALUES ('later'); DELETE FROM salvor_subscription")
    #expect(try await bench.store.deviceSettings() == DeviceSettings(subscribed: ["gone", "moved", "note", "later"]))
  }
}
