#if HTTPServer
  import SalvorTransport

  /// What a head must not say (RFC 9112), and the library lets pass.
  enum RequestHead {
    /// What is wrong with a head; nil: nothing.
    static func fault(_ headers: [String: String], version: String) -> String? {
      for name in headers.keys where name.isEmpty || !name.utf8.allSatisfy(isToken) {
        return "A header's name has a character that HTTP does not allow there. Correct the request."
      }
      for value in headers.values where value.utf8.contains(where: { $0 < 0x20 && $0 != 0x09 || $0 == 0x7f }) {
        return "A header's value has a control character. Correct the request."
      }
      if let coding = headers["transfer-encoding"] {
        guard coding.lowercased() == "chunked" else {
          return "The transfer coding of this request is not known here. Send it chunked, or with its length."
        }
        guard headers["content-length"] == nil else {
          return "The request has a Content-Length and a Transfer-Encoding. Send one of them."
        }
        guard version != "HTTP/1.0" else { return "HTTP/1.0 has no Transfer-Encoding. Send the body's length." }
      }
      if let length = headers["content-length"], length.isEmpty || !length.utf8.allSatisfy(isDigit) {
        return "The request has several lengths, or one that is no number. Send one Content-Length."
      }
      switch headers["host"] {
      case nil where version == "HTTP/1.1": return "The request has no Host. Send one."
      case let host? where host.contains(","): return "The request has several Hosts. Send one."
      default: return nil
      }
    }

    private static func isDigit(_ byte: UInt8) -> Bool { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains(byte) }

    private static func isToken(_ byte: UInt8) -> Bool {
      switch byte {
      case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
        UInt8(ascii: "0")...UInt8(ascii: "9"):
        true
      default: "!#$%&'*+-.^_`|~".utf8.contains(byte)
      }
    }
  }

  /// Proxies whose word counts for whom they ask (`forwardedFor`), and who may ask at all.
  struct ForwardedFor: Sendable {
    private let proxies: Set<PeerAddress>
    /// Only proxies, and this machine, may ask: the others would do so in clear text.
    private let isClosed: Bool

    init(_ options: HTTPServerOptions) {
      proxies = Set(options.forwardedFor.compactMap { PeerAddress($0) })
      isClosed =
        options.tls == nil && !options.insecure && !isLoopbackHost(options.address) && !options.forwardedFor.isEmpty
    }

    func isProxy(_ address: PeerAddress?) -> Bool { address.map(proxies.contains) ?? false }

    /// - Returns: `client`, where a proxy says for whom it asks; `isLocal`: the caller is on this machine.
    func caller(
      _ headers: [String: String], _ connection: ClientConnection?
    ) -> (client: PeerAddress?, isLocal: Bool, mayAsk: Bool) {
      let isOwn = connection?.address?.isLoopback ?? false
      // Whoever forwards says so: what comes through a proxy on this machine is not this machine's.
      let isForwarded = headers["x-forwarded-for"] != nil || headers["forwarded"] != nil
      guard connection?.isOfProxy == true else { return (nil, isOwn && !isForwarded, isOwn || !isClosed) }
      // Each proxy adds its caller at the end. What stands before an address that is no proxy of ours is anybody's word.
      let named = (headers["x-forwarded-for"] ?? "").split(separator: ",").map { PeerAddress($0) }
      // Where all are proxies of ours, one of them asks for itself.
      let others = named.filter { !isProxy($0) }
      guard let client = (others.isEmpty ? named.first : others.last) ?? nil else {
        return (nil, isOwn && !isForwarded, true)
      }
      return (client, client.isLoopback, true)
    }
  }
#endif
