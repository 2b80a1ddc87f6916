/// Who a request comes from, and what it may do.
public struct Principal: Sendable, Hashable {
  public var name: String
  /// The values that each parameter may take; a parameter without an entry is not limited (semantics 7).
  public var parameters: [String: [Value]]
  /// May call `/admin/v1`.
  public var isAdministrator: Bool

  public init(name: String, parameters: [String: [Value]] = [:], isAdministrator: Bool = false) {
    self.name = name
    self.parameters = parameters
    self.isAdministrator = isAdministrator
  }
}
