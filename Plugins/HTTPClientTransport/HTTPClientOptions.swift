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
    /// The server: http or https, a host, perhaps a port and a path, to which the paths of requests are added.
    public var url: HTTPServerURL
    /// The content coding that the engine uses; carried here because it is written beside the URL.
    public var compression = "gzip"
    /// For the look-up of the name, the connection and the TLS handshake together.
    public var connectTimeoutMilliseconds: Int64 = 10_000
    /// An exchange in which no byte goes in either direction for this long ends.
    public var idleTimeoutSeconds = 60
    /// A PEM file of the authorities to trust instead of the system's.
    public var caFile: String?
    /// Tokens and rows may travel to another machine in clear text.
    public var insecure = false

    /// gzip, 10 seconds to connect, 60 seconds of idle time and the system's authorities, where nothing else is set.
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
      guard Self.hasCredential(request.headers), let clearTextRisk else { return }
      throw SalvorError(.configuration, "The server's URL \(clearTextRisk).", context: ["server": url.label])
    }

    private static func hasCredential(_ headers: [String: String]) -> Bool {
      headers.keys.contains { name in
        let name = name.lowercased()
        return ["authorization", "proxy-authorization", "cookie"].contains(name) || name.hasPrefix("salvor-")
      }
    }

    /// Where a file at another address is. Errors: `usage` where a credential would go there, or the address is none;
    /// `configuration` where its rows would travel in clear text to another machine.
    func server(of address: String, _ headers: [String: String]) throws -> HTTPServerURL {
      guard !Self.hasCredential(headers) else {
        throw SalvorError(.usage, "A request to another address than the server's carries no credential.")
      }
      let parts = address.split(separator: "?", maxSplits: 1, omittingEmptySubsequences: false)
      guard address.utf8.allSatisfy({ $0 > 0x20 && $0 < 0x7f }), !address.contains("#"),
        let server = parts.first.flatMap({ try? HTTPServerURL(String($0)) })
      else { throw SalvorError(.usage, "The address of a file is no http or https URL.") }
      guard server.isSecure || insecure || (server.isLoopback && url.isLoopback) else {
        throw SalvorError(
          .configuration,
          "The file at \(server.label) would travel in clear text: its address must begin with https://.",
          context: ["server": server.label])
      }
      return server
    }
  }

  extension HTTPClientTransport {
    /// The module `http` of the kind client transport. `salvor modules` lists its options.
    public static let factory = ModuleFactory(
      ModuleDescriptor(
        kind: .clientTransport, name: "http", summary: "HTTP/1.1 and HTTPS client",
        options: [
          ModuleOption("url", type: "string", default: nil, "the server, e.g. https://sync.example.org/salvor"),
          ModuleOption(
            "compression", type: "string", default: "\"gzip\"",
            "the one content coding to send and to ask for; not written: a better one, too, where the server has it"),
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
      do throws(SalvorError) {
        var options = HTTPClientOptions(url: try HTTPServerURL(text))
        options.insecure = insecure
        if let risk = options.clearTextRisk { reader.report("url", risk) }
        options.compression = compression
        options.connectTimeoutMilliseconds = connect * 1000
        options.idleTimeoutSeconds = Int(idle)
        options.caFile = caFile
        return { [options] in try HTTPClientTransport(options, limits: limits) }
      } catch {
        reader.report("url", error.message)
        return nil
      }
    }
  }
#endif
