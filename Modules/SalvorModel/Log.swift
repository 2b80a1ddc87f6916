/// How much a line of the log matters, from what only a developer reads to what somebody must see now.
public enum LogLevel: String, Sendable, CaseIterable, Comparable {
  case debug, info, notice, warning, error

  /// The priority of syslog and journald.
  public var priority: Int {
    switch self {
    case .error: 3
    case .warning: 4
    case .notice: 5
    case .info: 6
    case .debug: 7
    }
  }

  /// By how much a line matters: `debug` is the least, `error` the greatest.
  public static func < (a: LogLevel, b: LogLevel) -> Bool { a.priority > b.priority }
}

/// One line of the log: a level, a message, and named facts. Neither message nor facts hold a value of a user.
public struct LogRecord: Sendable, Hashable {
  /// A named fact.
  public struct Field: Sendable, Hashable {
    /// Short and the same wherever the fact appears: `remote`, `code`, `route`.
    public var name: String
    /// As text; no value of a user.
    public var value: String
    /// A fact and its text.
    public init(_ name: String, _ value: String) {
      self.name = name
      self.value = value
    }
  }

  /// How much the line matters.
  public var level: LogLevel
  /// A sentence for the operator; no value of a user.
  public var message: String
  /// In order; a name stands once.
  public var fields: [Field]

  /// A line without facts where none are given.
  public init(level: LogLevel, message: String, fields: [Field] = []) {
    self.level = level
    self.message = message
    self.fields = fields
  }

  /// The text of the fact with this name; nil: the line has none.
  public subscript(name: String) -> String? { fields.first { $0.name == name }?.value }
}

/// Where lines for the operator go: the sink is the host's or the application's.
///
///     log.warning("The upload waits for a validator.", ["validator": name])
///     let log = Log { entry in logger.log(level: …, "\(entry.message)", metadata: …) }
public struct Log: Sendable {
  private let sink: @Sendable (LogRecord) -> Void

  /// - Parameter sink: called on any thread, for each line in its order on that thread. It returns soon.
  public init(_ sink: @escaping @Sendable (LogRecord) -> Void) { self.sink = sink }

  /// A sink that takes messages only.
  public static func lines(_ sink: @escaping @Sendable (String) -> Void) -> Log { Log { sink($0.message) } }

  /// Drops every line.
  public static let none = Log { _ in }

  /// A line of level `notice` without facts of its own.
  public func callAsFunction(_ message: String) { write(.notice, message, [:]) }

  /// What only a developer reads. Facts with the value nil are left out.
  public func debug(_ message: String, _ fields: KeyValuePairs<String, String?> = [:]) {
    write(.debug, message, fields)
  }
  /// What happens in the normal course of work. Facts with the value nil are left out.
  public func info(_ message: String, _ fields: KeyValuePairs<String, String?> = [:]) { write(.info, message, fields) }
  /// What an operator wants to find later. Facts with the value nil are left out.
  public func notice(_ message: String, _ fields: KeyValuePairs<String, String?> = [:]) {
    write(.notice, message, fields)
  }
  /// What may become a failure, or was put right by itself. Facts with the value nil are left out.
  public func warning(_ message: String, _ fields: KeyValuePairs<String, String?> = [:]) {
    write(.warning, message, fields)
  }
  /// What somebody must see now. Facts with the value nil are left out.
  public func error(_ message: String, _ fields: KeyValuePairs<String, String?> = [:]) {
    write(.error, message, fields)
  }

  /// - Parameter fields: nil values are left out. Those of `LogContext.current` follow, where they have other names.
  public func write(_ level: LogLevel, _ message: String, _ fields: KeyValuePairs<String, String?>) {
    var all = fields.compactMap { field in field.value.map { LogRecord.Field(field.key, $0) } }
    for field in LogContext.current?.fields ?? [] where !all.contains(where: { $0.name == field.name }) {
      all.append(field)
    }
    sink(LogRecord(level: level, message: message, fields: all))
  }
}

/// What belongs to every line that is written while one request or one sync is worked on: its trace, its remote ID.
public final class LogContext: Sendable {
  /// The context of the request or sync that this task works on; nil: there is none. `Log.write` adds its facts to
  /// each line.
  @TaskLocal public static var current: LogContext?

  /// The trace that every line of it names.
  public let trace: TraceContext
  private let more = Mutex<[LogRecord.Field]>([])

  /// A context with the trace as its only fact.
  public init(_ trace: TraceContext) { self.trace = trace }

  /// Sets a fact; the same name again replaces it.
  public func set(_ name: String, _ value: String) {
    more.withLock { fields in
      if let place = fields.firstIndex(where: { $0.name == name }) {
        fields[place].value = value
      } else {
        fields.append(.init(name, value))
      }
    }
  }

  /// The value that `set` gave the fact; nil: it has none. The trace is not among them.
  public subscript(name: String) -> String? { more.withLock { $0.first { $0.name == name }?.value } }

  /// The trace (`trace`, `span`), then what was set, in the order in which each name was set first.
  public var fields: [LogRecord.Field] {
    [.init("trace", trace.traceID), .init("span", trace.spanID)] + more.withLock { $0 }
  }
}
