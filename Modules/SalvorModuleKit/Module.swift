import SalvorModel

/// The seams at which modules are exchanged. The raw value is what `salvor modules` prints.
public enum ModuleKind: String, Sendable, CaseIterable {
  case clientStorage = "client-storage"
  case serverStorage = "server-storage"
  case clientTransport = "client-transport"
  case serverTransport = "server-transport"
  case compression
  case authentication
  case recoveryStrategy = "recovery-strategy"
  case conflictPolicy = "conflict-policy"
  case validator
}

/// One option of a module: its place in the configuration reference.
public struct ModuleOption: Sendable, Hashable {
  /// The option's key in the configuration file.
  public var name: String
  /// For the reference: `string`, `integer`, `full | normal`.
  public var type: String
  /// As written in a file, JSON5; `none`: without the option there is none; nil: the option must be given.
  public var defaultText: String?
  /// What it does, in one line.
  public var summary: String
  /// All parts given. `defaultText` nil: the option must be given.
  public init(_ name: String, type: String, default defaultText: String?, _ summary: String) {
    self.name = name
    self.type = type
    self.defaultText = defaultText
    self.summary = summary
  }
}

/// What a module says of itself, before it is made.
public struct ModuleDescriptor: Sendable, Hashable {
  /// The seam that it fits.
  public var kind: ModuleKind
  /// As named in the configuration file: lower-case words with hyphens.
  public var name: String
  /// What it is, in one line.
  public var summary: String
  /// Every option that it reads, each once; the contract suite checks that they are those.
  public var options: [ModuleOption]
  /// What it promises, one phrase each; the contract suite of its kind checks them.
  public var guarantees: [String]
  /// Of an authentication module: the keys under `client.credentials` that it makes headers from.
  public var credentialKeys: [String]
  /// The libraries outside of Swift that it runs on, with their versions, as `salvor --version` shows them: SQLite, 3.40.1.
  public var libraries: [String: String]
  /// Where it comes from: "built in", the library file that it was loaded from, or the Swift module that a host of one's own
  /// has linked.
  public var origin: String

  /// - Parameter origin: left to its default: the Swift module that says this.
  public init(
    kind: ModuleKind, name: String, summary: String, options: [ModuleOption] = [], guarantees: [String] = [],
    credentialKeys: [String] = [], libraries: [String: String] = [:], origin: String = #fileID
  ) {
    self.origin = String(origin.prefix { $0 != "/" })
    self.kind = kind
    self.name = name
    self.summary = summary
    self.options = options
    self.guarantees = guarantees
    self.credentialKeys = credentialKeys
    self.libraries = libraries
  }
}
