import SalvorModel

/// A value of a configuration file, with where it stands. Made by the JSON5 reader; numbers keep their text, so that
/// 64-bit integers are exact.
public struct ConfigurationValue: Sendable, Hashable {
  public enum Content: Sendable, Hashable {
    case null
    case bool(Bool)
    case integer(Int64)
    case number(Double)
    case string(String)
    case array([ConfigurationValue])
    /// In the order of the file; duplicates are kept, so that they can be reported.
    case object([Member])
  }

  public struct Member: Sendable, Hashable {
    public var key: String
    public var keyLine: Int
    public var value: ConfigurationValue
    public init(key: String, keyLine: Int, value: ConfigurationValue) {
      self.key = key
      self.keyLine = keyLine
      self.value = value
    }
  }

  public var content: Content
  /// 1-based; 0 for a value that no file holds.
  public var line: Int
  /// A `${NAME}` of this string was replaced from the environment: it may be a secret, and no message shows it.
  public var isFromEnvironment: Bool

  public init(_ content: Content, line: Int = 0, isFromEnvironment: Bool = false) {
    self.content = content
    self.line = line
    self.isFromEnvironment = isFromEnvironment
  }

  /// The string in quotes, for a message; a string from the environment is not shown. Nil: not a string.
  public var shown: String? {
    guard case .string(let text) = content else { return nil }
    return isFromEnvironment ? "what the environment gives" : "\"\(text)\""
  }
}

/// One thing wrong in a configuration. All of them are reported at once.
public struct Diagnostic: Error, Sendable, Hashable {
  public enum Severity: String, Sendable { case error, warning }
  public var severity: Severity
  public var file: String
  /// 1-based; 0: the file as a whole.
  public var line: Int
  /// 1-based, in characters; 0: the line as a whole.
  public var column: Int
  /// Where, as a key path: `client.recovery.strategy`.
  public var path: String
  /// What was found and what is allowed, with the nearest right spelling where there is one.
  public var message: String

  public init(
    severity: Severity = .error, file: String, line: Int, column: Int = 0, path: String, message: String
  ) {
    self.severity = severity
    self.file = file
    self.line = line
    self.column = column
    self.path = path
    self.message = message
  }
}
