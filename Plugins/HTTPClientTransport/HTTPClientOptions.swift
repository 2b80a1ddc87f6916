#if HTTPClient
  import SalvorModel
  import SalvorModuleKit
  import SalvorTransport

  #if canImport(Glibc)
    import Glibc
  #elseif canImport(Darwin)
    import Darwin
  #endif

  /// The options of `transport: { module: "http" }`.
  public struct HTTPClientOptions: Sendable, Hashable {
    public var url: HTTPServerURL
    /// The content coding that the engine uses; carried here because it is written beside the URL.
    public var compression = "gzip"
    public var connectTimeoutMilliseconds: Int64 = 10_000
    public var idleTimeoutSeconds = 60
    /// A PEM file of the authorities to trust instead of the system's.
    public var caFile: String?
    /// Tokens and rows may travel to another machine in clear text.
    public var insecure = false

    public init(url: HTTPServerURL) { self.url = url }

    /// Why this URL must not be used; nil: it may.
    var clearTextRisk: String? {
      guard !url.isSecure, !url.isLoopback, !insecure else { return nil }
      return
        "begins with http:// and names another machine: tokens and rows would travel in clear text; use https://, or say "
        + "insecure: true"
    }

    /// Errors: `configuration` where a credential would travel in clear text.
    func check(_ request: TransportRequest) throws {
      let isCredential = request.headers.keys.contains { $0 == "authorization" || $0.hasPrefix("salvor-") }
      guard isCredential, let clearTextRisk else { return }
      throw SalvorError(.configuration, "The server's URL \(clearTextRisk).", context: ["server": url.label])
    }
  }

  /// Where the server is: `http` or `https`, a host, perhaps a port and a path that all requests begin with.
  public struct HTTPServerURL: Sendable, Hashable {
    public let isSecure: Bool
    /// As in the URL, with the brackets of an IPv6 address.
    public let host: String
    public let port: UInt16
    /// Empty, or begins with `/` and does not end with it.
    public let basePath: String

    /// What messages call the server: never credentials, never a path.
    public var label: String { "\(host):\(port)" }

    var text: String { "\(isSecure ? "https" : "http")://\(host):\(port)\(basePath)" }

    /// Errors: `configuration`, with what to write instead.
    public init(_ text: String) throws {
      func refuse(_ why: String) -> SalvorError { SalvorError(.configuration, why) }
      guard text.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }) else {
        throw refuse("must be a URL without spaces and other characters that URLs encode")
      }
      let isSecure = text.hasPrefix("https://")
      guard isSecure || text.hasPrefix("http://") else { throw refuse("must begin with http:// or https://") }
      guard !text.contains("?"), !text.contains("#") else { throw refuse("must have no query and no fragment") }
      let rest = text.dropFirst(isSecure ? 8 : 7)
      let authority = rest.prefix { $0 != "/" }
      guard !authority.contains("@") else {
        throw refuse("must hold no user and no password; credentials stand under client.credentials")
      }
      let bracket = authority.lastIndex(of: "]").map { authority.index(after: $0) } ?? authority.startIndex
      let colon = authority[bracket...].firstIndex(of: ":")
      let host = authority[..<(colon ?? authority.endIndex)]
      var port: UInt16 = isSecure ? 443 : 80
      if let colon {
        guard let number = UInt16(authority[authority.index(after: colon)...]), number > 0 else {
          throw refuse("has a port that is not a number from 1 to 65535")
        }
        port = number
      }
      guard !host.isEmpty, host.hasPrefix("[") == host.hasSuffix("]") else { throw refuse("names no host") }
      var path = rest.dropFirst(authority.count)
      while path.hasSuffix("/") { path = path.dropLast() }
      self.isSecure = isSecure
      self.host = String(host)
      self.port = port
      self.basePath = String(path)
    }

    var isLoopback: Bool {
      host == "localhost" || host == "[::1]" || (host.hasPrefix("127.") && host.split(separator: ".").count == 4)
    }
  }

  extension HTTPClientTransport {
    public static let factory = ModuleFactory(
      ModuleDescriptor(
        kind: .clientTransport, name: "http", summary: "HTTP/1.1 and HTTPS client",
        options: [
          ModuleOption("url", type: "string", default: nil, "the server, e.g. https://sync.example.org/salvor"),
          ModuleOption("compression", type: "string", default: "\"gzip\"", "the content coding to send and to ask for"),
          ModuleOption("connectTimeoutSeconds", type: "integer", default: "10", "for name, connection and TLS"),
          ModuleOption(
            "idleTimeoutSeconds", type: "integer", default: "60", "no byte in either direction for this long ends it"),
          ModuleOption(
            "caFile", type: "string", default: "null", "PEM file of authorities to trust; null: the system's"),
          ModuleOption(
            "insecure", type: "boolean", default: "false",
            "true: an http:// URL of another machine may be used, though everything travels in clear text"),
        ],
        guarantees: [
          "bodies stream both ways with back-pressure", "cancellation ends an exchange at once",
          "a response that breaks off is an error", "connections are used again",
          "follows no redirect, decodes nothing", "TLS 1.2 or newer",
          "no credential in clear text to another machine, nor to a proxy, unless insecure is said",
        ], libraries: httpLibrary),
      product: (any ClientTransport).self
    ) { reader, context in
      let text = reader.string("url")
      let compression = reader.string("compression", default: "gzip")
      let limits = context.limits
      let connect = reader.integer(
        "connectTimeoutSeconds", in: 1...3600, default: max(1, (limits.connectTimeoutMilliseconds + 999) / 1000))
      let idle = reader.integer(
        "idleTimeoutSeconds", in: 1...86_400, default: max(1, (limits.idleTimeoutMilliseconds + 999) / 1000))
      let caFile = reader.optionalString("caFile").map(context.resolve)
      if let caFile, access(caFile, R_OK) != 0 {
        reader.warn("caFile", "names no file that can be read; no server could be trusted")
      }
      let insecure = reader.boolean("insecure", default: false)
      guard let text else { return nil }
      do {
        var options = HTTPClientOptions(url: try HTTPServerURL(text))
        options.insecure = insecure
        if let risk = options.clearTextRisk { reader.report("url", risk) }
        options.compression = compression
        options.connectTimeoutMilliseconds = connect * 1000
        options.idleTimeoutSeconds = Int(idle)
        options.caFile = caFile
        return { [options] in try HTTPClientTransport(options, limits: limits) }
      } catch {
        reader.report("url", (error as? SalvorError)?.message ?? "is not a URL")
        return nil
      }
    }
  }
#endif
