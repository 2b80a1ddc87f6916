/// Which part of the house may import which (docs/architecture/house.md).
struct HouseRules: Sendable {
  /// Modules/, in order: a module imports only what stands above it.
  static let modules = [
    "SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorStorage", "SalvorTransport", "SalvorRecovery",
    "SalvorClient", "SalvorServer", "SalvorHost", "SalvorContracts", "SalvorSimulation",
  ]

  /// What a plug-in may import of Modules/: protocols, never an engine.
  static let protocols = [
    "SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorStorage", "SalvorTransport", "SalvorRecovery",
  ]

  /// Client and server meet on the wire only.
  static let engines = ["SalvorClient", "SalvorServer"]

  /// The plug-ins that others may import: what the SQLite stores share, and SHA-256.
  static let sharedPlugins = ["SQLiteSupport", "ContentHash"]

  /// The one list of what is built in.
  static let pluginList = "StandardModules"

  enum Kind: String, Sendable {
    case module = "Modules"
    case plugin = "Plugins"
    case library = "system library"
    case tool = "Tools"
    case tests = "Tests"
  }

  struct Edge: Sendable, Hashable {
    var from: String
    var to: String
    /// Where it was seen.
    var place: String
  }

  /// Every target of the package and where it lives.
  var kinds: [String: Kind]

  /// What is wrong with `edge`; nil: nothing. Edges to what is not of this package (Foundation, Glibc) are judged apart.
  func violation(_ edge: Edge) -> String? {
    guard let from = kinds[edge.from], let to = kinds[edge.to], edge.from != edge.to else { return nil }
    guard let reason = reason(edge, from, to) else { return nil }
    return "\(edge.place): \(edge.from) imports \(edge.to): \(reason)"
  }

  private func reason(_ edge: Edge, _ from: Kind, _ to: Kind) -> String? {
    switch (from, to) {
    case (_, .tests): return "nothing imports a tool or a test"
    case (_, .tool): return from == .tests ? nil : "nothing imports a tool or a test"
    case (.module, .module):
      guard let lower = HouseRules.modules.firstIndex(of: edge.from) else { return "the module is not in the order" }
      guard let upper = HouseRules.modules.firstIndex(of: edge.to) else { return "the module is not in the order" }
      if HouseRules.engines.contains(edge.from) && HouseRules.engines.contains(edge.to) {
        return "client and server never import each other"
      }
      return upper < lower ? nil : "a module imports only what stands above it"
    case (.module, .plugin): return "a module never imports a plug-in"
    case (.module, .library): return "a module imports no C library"
    case (.plugin, .module):
      return HouseRules.protocols.contains(edge.to) ? nil : "a plug-in imports protocols, never an engine"
    case (.plugin, .plugin):
      if edge.from == HouseRules.pluginList { return nil }
      return HouseRules.sharedPlugins.contains(edge.to) ? nil : "a plug-in never imports another one"
    case (.library, _): return "a system library imports nothing"
    default: return nil
    }
  }

  /// The table of docs/architecture/house.md.
  static func table() -> String {
    var lines = ["| who | may import |", "| --- | --- |"]
    for (place, name) in modules.enumerated() {
      let above = modules[..<place].filter { !(engines.contains(name) && engines.contains($0)) }
      lines.append("| \(name) | \(above.isEmpty ? "nothing" : above.joined(separator: ", ")) |")
    }
    lines.append(
      "| a plug-in | \(protocols.joined(separator: ", ")), \(sharedPlugins.joined(separator: ", ")), its own C library |"
    )
    lines.append("| \(pluginList) | the above, and every plug-in |")
    lines.append("| a tool | every module, plug-in and C library |")
    lines.append("| a test | everything |")
    return lines.joined(separator: "\n")
  }
}
