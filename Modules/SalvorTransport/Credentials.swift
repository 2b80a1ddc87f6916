import SalvorModel

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
