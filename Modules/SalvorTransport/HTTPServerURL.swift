import SalvorModel

/// Where an HTTP server is: `http` or `https`, a host, perhaps a port and a path that all requests begin with.
public struct HTTPServerURL: Sendable, Hashable {
  /// It begins with `https`.
  public let isSecure: Bool
  /// As in the URL, with the brackets of an IPv6 address.
  public let host: String
  /// 443 or 80 where the URL names none.
  public let port: UInt16
  /// Empty, or begins with `/` and does not end with it.
  public let basePath: String

  /// What messages call the server: never credentials, never a path.
  public var label: String { "\(host):\(port)" }

  /// The URL with its port, and without a `/` at its end.
  public var text: String { "\(isSecure ? "https" : "http")://\(host):\(port)\(basePath)" }

  /// Errors: `configuration`, with what to write instead.
  public init(_ text: String) throws(SalvorError) {
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
      throw refuse("must hold no user and no password")
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

  /// The host is this machine.
  public var isLoopback: Bool {
    host == "localhost" || host == "[::1]" || (host.hasPrefix("127.") && host.split(separator: ".").count == 4)
  }
}
