import SalvorModel
import SalvorModuleKit
import SalvorServerEngine
import SalvorTransport
import SalvorWire

/// `/admin/v1` of a server elsewhere, over the host's HTTP transport.
struct AdministrationClient: Sendable {
  private let transport: any ClientTransport
  private let token: String
  /// Told what a person has to know of an act that was done.
  private let warn: @Sendable (String) -> Void
  private let answerBytesMax = 64 << 20

  /// Throws what is wrong with the URL, or that the host has no such transport.
  init(
    url: String, token: String, registry: ModuleRegistry, environment: [String: String],
    warn: @escaping @Sendable (String) -> Void
  ) throws {
    transport = try Self.transport(url: url, registry: registry, environment: environment)
    self.token = token
    self.warn = warn
  }

  /// The way to a server that is known by its URL alone.
  static func transport(
    url: String, registry: ModuleRegistry, environment: [String: String]
  ) throws -> any ClientTransport {
    let factory = try registry.factory(.clientTransport, "http")
    let options = ConfigurationValue(.object([.init(key: "url", keyLine: 0, value: ConfigurationValue(.string(url)))]))
    var reader = OptionReader(options, file: "--url", path: "")
    let make = factory.prepare(&reader, ModuleContext(environment: environment), as: (any ClientTransport).self)
    guard let make, reader.diagnostics.errors.isEmpty else {
      throw SalvorError(.usage, "--url cannot be used.\n\(render(reader.diagnostics))")
    }
    return try make()
  }

  /// One call; a problem is thrown as the error that it tells of. Null where the answer is empty.
  func call(_ method: String, _ path: String, body message: JSONValue? = nil) async throws -> JSONValue {
    var headers = ["authorization": "Bearer \(token)"]
    // Sent again by a proxy or a person, an act is done once.
    if method != "GET" { headers["idempotency-key"] = hexadecimal(SystemRandom().bytes(16)) }
    let response = try await transport.send(
      TransportRequest(
        method: method, path: path, headers: headers, body: message.map { .bytes($0.bytes) } ?? .empty,
        contentLength: message?.bytes.count ?? 0))
    let body = try await response.body.collect(upTo: answerBytesMax)
    guard response.status / 100 == 2 else {
      throw Problem.error((try? JSONValue(parsing: body)) ?? .null, status: response.status, asked: "\(method) \(path)")
    }
    if let warning = response.headers[AuditRecord.warningHeader] { warn("warning: \(visible(warning))") }
    return body.isEmpty ? .null : try JSONValue(parsing: body)
  }

  /// All of them, page by page.
  func remotes() async throws -> [JSONValue] {
    var found: [JSONValue] = []
    var after = ""
    while true {
      let page = try await call("GET", "/admin/v1/remotes?limit=1000\(after)")
      found += page["remotes"]?.array ?? []
      guard let next = page["next"]?.string else { return found }
      after = "&after=\(next)"
    }
  }

  func close() async { await transport.close() }
}

extension Command.Option {
  static let url = Command.Option(
    "url", value: "URL", "a server elsewhere, with the token in SALVOR_ADMIN_TOKEN")
}

extension Invocation {
  /// Nil: the server's database of the configuration is worked on.
  func administration() throws -> AdministrationClient? {
    guard let url = options["url"] else { return nil }
    guard let token = environment["SALVOR_ADMIN_TOKEN"], !token.isEmpty else {
      throw SalvorError(
        .usage, "--url needs a token in the variable SALVOR_ADMIN_TOKEN. salvor token NAME --role viewer makes one.")
    }
    return try AdministrationClient(url: url, token: token, registry: registry, environment: environment) {
      [terminal] in
      terminal.error($0)
    }
  }
}
