/// One step of a trace that has ended (W3C Trace Context; OpenTelemetry calls it a span): for an exporter. No value of a
/// user is in it.
public struct TraceSpan: Sendable, Hashable {
  /// Which side of an exchange the step is.
  public enum Kind: Int, Sendable {
    /// As OpenTelemetry's protocol numbers them.
    case `internal` = 1, server, client
  }

  public enum Attribute: Sendable, Hashable {
    case text(String)
    case integer(Int64)
  }

  public var traceID: String
  public var spanID: String
  /// The step that this one is a part of; nil: it began the trace.
  public var parentID: String?
  public var name: String
  public var kind: Kind
  /// Nanoseconds since 1970.
  public var began: Int64
  public var ended: Int64
  public var attributes: [String: Attribute]
  /// The code of the error that it ended with; nil: it went well.
  public var error: String?

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
  func take(_ span: TraceSpan)
  /// Since the start.
  var counts: (exported: Int64, dropped: Int64) { get }
}
