import SalvorModel

/// Who sends, as an application says it: a token, or whatever else the server's authentication module takes.
public struct Credentials: Sendable, Hashable {
  /// What goes with each request.
  public var headers: [String: String]

  /// A bearer token.
  public init(token: String) { self.init(["token": token]) }

  /// By the names that the configuration has under `client.credentials`, e.g. `["principal": "anna"]`.
  public init(_ credentials: [String: String]) { headers = credentialHeaders(credentials) }

  /// The headers as they are sent.
  public init(headers: [String: String]) { self.headers = headers }
}

/// Asked who sends: when a synchronization begins, and again when the server does not take the credentials (401).
public typealias CredentialsProvider = @Sendable () async throws -> Credentials

/// How a client's credentials travel, whatever module checks them: `token` as `authorization: Bearer …`, any other
/// NAME of the configuration's `client.credentials` as the header `salvor-NAME`.
public func credentialHeaders(_ credentials: [String: String]) -> [String: String] {
  var headers: [String: String] = [:]
  for (name, value) in credentials {
    if name == "token" {
      headers["authorization"] = "Bearer \(value)"
    } else {
      headers["salvor-\(name.lowercased())"] = value
    }
  }
  return headers
}
