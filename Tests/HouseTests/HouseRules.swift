/// Which part of the house may import which (docs/architecture/house.md).
struct HouseRules: Sendable {
  /// Modules/, in order: a module imports only what stands above it.
  static let modules = [
    "SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorStorage", "SalvorTransport", "SalvorRecovery",
    "SalvorConfiguration", "SalvorClientEngine", "SalvorServerEngine", "SalvorClientHost", "SalvorServerHost",
    "SalvorHost", "SalvorContracts", "SalvorSimulation",
  ]

  /// What a plug-in may import of Modules/: protocols, never an engine.
  static let protocols = [
    "SalvorModel", "SalvorModuleKit", "SalvorWire", "SalvorStorage", "SalvorTransport", "SalvorRecovery",
  ]

  /// Client and server meet on the wire only.
  static let client = ["SalvorClientEngine", "SalvorClientHost"]
  static let server = ["SalvorServerEngine", "SalvorServerHost"]

  static func areOpposite(_ a: String, _ b: String) -> Bool {
    client.contains(a) && server.contains(b) || server.contains(a) && client.contains(b)
  }

  /// The plug-ins that others may import: what the SQLite stores share, what the server stores share, SHA-256, programs as
  /// modules, snapshots' files.
  static let sharedPlugins = ["SQLiteSupport", "ServerStoreSupport", "ContentHash", "ModuleProgram", "SnapshotFiles"]

  /// The lists of what is built in: a device's, a server's, everything.
  static let pluginLists = ["ClientModules", "ServerModules", "StandardModules"]

  enum Kind: String, Sendable {
    case module = "Modules"
    case plugin = "Plugins"
    /// One import for an application.
    case product = "Products"
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
    case (_, .product):
      return from == .tests || from == .tool || from == .product ? nil : "only applications import a product"
    case (.product, .library): return "a product imports no C library"
    case (.module, .module):
      guard let lower = HouseRules.modules.firstIndex(of: edge.from) else { return "the module is not in the order" }
      guard let upper = HouseRules.modules.firstIndex(of: edge.to) else { return "the module is not in the order" }
      if HouseRules.areOpposite(edge.from, edge.to) { return "client and server never import each other" }
      return upper < lower ? nil : "a module imports only what stands above it"
    case (.module, .plugin): return "a module never imports a plug-in"
    case (.module, .library): return "a module imports no C library"
    case (.plugin, .module):
      return HouseRules.protocols.contains(edge.to) ? nil : "a plug-in imports protocols, never an engine"
    case (.plugin, .plugin):
      if HouseRules.pluginLists.contains(edge.from) { return nil }
      return HouseRules.sharedPlugins.contains(edge.to) ? nil : "a plug-in never imports another one"
    case (.library, _): return "a system library imports nothing"
    default: return nil
    }
  }

  /// The table of docs/architecture/house.md.
  static func table() -> String {
    var lines = ["| who | may import |", "| --- | --- |"]
    for (place, name) in modules.enumerated() {
      let above = modules[..<place].filter { !areOpposite(name, $0) }
      lines.append("| \(name) | \(above.isEmpty ? "nothing" : above.joined(separator: ", ")) |")
    }
    lines.append(
      "| a plug-in | \(protocols.joined(separator: ", ")), \(sharedPlugins.joined(separator: ", ")), its own C library |"
    )
    lines.append("| \(pluginLists.joined(separator: ", ")) | the above, and every plug-in |")
    lines.append("| a product | every module and plug-in |")
    lines.append("| a tool, an example | every module, plug-in, product and C library |")
    lines.append("| a test | everything |")
    return lines.joined(separator: "\n")
  }
}
