import Foundation
import SQLiteSupport
import SalvorModel
import Testing

/// Toronto's inspections (Examples/dinesafe, the cut) on a server that is backed up and restored, and devices that recover
/// as their configuration says. The devices reach the server through a proxy, so its URL outlives a restart.
final class Inspections: Sendable {
  static let tables = [
    "establishment_type", "inspection_status", "severity", "action", "outcome", "infraction_type", "establishment",
    "establishment_address", "inspection", "infraction",
  ]
  /// An establishment that is edited and synchronized, and one whose edit waits.
  static let edited = 10_453_772
  static let waiting = 10_456_738

  let place: Workspace
  let proxy: FaultyProxy

  /// - Parameters:
  ///   - options: more of the section `server`.
  ///   - files: of a scene that was kept, instead of the first rows.
  init(server options: String = "", files: Files? = nil) throws {
    place = try Workspace(
      schema: try String(contentsOf: Self.folder.appendingPathComponent("schema.json5"), encoding: .utf8),
      serverOptions: options)
    proxy = try FaultyProxy()
    if let files {
      try files.write(to: place.directory)
    } else {
      try Self.rows.get().write(to: URL(fileURLWithPath: place.server.database))
    }
  }

  func start() async throws { try proxy.lead(to: try await place.server.start()) }

  func device(_ name: String = "anna", recovery: String = "") throws -> Device {
    try place.device(
      name, url: proxy.url, credentials: "{ principal: \"anna\" }", recovery: "{ \(recovery) }")
  }

  func backup(_ name: String) async throws {
    let output = try await place.server.salvor("server", "backup", name, "--json")
    guard output.code == 0 else { throw Unexpected("no backup: \(output.out) \(output.err)") }
  }

  /// The server ends, is restored, and starts again.
  func restore(_ name: String) async throws {
    _ = try await place.server.stop()
    try await restoreStopped(name)
    try await start()
  }

  func restoreStopped(_ name: String) async throws {
    let output = try await place.server.salvor("server", "restore", name, "--json")
    guard output.code == 0 else { throw Unexpected("not restored: \(output.out) \(output.err)") }
  }

  /// Everything that is synchronized is the same on all sides, row by row, and no file is damaged.
  func expectEqual(
    _ devices: Device..., tables: [String] = Inspections.tables, at location: SourceLocation = #_sourceLocation
  ) throws {
    let all = try contents(place.server.database, tables)
    #expect(try damage(place.server.database) == [], sourceLocation: location)
    for device in devices {
      let own = try contents(device.database, tables)
      for table in tables where own[table] != all[table] {
        let here = Set(own[table] ?? [])
        let there = Set(all[table] ?? [])
        Issue.record(
          "\(table) differs: only on the device \(here.subtracting(there)), only on the server \(there.subtracting(here))",
          sourceLocation: location)
      }
      #expect(try damage(device.database) == [], sourceLocation: location)
    }
  }

  // MARK: The rows

  private static let folder = Built.root.appendingPathComponent("Examples/dinesafe")

  /// A plain SQLite file with the rows, as the office has it before Salvor comes.
  private static let rows = Result {
    let file = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-e2e-\(UUID().uuidString).db")
    defer { try? FileManager.default.removeItem(at: file) }
    let connection = try SQLiteConnection(file.path)
    try connection.execute(
      String(contentsOf: folder.appendingPathComponent("data/schema.sql"), encoding: .utf8) + "; BEGIN")
    for table in tables {
      let text = try String(
        contentsOf: folder.appendingPathComponent("data/small/\(table).csv"), encoding: .utf8)
      let lines = commaSeparated(text)
      let slots = lines[0].map { _ in "?" }.joined(separator: ", ")
      for line in lines.dropFirst() {
        // Numbers become numbers by the columns' affinity; an empty field is NULL.
        try connection.run(
          "INSERT INTO \(table) (\(lines[0].joined(separator: ", "))) VALUES (\(slots))",
          line.map { $0.isEmpty ? .null : .text($0) })
      }
    }
    try connection.execute("COMMIT")
    connection.close()
    return try Data(contentsOf: file)
  }

  private static func commaSeparated(_ text: String) -> [[String]] {
    var lines: [[String]] = []
    var line: [String] = []
    var field: [UInt8] = []
    var isQuoted = false
    for byte in text.utf8 {
      switch byte {
      case UInt8(ascii: "\""): isQuoted.toggle()
      case UInt8(ascii: ",") where !isQuoted, UInt8(ascii: "\n") where !isQuoted:
        line.append(String(decoding: field, as: UTF8.self))
        field = []
        if byte == UInt8(ascii: "\n") {
          lines.append(line)
          line = []
        }
      case UInt8(ascii: "\r"): break
      default: field.append(byte)
      }
    }
    return lines
  }
}

/// The files below a folder, configurations aside, by their paths in it.
struct Files: Sendable, Hashable {
  private var content: [String: Data] = [:]

  init(of folder: URL) throws {
    for path in try FileManager.default.subpathsOfDirectory(atPath: folder.path) where !path.hasSuffix(".json5") {
      let file = folder.appendingPathComponent(path)
      var isFolder: ObjCBool = false
      _ = FileManager.default.fileExists(atPath: file.path, isDirectory: &isFolder)
      if !isFolder.boolValue { content[path] = try Data(contentsOf: file) }
    }
  }

  func write(to folder: URL) throws {
    for (path, data) in content {
      let file = folder.appendingPathComponent(path)
      try FileManager.default.createDirectory(
        at: file.deletingLastPathComponent(), withIntermediateDirectories: true)
      try data.write(to: file)
    }
  }
}

extension Device {
  func status() async throws -> JSON { try await salvor("status", "--json").json }

  /// The archive's entries that a recovery put there: operation, table, key and reason of each.
  func kept() async throws -> Set<String> {
    let entries = try await salvor("errors", "--json").json["requests"].items
    return Set(
      entries.filter { $0["state"] == "kept" }.map { entry in
        let key = entry["key"].items.map { "\($0.integer ?? -1)" }.joined(separator: ",")
        return
          "\(entry["operation"].string ?? "") \(entry["table"].string ?? "") \(key): \(entry["reason"].string ?? "")"
      })
  }

  /// The files of the database: what a copy of the device's file by other means is made of.
  func files() throws -> Files { try Files(of: directory) }

  /// Puts a copy of the device's files back, and nothing of today's stays.
  func putBack(_ files: Files) throws {
    for name in try FileManager.default.contentsOfDirectory(atPath: directory.path) where !name.hasSuffix(".json5") {
      try FileManager.default.removeItem(at: directory.appendingPathComponent(name))
    }
    try files.write(to: directory)
  }

  /// A sync after one that was killed: its session may still count as under way, for sessionIdleMilliseconds at most.
  func syncWhenFree() async throws -> Output {
    var output = try await salvor("sync", "--json")
    for _ in 0..<120 where output.code != 0 && (try? output.json["error"]["name"]) == "session-in-use" {
      try await Task.sleep(for: .milliseconds(300))
      output = try await salvor("sync", "--json")
    }
    return output
  }

  /// A hook of the configuration: `script` for /bin/sh.
  func write(hook name: String, _ script: String) throws {
    let file = directory.appendingPathComponent(name).path
    // Never open in a process that another test starts meanwhile: nobody could run the script as long as that one lives.
    let descriptor = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o755)
    guard descriptor >= 0 else { throw Unexpected("\(file) cannot be written") }
    defer { close(descriptor) }
    let bytes = Array("#!/bin/sh\n\(script)\n".utf8)
    guard fchmod(descriptor, 0o755) == 0, pwrite(descriptor, bytes, bytes.count, 0) == bytes.count else {
      throw Unexpected("\(file) is not whole")
    }
  }

  /// The lines that hooks have written.
  func lines(of name: String) -> [String] {
    let text = try? String(contentsOf: directory.appendingPathComponent(name), encoding: .utf8)
    return (text ?? "").split(separator: "\n").map(String.init)
  }
}
