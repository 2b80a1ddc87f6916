import SalvorModel
import SalvorModuleKit
import SalvorWire

/// What `--version` says: Salvor's version, the protocol's, those of the libraries that the host's modules run on, and the
/// compiler's.
struct ToolVersion {
  /// By name.
  let libraries: [(name: String, version: String)]

  init(_ registry: ModuleRegistry) {
    var found: [String: String] = [:]
    for descriptor in registry.descriptors { found.merge(descriptor.libraries) { first, _ in first } }
    libraries = found.sorted { $0.key < $1.key }.map { ($0.key, $0.value) }
  }

  var text: String {
    let rows =
      [["protocol", "version \(protocolVersion)"]] + libraries.map { [$0.name, $0.version] } + [["Swift", Self.swift]]
    return "salvor \(salvorVersion)\n" + alignedColumns(rows).dropLast()
  }

  var json: JSONValue {
    [
      "salvor": .string(salvorVersion), "protocol": .integer(protocolVersion),
      "libraries": .object(libraries.map { JSONValue.Member($0.name, .string($0.version)) }),
      "swift": .string(Self.swift),
    ]
  }

  /// Of the compiler that built this; the language has no name for it at run time.
  static var swift: String {
    #if compiler(>=6.5)
      "6.5 or later"
    #elseif compiler(>=6.4)
      "6.4"
    #elseif compiler(>=6.3)
      "6.3"
    #elseif compiler(>=6.2)
      "6.2"
    #else
      "6.1"
    #endif
  }
}
