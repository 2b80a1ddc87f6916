import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// A server whose devices take their groups as files, and names another address for these.
struct SnapshotScene {
  let place: Workspace
  let url: String
  private let raw: RawHTTP
  /// Of the files.
  let folder: String
  private let credentials: String

  /// - Parameter url: `server.snapshots.url`.
  init(url other: String) async throws {
    place = try Workspace(
      authentication: #"{ module: "tokens", file: "tokens.json5" }"#,
      serverOptions: "snapshots: { minRows: 1, path: \"files\", compression: \"gzip\", url: \"\(other)\" },")
    folder = place.directory.appendingPathComponent("files").path
    let made = try await place.server.salvor("token", "anna", "--json").json
    try place.write("{ tokens: [ \(made["line"].string ?? "") ] }", to: "tokens.json5")
    credentials = "{ token: \"\(made["token"].string ?? "")\" }"
    url = try await place.server.start()
    raw = try RawHTTP(url)
    try place.server.sqlite().execute(
      """
      INSERT INTO severity VALUES (1, 'minor');
      WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 500)
      INSERT INTO site SELECT printf('s%06d', i), hex(randomblob(20)), i FROM n;
      INSERT INTO visit SELECT 'v' || id, id, 1, hex(randomblob(1000)), seats / 7.0, NULL FROM site;
      """)
    for group in ["reference", "visits"] {
      let made = try await place.server.salvor("server", "snapshots", "make", group)
      guard made.code == 0 else { throw Unexpected("no snapshot of \(group): \(made.err)") }
    }
  }

  func device(_ name: String) throws -> Device { try place.device(name, url: url, credentials: credentials) }

  /// The first half of each file, as a sync that was cut leaves it.
  func leaveHalf(to device: Device) throws {
    for id in try ids() {
      let half = try #require(FileManager.default.contents(atPath: "\(folder)/\(id).gzip")).prefix(try size(id) / 2)
      try half.write(to: URL(fileURLWithPath: "\(device.database)-snapshot-\(id).part"))
    }
  }

  /// What the server itself has sent of snapshots: answers, and bytes.
  func sent() async throws -> (answers: Int64, bytes: Int64) {
    let lines = try await raw.request("GET", "/metrics").text.split(separator: "\n")
    func value(_ name: String) -> Int64 {
      lines.first { $0.hasPrefix(name + " ") }.flatMap { Int64($0.dropFirst(name.count + 1)) } ?? -1
    }
    return (value("salvor_snapshots_sent_total"), value("salvor_snapshot_sent_bytes_total"))
  }

  func ids() throws -> [String] {
    try FileManager.default.contentsOfDirectory(atPath: folder).filter { $0.hasSuffix(".json") }.map {
      String($0.dropLast(5))
    }
  }

  func size(_ id: String) throws -> Int {
    try #require(FileManager.default.contents(atPath: "\(folder)/\(id).gzip")).count
  }

  func expectWhole(_ device: Device, _ what: String) throws {
    #expect(try contents(device.database) == contents(place.server.database), "\(what)")
    let left = try FileManager.default.contentsOfDirectory(atPath: device.directory.path).filter {
      $0.contains("snapshot")
    }
    #expect(left == [], "\(what)")
  }
}

/// `server.snapshots.url`: another server gives the files (decision 144).
@Suite struct SnapshotAddressTests {
  private let files: FileServer
  private let scene: SnapshotScene

  init() async throws {
    files = try FileServer()
    scene = try await SnapshotScene(url: "http://127.0.0.1:\(files.port)/files/")
    files.serve(scene.folder)
  }

  private func expectNoCredential(_ what: String) {
    for request in files.requests {
      let names = Set(request.headers.keys)
      #expect(names.isSubset(of: ["host", "user-agent", "range"]), "\(what): \(names.sorted())")
      #expect(request.target.hasPrefix("/files/"), "\(what): \(request.target)")
      #expect(request.target.contains("&signature="), "\(what): \(request.target)")
    }
  }

  @Test("Every device has the server's rows by files, whatever the other server answers; no credential goes there")
  func manners() async throws {
    for manner in FileServer.Manner.allCases {
      files.behave(manner)
      let before = try await scene.sent()
      let device = try scene.device(manner.rawValue)
      let report = try await device.sync()
      #expect(report["snapshots"] == 2, "\(manner)")
      try scene.expectWhole(device, "\(manner)")
      expectNoCredential("\(manner)")
      // Each file is asked for once there; no redirection is followed.
      #expect(files.requests.count == 2, "\(manner)")
      let after = try await scene.sent()
      let isGiven = manner == .asAsked || manner == .ignoresRange
      #expect(after.answers - before.answers == (isGiven ? 0 : 2), "\(manner)")
      if manner == .cut {
        // What had come is not sent again, but for the last pieces.
        let whole = try scene.ids().map(scene.size).reduce(0, +)
        #expect(after.bytes - before.bytes < Int64(whole / 4 * 3), "\(after.bytes - before.bytes) of \(whole)")
      }
    }
  }

  @Test(
    "What is here of a file is gone on with there: by Range, from the start where that is passed over, else from the server"
  )
  func resumed() async throws {
    for manner in [FileServer.Manner.asAsked, .ignoresRange, .otherRange] {
      files.behave(manner)
      let device = try scene.device(manner.rawValue)
      try scene.leaveHalf(to: device)
      let before = try await scene.sent().answers
      #expect(try await device.sync()["snapshots"] == 2, "\(manner)")
      try scene.expectWhole(device, "\(manner)")
      expectNoCredential("\(manner)")
      for request in files.requests {
        let id = request.target.split(separator: "?")[0].split(separator: "/").last.map(String.init) ?? ""
        #expect(request.headers["range"] == "bytes=\(try scene.size(id) / 2)-", "\(manner)")
        // That place may know the file by its name alone: a tag is its own.
        #expect(request.headers["if-range"] == nil, "\(manner)")
      }
      #expect(files.requests.count == 2, "\(manner)")
      #expect(try await scene.sent().answers - before == (manner == .otherRange ? 2 : 0), "\(manner)")
    }
  }

  @Test("Where neither has the file, the same synchronization goes on by rows")
  func byRows() async throws {
    files.behave(.garbage)
    for id in try scene.ids() {
      // The server finds it shorter than it was, and answers 404.
      try Data([1]).write(to: URL(fileURLWithPath: "\(scene.folder)/\(id).gzip"))
    }
    let device = try scene.device("rows")
    #expect(try await device.sync()["snapshots"] == 0)
    try scene.expectWhole(device, "by rows")
    expectNoCredential("by rows")
  }

  @Test(
    "nginx with the lines of the guide: the server sends each file once, a cut file goes on there, and without it from the server",
    .enabled(if: Nginx.isThere))
  func nginx() async throws {
    let directory = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-\(UUID().uuidString)")
    defer { try? FileManager.default.removeItem(at: directory) }
    let nginx = try Nginx(in: directory)
    let scene = try await SnapshotScene(url: nginx.url)
    let cache = try await nginx.start(before: scene.url)
    defer { cache.signal(SIGKILL) }
    for name in ["first", "second", "third"] {
      let device = try scene.device(name)
      if name == "third" { try scene.leaveHalf(to: device) }
      let received = try await device.sync()
      #expect(received["snapshots"] == 2, "\(name)")
      if name == "third" {
        let whole = try scene.ids().map(scene.size).reduce(0, +)
        #expect(received["bytesReceived"].integer ?? .max < Int64(whole), "\(received)")
      }
      try scene.expectWhole(device, name)
      #expect(try await scene.sent().answers == 2, "\(name)")
    }
    cache.signal(SIGTERM)
    _ = await cache.output()
    let last = try scene.device("last")
    #expect(try await last.sync()["snapshots"] == 2)
    try scene.expectWhole(last, "last")
    #expect(try await scene.sent().answers == 4)
  }
}
