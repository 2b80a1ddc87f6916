/// One step of a trace that has ended (W3C Trace Context; OpenTelemetry calls it a span): for an exporter. No value of a
/// user is in it.
public struct TraceSpan: Sendable, Hashable {
  /// Which side of an exchange the step is.
  public enum Kind: Int, Sendable {
    /// As OpenTelemetry's protocol numbers them.
    case `internal` = 1, server, client
  }

  /// The value of a named fact, in the two types that Salvor's own facts have.
  public enum Attribute: Sendable, Hashable {
    case text(String)
    case integer(Int64)
  }

  /// The trace that it belongs to: 32 hexadecimal digits.
  public var traceID: String
  /// Its own ID: 16 hexadecimal digits.
  public var spanID: String
  /// The step that this one is a part of; nil: it began the trace.
  public var parentID: String?
  /// What was done, from a bounded list: `POST /v1/sync`, `process upload`.
  public var name: String
  /// Which side of an exchange it is.
  public var kind: Kind
  /// Nanoseconds since 1970.
  public var began: Int64
  /// Nanoseconds since 1970; not before `began`.
  public var ended: Int64
  /// Facts by name, where there is one with the names of OpenTelemetry: `http.route`, `salvor.remote`.
  public var attributes: [String: Attribute]
  /// The code of the error that it ended with; nil: it went well.
  public var error: String?

  /// Ends at `endedMilliseconds` (since 1970) and began `duration` before that. Trace and span are those of
  /// `context`.
  public init(
    _ context: TraceContext, parentID: String?, name: String, kind: Kind, endedMilliseconds: Int64, duration: Duration,
    attributes: [String: Attribute], error: String? = nil
  ) {
    traceID = context.traceID
    spanID = context.spanID
    self.parentID = parentID
    self.name = name
    self.kind = kind
    let (seconds, attoseconds) = duration.components
    ended = endedMilliseconds * 1_000_000
    began = ended - seconds * 1_000_000_000 - attoseconds / 1_000_000_000
    self.attributes = attributes
    self.error = error
  }
}

/// Where spans go. Never waits: what there is no room for is dropped and counted.
public protocol TraceSink: Sendable {
  /// Takes a span that has ended. Called on any thread; returns at once, and never fails.
  func take(_ span: TraceSpan)
  /// Since the start.
  var counts: (exported: Int64, dropped: Int64) { get }
}
