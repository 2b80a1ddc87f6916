import SalvorModel
import SalvorModuleKit
import SalvorWire

extension Command {
  static let initialize = Command(
    "init", "writes a commented configuration, a schema and sample data to start from",
    discussion: "Writes salvor.json5, schema.json5 and sample.sql into DIR (default: here). Never overwrites a file.",
    arguments: ["[DIR]"]
  ) { invocation in
    let directory = invocation.arguments.first ?? "."
    try makeDirectory(directory)
    let files = [
      ("salvor.json5", Templates.configuration), ("schema.json5", Templates.schema), ("sample.sql", Templates.sample),
    ]
    for (name, _) in files where fileExists("\(directory)/\(name)") {
      throw SalvorError(
        .usage, "\(directory)/\(name) exists already; nothing was written. Choose another directory, or move it away.")
    }
    for (name, text) in files { try writeFile("\(directory)/\(name)", text) }
    let terminal = invocation.terminal
    terminal.json(["directory": .string(directory), "files": .array(files.map { .string($0.0) })])
    for (name, _) in files { terminal.say("wrote \(directory)/\(name)") }
    terminal.say("")
    terminal.say("Next:  \(directory == "." ? "" : "cd \(directory) && ")salvor check && salvor serve")
    terminal.say("Then, in a second terminal there:  salvor sync")
    return 0
  }

  static let check = Command(
    "check", "validates the configuration; touches nothing",
    discussion: """
      Every problem is reported at once: the file, the line, the key, what is allowed, the nearest right name. The
      conditions of the schema are tried in an empty database; directories, the token file and the files of TLS are looked
      for. The databases are not opened, and nothing is listened on. A file with a section for the server and one for the
      device is checked for both.
      """
  ) { invocation in
    let result = invocation.readConfiguration()
    let terminal = invocation.terminal
    let asked = result.configuration.map { $0.servingProblems() + $0.listProblems() + $0.protectionWarnings() } ?? []
    let diagnostics = (result.diagnostics + asked).inOrderOfPlace()
    let errors = diagnostics.errors
    terminal.json([
      "valid": .bool(errors.isEmpty),
      "diagnostics": .array(diagnostics.map(\.json)),
    ])
    let text = render(diagnostics)
    if errors.isEmpty {
      if !text.isEmpty { terminal.print(text) }
      terminal.print("\(invocation.configurationPath) is valid")
      return 0
    }
    terminal.error(text)
    return 2
  }

  static let modules = Command(
    "modules", "every module: kind, name, one line, options",
    discussion: """
      A module is chosen by its name in the configuration file. The libraries that the file names under plugins are loaded,
      and their modules are in the list with the library as their origin.
      """
  ) { invocation in
    let terminal = invocation.terminal
    let descriptors = try invocation.registryWithPlugins().descriptors
    terminal.json(["modules": .array(descriptors.map(\.json))])
    terminal.table(
      ["kind", "name", "origin", "what it is"], descriptors.map { [$0.kind.rawValue, $0.name, $0.origin, $0.summary] })
    for descriptor in descriptors where !descriptor.options.isEmpty || !descriptor.guarantees.isEmpty {
      terminal.print("")
      terminal.print(terminal.bold("\(descriptor.kind.rawValue) \(descriptor.name)"))
      for option in descriptor.options {
        terminal.print(
          "  \(option.name) (\(option.type), \(option.defaultText.map { "default \($0)" } ?? "must be given")): \(option.summary)"
        )
      }
      for guarantee in descriptor.guarantees { terminal.print("  guarantees: \(guarantee)") }
    }
    return 0
  }

  static let register = Command(
    "register", "registers this remote database with the server (the first sync does it otherwise)"
  ) { invocation in
    let client = try await invocation.makeClient()
    let report = await client.attemptSync(groups: [])
    let status = try await client.status()
    await client.close()
    if let error = report.error { throw error }
    invocation.terminal.json(["remoteID": .string(status.state.remoteID.text)])
    invocation.terminal.say("registered as \(status.state.remoteID)")
    return report.exitCode
  }
}

extension Diagnostic {
  var json: JSONValue {
    [
      "severity": .string(severity.rawValue), "file": .string(file), "line": .integer(Int64(line)),
      "path": .string(path), "message": .string(message),
    ]
  }
}

extension ModuleDescriptor {
  var json: JSONValue {
    [
      "kind": .string(kind.rawValue), "name": .string(name), "origin": .string(origin), "summary": .string(summary),
      "options": .array(
        options.map { option in
          [
            "name": .string(option.name), "type": .string(option.type),
            "default": option.defaultText.map(JSONValue.string) ?? .null, "summary": .string(option.summary),
          ]
        }),
      "guarantees": .array(guarantees.map(JSONValue.string)),
      "libraries": .object(
        libraries.sorted { $0.key < $1.key }.map { JSONValue.Member($0.key, .string($0.value)) }),
    ]
  }
}
