import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// Bearer tokens (RFC 6750), kept as hashes in a file that is read again when it changes.
///
/// A token is random and long, so its plain SHA-256 cannot be turned back; passwords do not belong here.
public struct TokenAuthentication: Authentication {
  private let file: TokenFile

  /// Reads the file. Errors: `configuration` with everything that is wrong in it.
  public init(file path: String, log: Log = .none) throws {
    file = try TokenFile(path, log: log)
  }

  /// The module `tokens` of the kind authentication, with the option `file`.
  public static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .authentication, name: "tokens", summary: "Bearer tokens, kept as hashes in a file",
      options: [
        ModuleOption("file", type: "string", default: nil, "a JSON5 file of hashes, principals and parameters")
      ],
      guarantees: [
        "the file holds no token", "a change of the file counts from the next request on",
        "comparing takes the same time whatever token comes",
      ]),
    product: (any Authentication).self
  ) { reader, context in
    guard let path = reader.path("file").map(context.resolve) else { return nil }
    return { try TokenAuthentication(file: path, log: context.log) }
  }

  /// The principal of the token in the header `authorization`. Looks for changes of the token file first. Errors:
  /// `unauthenticated` where no token comes, or the file does not have its hash.
  public func authenticate(_ request: TransportRequest) async throws -> Principal {
    let entries = file.entries()
    let token = request.headers["authorization"].flatMap(Self.bearerToken)
    // The same work with and without a token.
    let hash = sha256(Array((token ?? "").utf8))
    var found: Principal?
    for entry in entries where areEqual(entry.hash, hash) { found = entry.principal }
    guard token != nil, let found else {
      throw SalvorError(.unauthenticated, "The token is not accepted. Ask whoever runs the server for one.")
    }
    return found
  }

  /// The header `authorization` with the credential `token`. Errors: `configuration` where that credential is missing,
  /// or is not 1 to 4096 characters of `token68` (RFC 9110, 11.2).
  public func headers(credentials: [String: String]) throws -> [String: String] {
    guard let token = credentials["token"], Self.isToken(token) else {
      throw SalvorError(
        .configuration, "The client's credentials hold no token. Set credentials: { token: \"${SALVOR_TOKEN}\" }.")
    }
    return ["authorization": "Bearer \(token)"]
  }

  /// The names of the principals of which an entry has no list for this parameter, each once, in the order of the file.
  public func principals(withoutValuesOf parameter: String) -> UnlimitedPrincipals {
    var seen: Set<String> = []
    let names = file.entries().filter { $0.principal.synchronizes && $0.principal.parameters[parameter] == nil }.map(
      \.principal.name)
    return .named(names.filter { seen.insert($0).inserted })
  }

  /// One for each token that has lists, in the order of the file.
  public var listedPrincipals: [Principal] { file.entries().map(\.principal).filter { !$0.parameters.isEmpty } }

  /// Nil also where its tokens have different lists: which of them a device uses is not known.
  public func principal(named name: String) -> Principal? {
    let known = file.entries().map(\.principal).filter { $0.name.isSameName(as: name) }
    guard let first = known.first, known.allSatisfy({ $0.parameters == first.parameters }) else { return nil }
    return first
  }

  private static func bearerToken(_ header: String) -> String? {
    let parts = header.split(separator: " ", maxSplits: 1)
    guard parts.count == 2, parts[0].lowercased() == "bearer", isToken(parts[1]) else { return nil }
    return String(parts[1])
  }

  /// `token68` of RFC 9110, 11.2.
  private static func isToken(_ text: some StringProtocol) -> Bool {
    (1...4096).contains(text.utf8.count)
      && text.utf8.allSatisfy { c in
        switch c {
        case UInt8(ascii: "A")...UInt8(ascii: "Z"), UInt8(ascii: "a")...UInt8(ascii: "z"),
          UInt8(ascii: "0")...UInt8(ascii: "9"):
          true
        default: "-._~+/=".utf8.contains(c)
        }
      }
  }

  // MARK: Making tokens

  /// A new token, 256 random bits, and the line of the token file that lets it in. The token itself is kept nowhere.
  public static func make(
    principal: String, role: AdministrationRole? = nil, synchronizes: Bool = true,
    random: any RandomSource = SystemRandom()
  ) -> (token: String, line: String) {
    let token = "salvor_" + hexadecimal(random.bytes(32))
    var line = "{ sha256: \"\(hash(of: token))\", principal: \(quoted(principal))"
    if let role { line += ", role: \"\(role.rawValue)\"" }
    if !synchronizes { line += ", sync: false" }
    return (token, line + " },")
  }

  /// What a token file holds of `token`: 64 hexadecimal digits.
  public static func hash(of token: String) -> String { hexadecimal(sha256(Array(token.utf8))) }

  private static func quoted(_ text: String) -> String {
    var out = "\""
    for scalar in text.unicodeScalars {
      switch scalar {
      case "\"", "\\": out += "\\\(scalar)"
      case _ where scalar.value < 0x20 || scalar.value == 0x7f:
        out += "\\u00" + hexadecimal([UInt8(scalar.value)])
      default: out.unicodeScalars.append(scalar)
      }
    }
    return out + "\""
  }
}
