import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// Believes what a caller on this machine says of itself. For development and tests: the host refuses it on an address
/// that others can reach, and a caller from elsewhere is refused here as well.
public struct NoAuthentication: Authentication {
  static let header = "salvor-principal"
  static let nameBytesMax = 256

  private let administrators: Set<String>

  /// - Parameter administrators: the names of the principals that may call `/admin/v1`.
  public init(administrators: [String] = ["admin"]) { self.administrators = Set(administrators) }

  /// True: the host refuses to listen on an address that other machines can reach.
  public var isForLocalCallersOnly: Bool { true }

  /// The module `none` of the kind authentication, with the option `administrators`.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .authentication, name: "none",
      summary: "No authentication: local callers are who they say they are (loopback only)",
      options: [
        ModuleOption(
          "administrators", type: "list of strings", default: "[\"admin\"]", "principals that may call /admin/v1")
      ],
      guarantees: ["callers from other machines are refused"]),
    product: (any Authentication).self
  ) { reader, _ in
    let administrators = reader.strings("administrators", default: ["admin"])
    return { NoAuthentication(administrators: administrators) }
  }

  /// Whoever is let in may see what everyone may.
  public func principal(named name: String) -> Principal? { Self.isName(name) ? Principal(name: name) : nil }

  /// The principal that the header `salvor-principal` names: 1 to 256 bytes without control characters and without a
  /// space at either end. Errors: `unauthenticated` where the header is missing or unusable, or the caller is on
  /// another machine.
  public func authenticate(_ request: TransportRequest) async throws -> Principal {
    guard request.peerIsLocal, let name = request.headers[Self.header], Self.isName(name) else {
      throw SalvorError(
        .unauthenticated,
        "This server serves callers on its own machine only, each with its principal. Set credentials: { principal: … }."
      )
    }
    return Principal(name: name, isAdministrator: administrators.contains(name))
  }

  /// The header `salvor-principal` with the credential `principal`. Errors: `configuration` where that credential is
  /// missing or cannot be a header's value.
  public func headers(credentials: [String: String]) throws -> [String: String] {
    guard let name = credentials["principal"], Self.isName(name) else {
      throw SalvorError(
        .configuration, "The client's credentials name no principal. Set credentials: { principal: \"…\" }.")
    }
    return [Self.header: name]
  }

  /// What a header can carry unchanged.
  private static func isName(_ name: String) -> Bool {
    let bytes = name.utf8
    return !bytes.isEmpty && bytes.count <= nameBytesMax && bytes.allSatisfy { $0 >= 0x20 && $0 != 0x7f }
      && bytes.first != 0x20 && bytes.last != 0x20
  }
}
