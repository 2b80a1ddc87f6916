import SalvorModel

/// A value of a configuration file, with where it stands. Made by the JSON5 reader; numbers keep their text, so that
/// 64-bit integers are exact.
public struct ConfigurationValue: Sendable, Hashable {
  /// What JSON5 has, with whole numbers apart from others.
  public enum Content: Sendable, Hashable {
    case null
    case bool(Bool)
    /// Without fraction and exponent, and within 64 bits.
    case integer(Int64)
    /// Any other number; `Infinity` and `NaN` are among them.
    case number(Double)
    case string(String)
    case array([ConfigurationValue])
    /// In the order of the file; duplicates are kept, so that they can be reported.
    case object([Member])
  }

  /// One `key: value` of an object.
  public struct Member: Sendable, Hashable {
    /// Without quotes, and with escapes resolved.
    public var key: String
    /// 1-based. The value may begin in a later line.
    public var keyLine: Int
    /// What stands after the colon.
    public var value: ConfigurationValue
    /// All parts given.
    public init(key: String, keyLine: Int, value: ConfigurationValue) {
      self.key = key
      self.keyLine = keyLine
      self.value = value
    }
  }

  /// The value itself; everything beside it says where it comes from.
  public var content: Content
  /// 1-based; 0 for a value that no file holds.
  public var line: Int
  /// A `${NAME}` of this string was replaced from the environment: it may be a secret, and no message shows it.
  public var isFromEnvironment: Bool

  /// A value that no file holds, where no line is given.
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
  /// An error makes a configuration unusable; a warning does not.
  public enum Severity: String, Sendable { case error, warning }
  /// Whether it makes the configuration unusable.
  public var severity: Severity
  /// As it was named to the reader; for messages, not to open it.
  public var file: String
  /// 1-based; 0: the file as a whole.
  public var line: Int
  /// 1-based, in characters; 0: the line as a whole.
  public var column: Int
  /// Where, as a key path: `client.recovery.strategy`.
  public var path: String
  /// What was found and what is allowed, with the nearest right spelling where there is one.
  public var message: String

  /// An error about a whole line where nothing else is given.
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
