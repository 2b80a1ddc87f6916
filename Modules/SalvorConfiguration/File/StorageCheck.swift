import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// Asks the stores what they would say when they are opened: what they refuse of the schema, and whether their files can
/// be where the configuration says. The stores are made for it, not opened; one that cannot be made says so when it is
/// used.
struct StorageCheck {
  let file: String
  /// Of the others nothing is asked of this machine: a server need not have a device's directory.
  let sections: Set<HostSection>
  let serverStore: (any ServerStore)?
  let clientStore: (any ClientStore)?
  private let lines: (server: Int, client: Int)

  init(file: String, sections: Set<HostSection>, server: ServerSection?, client: ClientSection?) {
    self.file = file
    self.sections = sections
    serverStore = try? server?.storage.make()
    clientStore = try? client?.storage.make()
    lines = (server?.storageLine ?? 0, client?.storageLine ?? 0)
  }

  func problems(_ schema: SchemaResult) -> [Diagnostic] { schemaProblems(schema) + fileProblems() }

  // MARK: The schema

  private func schemaProblems(_ result: SchemaResult) -> [Diagnostic] {
    guard let schema = result.schema, let places = result.places else { return [] }
    var found: [SchemaProblem] = []
    for store in [serverStore as Any?, clientStore as Any?] {
      guard let examining = store as? any SchemaExamining else { continue }
      for problem in examining.problems(in: schema) where !found.contains(problem) { found.append(problem) }
    }
    return found.map { problem in
      let keys = ["tables", problem.table] + (problem.check == nil ? [] : ["check"])
      let item = problem.check.flatMap { places.item($0, of: keys) }
      return Diagnostic(
        file: places.file, line: item?.line ?? places.line(keys),
        path: places.path(keys) + (problem.check.map { "[\($0)]" } ?? ""), message: problem.message)
    }
  }

  // MARK: The files

  private func fileProblems() -> [Diagnostic] {
    let server = (serverStore as? any FileDatabase)?.databaseFile
    let client = (clientStore as? any FileDatabase)?.databaseFile
    var problems: [Diagnostic] = []
    func report(_ section: HostSection, _ message: String) {
      let line = section == .server ? lines.server : lines.client
      problems.append(Diagnostic(file: file, line: line, path: "\(section.rawValue).storage", message: message))
    }
    for (section, path) in [(HostSection.server, server), (.client, client)] where sections.contains(section) {
      if let path, let problem = ConfigurationFile.obstacle(toDatabase: path) { report(section, problem) }
    }
    if let server, let client, ConfigurationFile.isSame(server, client) {
      report(.client, "names the server's database, \(client); a device has a database of its own: name another file")
    }
    return problems
  }
}
