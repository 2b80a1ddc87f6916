import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// What the host knows of the server, for `/admin/v1`: it made it.
public struct HostFacts: Sendable {
  /// The configuration as decoded, with `***` in the place of secrets.
  public var configuration: JSONValue
  /// The modules of the host, as `GET /admin/v1/modules` answers.
  public var modules: JSONValue
  /// The log's level; nil where the host has no log that can be set.
  public var level: (@Sendable () -> LogLevel)?
  /// Changes the log's level from the next line on; nil where the host has no log that can be set.
  public var setLevel: (@Sendable (LogLevel) -> Void)?
  /// Without a log that can be set where no level is given.
  public init(
    configuration: JSONValue, modules: JSONValue, level: (@Sendable () -> LogLevel)? = nil,
    setLevel: (@Sendable (LogLevel) -> Void)? = nil
  ) {
    self.configuration = configuration
    self.modules = modules
    self.level = level
    self.setLevel = setLevel
  }
}
