import SQLiteSupport
import SalvorConfiguration
import SalvorModel
import SalvorServerHost
import SalvorWire

/// `role server DATABASE SCHEMA [snapshots [URL]]`: serves the database over HTTP on a free port of 127.0.0.1 until its input ends.
/// Commands: `sweep`, `trim`, `usage`.
func runServerRole(_ arguments: [String]) async throws {
  guard (2...4).contains(arguments.count), let schema = namedSchema(arguments[1]) else {
    throw SalvorError(.usage, "role server DATABASE SCHEMA [snapshots [URL]]")
  }
  // As `salvor serve` does.
  settleSQLite()
  Host.settleMemory()
  let server = try await BenchServer.start(
    database: arguments[0], schema: schema, snapshots: arguments.dropFirst(2).first == "snapshots",
    files: arguments.dropFirst(3).first)
  reply([("url", .string(server.url))] + usage())
  for await command in roleCommands() {
    do {
      switch command["do"]?.string {
      case "sweep": try await server.sweep()
      case "trim": await server.trim()
      default: break
      }
      reply(usage())
    } catch {
      reply([("error", .string("\(error)"))])
    }
  }
  await server.stop()
}

/// The schemas that roles know by name.
func namedSchema(_ name: String) -> Schema? {
  switch name {
  case "record": RecordData.schema
  case "record-telling": RecordData.tellingSchema
  case "record-member": RecordData.memberSchema
  case "record-status-member": RecordData.statusMemberSchema
  case "record-chosen": RecordData.chosenSchema
  case "record-key-set": RecordData.keySetSchema
  case "dinesafe": DinesafeData.schema
  case "image": ImageData.schema
  case "groups-\(IdleGroups.few)": IdleGroups.schema(IdleGroups.few)
  case "groups-\(IdleGroups.many)": IdleGroups.schema(IdleGroups.many)
  default: nil
  }
}
