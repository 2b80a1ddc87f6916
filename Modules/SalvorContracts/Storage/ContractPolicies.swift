import SalvorModel
import SalvorStorage

/// The conflict policies that the storage suites run with. A store knows none by name, so these have names of their own.
enum ContractPolicies {
  static let clientWins = Table.defaultConflicts
  static let serverWins = "the-servers"
  static let keepVersions = "both"
  static let asked = "asked"

  static let all: [String: any ConflictPolicy] = [
    clientWins: UniformConflictPolicy(.client), serverWins: UniformConflictPolicy(.server),
    keepVersions: UniformConflictPolicy(.both), asked: ScriptedPolicy(),
  ]

  static func setup(_ schema: Schema) -> ServerSetup {
    var setup = ServerSetup(schema: schema)
    for table in schema.tables { setup.conflictPolicies[table.name] = all[table.conflicts] }
    return setup
  }
}

/// Does what the client's first new value says: the answers of a policy that is asked, the wrong ones too.
struct ScriptedPolicy: ConflictPolicy {
  struct Failure: Error {}

  func settle(_ conflict: Conflict) throws -> ConflictSettlement {
    let keys = conflict.table.primaryKey
    let columns = conflict.columns.filter { !keys.contains($0.name) }
    guard let first = columns.first else { return delete(conflict) }
    switch first.new.string {
    case "b", "server": return .server
    case "c", "both": return .both
    // The client's first column and the server's others.
    case "d", "merged": return .merged([NamedValue(first.name, first.new)])
    case "tell": return .merged([NamedValue("title", "told"), NamedValue("body", .text(Self.text(conflict)))])
    case "nothing": return .merged([])
    case "e", "throws": throw Failure()
    case "other column": return .merged([NamedValue("colour", "red")])
    case "key": return .merged([NamedValue(keys[0], "other")])
    case "other type": return .merged([NamedValue(first.name, 1)])
    case "no value": return .merged([NamedValue("title", .null)])
    case "twice": return .merged([NamedValue("title", "x"), NamedValue("title", "y")])
    case "taken": return .merged([NamedValue("title", "taken")])
    default: return .client
    }
  }

  private func delete(_ conflict: Conflict) -> ConflictSettlement {
    switch conflict.server("title")?.string {
    case "stays": .merged([NamedValue("body", .text(Self.text(conflict)))])
    case "both": .both
    default: .client
    }
  }

  /// Everything that a policy is told, IDs and times aside.
  static func text(_ conflict: Conflict) -> String {
    let columns = conflict.columns.map { "\($0.name) \($0.old?.description ?? "-")>\($0.new)" }
    let server = conflict.server.map { "\($0.name) \($0.value)" }
    return
      "\(conflict.operation.rawValue) \(conflict.table.name) \(conflict.key) \(columns.joined(separator: ", ")) on "
      + "\(conflict.made); \(server.joined(separator: ", ")); \(conflict.principal)"
  }
}
