import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// Believes who a device says it is, and knows which regions each principal may see.
struct SimulatedAuthentication: Authentication {
  /// Whether credentials list regions: the schema has the parameter.
  let hasRegions: Bool

  /// The values of the parameter `region` that each principal's credential lists.
  static let regions = ["anna": ["north", "south"], "bert": ["south", "west"]]

  /// An authentication module `simulated`.
  static var factory: ModuleFactory {
    ModuleFactory(
      ModuleDescriptor(kind: .authentication, name: "simulated", summary: "the people of a simulation"),
      product: (any Authentication).self
    ) { reader, _ in
      let regions = reader.string("regions", default: "none")
      return { SimulatedAuthentication(hasRegions: regions == "listed") }
    }
  }

  func authenticate(_ request: TransportRequest) async throws -> Principal {
    guard let name = request.headers["salvor-principal"], let known = principal(named: name) else {
      throw SalvorError(.unauthenticated, "Nobody of this name is in this simulation.")
    }
    return known
  }

  func headers(credentials: [String: String]) throws -> [String: String] {
    ["salvor-principal": credentials["principal"] ?? ""]
  }

  func principals(withoutValuesOf parameter: String) -> UnlimitedPrincipals { .named([]) }

  func principal(named name: String) -> Principal? {
    Self.regions[name].map { regions in
      Principal(name: name, parameters: hasRegions ? ["region": regions.map { Value.text(Array($0.utf8)) }] : [:])
    }
  }
}
