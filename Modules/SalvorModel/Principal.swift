/// Who a request comes from, and what it may do.
public struct Principal: Sendable, Hashable {
  /// The name that authentication gave it: remotes, conflicts and the log name it by this.
  public var name: String
  /// The values that each parameter may take; a parameter without an entry is not limited (semantics 7).
  public var parameters: [String: [Value]]
  /// What it may do under `/admin/v1`; nil: nothing.
  public var role: AdministrationRole?
  /// May synchronize. False: the credential is for administration alone.
  public var synchronizes: Bool

  /// May do everything under `/admin/v1`.
  public var isAdministrator: Bool { role == .administrator }

  /// Without limits on parameters and without a role where nothing else is given. `isAdministrator: true` gives the
  /// role `administrator`, whatever `role` says.
  public init(
    name: String, parameters: [String: [Value]] = [:], isAdministrator: Bool = false, role: AdministrationRole? = nil,
    synchronizes: Bool = true
  ) {
    self.name = name
    self.parameters = parameters
    self.role = isAdministrator ? .administrator : role
    self.synchronizes = synchronizes
  }
}

extension Principal {
  /// The same with the values of its lists that the schema's parameters may have. What is no value of the parameter's type is none of any row;
  /// SQL would take "1" for 1 where a row is read.
  public func listing(in schema: Schema) -> Principal {
    var principal = self
    for parameter in schema.parameters {
      principal.parameters[parameter.name] = parameters[parameter.name]?.compactMap(parameter.type.listed)
    }
    return principal
  }
}

extension String {
  /// Two principals' names are one where their bytes are, as scopes compare them in SQL. `==` also takes an é of one code point for
  /// one of two.
  public func isSameName(as other: String) -> Bool { utf8.elementsEqual(other.utf8) }
}

/// Who may do what under `/admin/v1`. Each may do what those before it may.
public enum AdministrationRole: String, Sendable, CaseIterable, Comparable {
  /// Reads everything but values of rows.
  case viewer
  /// Sees and settles conflict versions, demands resets, changes the log's level.
  case `operator`
  /// Deletes and blocks remote IDs.
  case administrator

  /// By what they may do: `viewer` is the least, `administrator` the greatest.
  public static func < (a: AdministrationRole, b: AdministrationRole) -> Bool {
    (allCases.firstIndex(of: a) ?? 0) < (allCases.firstIndex(of: b) ?? 0)
  }
}
