import Foundation
import NoAuthentication
import SalvorContracts
import SalvorModel
import SalvorModuleKit
import SalvorTransport
import Testing
import TokenAuthentication

@Suite struct AuthenticationTests {
  private static let tokens = ["salvor_one", "salvor_two"]

  private static let lines = """
    { tokens: [  // two
      { sha256: "\(TokenAuthentication.hash(of: tokens[0]))", principal: "anna", parameters: { region: ["EU", 7] } },
      { sha256: "\(TokenAuthentication.hash(of: tokens[1]).uppercased())", principal: "root", administrator: true },
    ] }
    """

  private func tokenSubject(_ file: TokenFileOfTest) throws -> AuthenticationSubject {
    AuthenticationSubject(
      try TokenAuthentication(file: file.path),
      known: [
        (["token": Self.tokens[0]], Principal(name: "anna", parameters: ["region": ["EU", 7]])),
        (["token": Self.tokens[1]], Principal(name: "root", isAdministrator: true)),
      ],
      refused: [
        ["authorization": "Bearer salvor_three"], ["authorization": "Bearer "], ["authorization": "Basic salvor_one"],
        ["authorization": "salvor_one"], ["authorization": "Bearer salvor_one salvor_one"],
        ["authorization": "Bearer \(TokenAuthentication.hash(of: "salvor_one"))"], ["salvor-principal": "anna"],
      ], servesRemotePeers: true)
  }

  @Test(arguments: AuthenticationContract.cases)
  func tokensKeep(_ rule: ContractCase<AuthenticationSubject>) async throws {
    let file = try TokenFileOfTest(Self.lines)
    try await rule.run(tokenSubject(file))
  }

  @Test(arguments: AuthenticationContract.cases)
  func noneKeeps(_ rule: ContractCase<AuthenticationSubject>) async throws {
    try await rule.run(
      AuthenticationSubject(
        NoAuthentication(),
        known: [
          (["principal": "anna"], Principal(name: "anna")),
          (["principal": "Jürgen Müller"], Principal(name: "Jürgen Müller")),
          (["principal": "admin"], Principal(name: "admin", isAdministrator: true)),
        ], refused: [["salvor-principal": ""], ["authorization": "Bearer salvor_one"], ["salvor-principal": "a\nb"]],
        servesRemotePeers: false))
  }

  @Test func sha256IsTheStandards() {
    // FIPS 180-2, appendix B.1.
    #expect(
      TokenAuthentication.hash(of: "abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
  }

  @Test func aMadeTokenGetsInByItsLine() async throws {
    let made = TokenAuthentication.make(principal: "O\"Neil\\ \u{1}", role: .administrator)
    let file = try TokenFileOfTest("{ tokens: [\n\(made.line)\n] }")
    let tokens = try TokenAuthentication(file: file.path)
    let found = try await tokens.authenticate(request(try tokens.headers(credentials: ["token": made.token])))
    #expect(found == Principal(name: "O\"Neil\\ \u{1}", isAdministrator: true))
    #expect(TokenAuthentication.make(principal: "a").token != TokenAuthentication.make(principal: "a").token)
    #expect(!made.line.contains(made.token))
  }

  @Test func aChangedFileCountsFromTheNextRequestOn() async throws {
    let log = Lines()
    let file = try TokenFileOfTest(Self.lines)
    let tokens = try TokenAuthentication(file: file.path, log: Log.lines { log.add($0) })
    let headers = try tokens.headers(credentials: ["token": "salvor_new"])
    await #expect(throws: SalvorError.self) { _ = try await tokens.authenticate(request(headers)) }

    try file.write("{ tokens: [{ sha256: \"\(TokenAuthentication.hash(of: "salvor_new"))\", principal: \"new\" }] }")
    #expect(try await tokens.authenticate(request(headers)).name == "new")
    let old = try tokens.headers(credentials: ["token": Self.tokens[0]])
    await #expect(throws: SalvorError.self) { _ = try await tokens.authenticate(request(old)) }

    // What cannot be used leaves the list of before, and is told once.
    try file.write("{ tokens: 7 }")
    #expect(try await tokens.authenticate(request(headers)).name == "new")
    #expect(try await tokens.authenticate(request(headers)).name == "new")
    try file.remove()
    #expect(try await tokens.authenticate(request(headers)).name == "new")
    #expect(log.all.count == 3)
    #expect(log.all[1].contains("tokens"))
  }

  @Test func aChangedFileOfTheSameSizeCountsFromTheNextRequestOn() async throws {
    func text(_ token: String) -> String {
      "{ tokens: [{ sha256: \"\(TokenAuthentication.hash(of: token))\", principal: \"anna\" }] }"
    }
    let file = try TokenFileOfTest(text("salvor_one"))
    let tokens = try TokenAuthentication(file: file.path)
    let (old, new) = (
      try tokens.headers(credentials: ["token": "salvor_one"]), try tokens.headers(credentials: ["token": "salvor_two"])
    )
    #expect(try await tokens.authenticate(request(old)).name == "anna")
    try file.write(text("salvor_two"))
    #expect(try await tokens.authenticate(request(new)).name == "anna")
    await #expect(throws: SalvorError.self) { _ = try await tokens.authenticate(request(old)) }
  }

  @Test func aTokenWithASuffixOrAPrefixIsRefused() async throws {
    let file = try TokenFileOfTest(Self.lines)
    let tokens = try TokenAuthentication(file: file.path)
    for token in ["salvor_one2", "salvor_one=", "salvor_one.", "salvor_onesalvor_one", "salvor_on", "xsalvor_one"] {
      let headers = try tokens.headers(credentials: ["token": token])
      await #expect(throws: SalvorError.self, "\(token)") { _ = try await tokens.authenticate(request(headers)) }
    }
  }

  @Test(arguments: [0, 31, 32, 63]) func hashesAreComparedWhole(place: Int) async throws {
    var hash = Array(TokenAuthentication.hash(of: "salvor_one"))
    hash[place] = hash[place] == "0" ? "1" : "0"
    let file = try TokenFileOfTest("{ tokens: [{ sha256: \"\(String(hash))\", principal: \"anna\" }] }")
    let tokens = try TokenAuthentication(file: file.path)
    let headers = try tokens.headers(credentials: ["token": "salvor_one"])
    await #expect(throws: SalvorError.self) { _ = try await tokens.authenticate(request(headers)) }
  }

  @Test func everythingWrongInTheFileIsNamedAtOnceWithoutAValue() throws {
    let file = try TokenFileOfTest(
      """
      { tokens: [
        { sha256: "secretvalue", principal: "anna" },
        { sha256: "\(TokenAuthentication.hash(of: "a"))", principal: "", rights: 1 },
        { sha256: "\(TokenAuthentication.hash(of: "b"))", principal: "b", parameters: { region: "EU" } },
        { sha256: "\(TokenAuthentication.hash(of: "b"))", principal: "c", parameters: { region: [{}] } },
        7,
      ], other: true }
      """)
    let error = #expect(throws: SalvorError.self) { _ = try TokenAuthentication(file: file.path) }
    let message = error?.message ?? ""
    #expect(error?.code == .configuration)
    for part in [
      "tokens[0].sha256", "tokens[1].principal", "tokens[1].rights", "tokens[2].parameters.region", "tokens[3].sha256",
      "tokens[3].parameters.region", "tokens[4]", "other",
    ] {
      #expect(message.contains(part), "\(part) is not named")
    }
    #expect(!message.contains("secretvalue"))
  }

  @Test func aMissingFileIsAConfigurationError() {
    let error = #expect(throws: SalvorError.self) { _ = try TokenAuthentication(file: "/nowhere/tokens.json5") }
    #expect(error?.code == .configuration)
  }

  private func request(_ headers: [String: String]) -> TransportRequest {
    TransportRequest(method: "POST", path: "/v1/sync", headers: headers)
  }
}

/// The suite is proved on authentications that are wrong in one thing each.
@Suite struct AuthenticationContractProof {
  struct Double: Authentication, CustomStringConvertible {
    var description: String
    var breaks: String
    var header = "x-name"
    var fallback: String?
    var message: @Sendable (String?) -> String = { _ in "no" }
    var code = ErrorCode.unauthenticated
    var namesOfAnybody = ["anna", "berta"]
    var refusesEmpty = true
    var servesAll = true
    var trustsProxies = false
    var unlimited = UnlimitedPrincipals.everybody

    func authenticate(_ request: TransportRequest) async throws -> Principal {
      if trustsProxies, let name = request.headers["x-forwarded-user"] { return Principal(name: name) }
      let name = request.headers[header.lowercased()] ?? request.headers[header]
      guard servesAll || request.peerIsLocal, let name = name ?? fallback, namesOfAnybody.contains(name) else {
        throw SalvorError(code, message(name))
      }
      return Principal(name: name)
    }

    func principals(withoutValuesOf parameter: String) -> UnlimitedPrincipals { unlimited }

    func headers(credentials: [String: String]) throws -> [String: String] {
      guard let name = credentials["name"] else {
        if refusesEmpty { throw SalvorError(.configuration, "no name") }
        return [:]
      }
      return [header: name]
    }
  }

  static let doubles = [
    Double(description: "sends capitals", breaks: "headers are such as HTTP carries", header: "X-Name"),
    Double(description: "has a guest", breaks: "nobody is let in without a header", fallback: "anna"),
    Double(
      description: "takes any name", breaks: "what is wrong is refused", namesOfAnybody: ["anna", "berta", "somebody"]),
    Double(
      description: "says what was wrong", breaks: "a refusal does not say which part was wrong",
      message: { $0 == nil ? "no name" : "unknown name" }),
    Double(
      description: "repeats the name", breaks: "a refusal does not say which part was wrong",
      message: { "no \($0 ?? "somebody")" }),
    Double(description: "refuses with another code", breaks: "what is wrong is refused", code: .failed),
    Double(
      description: "sends nothing for nothing", breaks: "credentials that lack something are refused by the client",
      refusesEmpty: false),
    Double(description: "believes a proxy's header", breaks: "other headers make no difference", trustsProxies: true),
    Double(
      description: "serves local callers only", breaks: "callers from other machines are served as declared",
      servesAll: false),
    Double(
      description: "says that all are limited", breaks: "who has no list of a parameter's values is told",
      unlimited: .named([])),
    Double(
      description: "forgets one", breaks: "who has no list of a parameter's values is told", unlimited: .named(["anna"])
    ),
    Double(description: "knows one of two", breaks: "a client's headers bring its principal", namesOfAnybody: ["anna"]),
    Double(
      description: "knows one of two, among many", breaks: "many at once are told apart", namesOfAnybody: ["anna"]),
  ]

  @Test(arguments: doubles)
  func aBrokenAuthenticationIsCaught(_ double: Double) async {
    let broken = await brokenRules(AuthenticationContract.cases) {
      AuthenticationSubject(
        double,
        known: [(["name": "anna"], Principal(name: "anna")), (["name": "berta"], Principal(name: "berta"))],
        refused: [["x-name": "somebody"]], servesRemotePeers: true)
    }
    #expect(broken.contains(double.breaks), "\(double) broke only \(broken)")
  }
}

private final class Lines: Sendable {
  private let lines = Mutex<[String]>([])
  func add(_ line: String) { lines.withLock { $0.append(line) } }
  var all: [String] { lines.withLock { $0 } }
}

/// A file of its own, gone with the test.
private final class TokenFileOfTest: Sendable {
  let path: String

  init(_ text: String) throws {
    path = NSTemporaryDirectory() + "/salvor-tokens-\(UUID().uuidString).json5"
    try write(text)
  }

  deinit { try? remove() }

  /// As editors do: another file takes its place.
  func write(_ text: String) throws { try text.write(toFile: path, atomically: true, encoding: .utf8) }
  func remove() throws {
    if FileManager.default.fileExists(atPath: path) { try FileManager.default.removeItem(atPath: path) }
  }
}
