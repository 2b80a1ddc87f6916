import Foundation
import Testing

/// What `salvor server restores` says after restores by the tool, with real processes (semantics 10).
@Suite(.serialized) struct RestoreReportTests {
  @Test(
    "two restores of one copy: what comes back counts at the one that lost it; healing stays paused",
    arguments: [true, false])
  func twoOfOneCopy(hasCommits: Bool) async throws {
    let place = try Workspace()
    let server = place.server
    let device = try place.device("anna", url: try await server.start())
    try await device.sync()
    if hasCommits { try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('before', 'x')") }
    try await device.sync()
    let copy = place.directory.appendingPathComponent("copy.db").path
    #expect(try await server.salvor("server", "backup", copy).code == 0)
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('back', 'x')")
    try await device.sync()
    #expect(try await server.salvor("server", "restores", "pause").code == 0)
    for _ in 1...2 {
      #expect(try await server.stop().code == 0)
      #expect(try await server.salvor("server", "restore", copy).code == 0)
      try device.connect(to: try await server.start())
    }
    #expect(try await device.sync()["waiting"] == 1, "nobody has said that healing goes on")
    let queue = try await device.salvor("queue", "--json").json["requests"].items
    #expect(queue.map { $0["waitsFor"] } == ["server"])
    #expect(try await server.salvor("server", "restores", "resume").code == 0)
    for _ in 1...100 where try await device.sync()["queued"] != 0 { try await Task.sleep(for: .milliseconds(50)) }
    let rows = try contents(server.database, ["site"])["site"]?.map(\.[0].string)
    #expect(rows == ["back"] + (hasCommits ? ["before"] : []))
    let restores = try await server.salvor("server", "restores", "--json").json["restores"].items
    #expect(restores.reduce(0) { $0 + ($1["healed"].integer ?? 0) } == 1)
    #expect(restores.last?["id"] == 1 && restores.last?["lost"]["commits"] == 1)
    for restore in restores { #expect(restore["missing"]["commits"].items.count == 0) }
    guard hasCommits else { return _ = try await server.stop() }
    #expect(restores.map { $0["id"] } == [2, 1])
    #expect(restores.map { $0["healed"] } == [0, 1])
    #expect(restores.map { $0["lost"]["commits"] } == [0, 1])
    _ = try await server.stop()
  }

  @Test(
    "who accepts deletes of parents is told how many of them became conflict versions: a row needs its own (semantics 10)"
  )
  func acceptedParents() async throws {
    let place = try Workspace(serverOptions: "recovery: { heal: \"review\" },")
    let server = place.server
    let device = try place.device("anna", url: try await server.start())
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('one', 'x'), ('two', 'y')")
    try await device.sync()
    let copy = place.directory.appendingPathComponent("copy.db").path
    #expect(try await server.salvor("server", "backup", copy).code == 0)
    try device.sqlite().execute("DELETE FROM site")
    try await device.sync()
    #expect(try await server.stop().code == 0)
    #expect(try await server.salvor("server", "restore", copy).code == 0)
    try device.connect(to: try await server.start())
    try await device.sync()
    // Another program hangs a row below one of them meanwhile.
    try server.sqlite().execute("INSERT INTO visit (id, site_id) VALUES ('v', 'one')")
    let told = try await server.salvor("server", "restores", "accept", "1")
    #expect(told.code == 0, "\(told.err)")
    #expect(told.out.contains("accepted 2 offers"), "\(told.out)")
    #expect(told.out.contains("1 of them is a conflict version now"), "\(told.out)")
    #expect(try await server.salvor("conflicts", "--json").json["conflicts"].items.count == 1)
    try await device.sync()
    #expect(try contents(device.database) == contents(server.database))
    _ = try await server.stop()
  }
}
