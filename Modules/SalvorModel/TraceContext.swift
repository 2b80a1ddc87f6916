/// One step of work that spans processes (W3C Trace Context, level 1): the trace is one sync, on both ends; the span is
/// one request or one end's part of it. Takes part in no decision.
public struct TraceContext: Sendable, Hashable {
  /// 32 hexadecimal digits.
  public var traceID: String
  /// 16 hexadecimal digits.
  public var spanID: String
  /// Whether spans of this trace go to an exporter; true for a new trace.
  public var isSampled: Bool

  /// A new trace.
  public init() {
    let random = SystemRandom()
    traceID = hexadecimal(random.bytes(16))
    spanID = hexadecimal(random.bytes(8))
    isSampled = true
  }

  /// Of the header `traceparent`. Nil where it is none; a trace of its own begins then.
  public init?(traceparent: String) {
    let parts = traceparent.split(separator: "-", omittingEmptySubsequences: false)
    guard parts.count >= 4, traceparent.utf8.count <= 200, parts[0].utf8.count == 2, Self.isHex(parts[0]),
      parts[0] != "ff", parts[0] != "00" || parts.count == 4, parts[1].utf8.count == 32, Self.isHex(parts[1]),
      parts[1].contains(where: { $0 != "0" }), parts[2].utf8.count == 16, Self.isHex(parts[2]),
      parts[2].contains(where: { $0 != "0" }), parts[3].utf8.count == 2, Self.isHex(parts[3])
    else { return nil }
    traceID = String(parts[1])
    spanID = String(parts[2])
    isSampled = UInt8(parts[3], radix: 16).map { $0 & 1 == 1 } ?? false
  }

  /// A step within this one.
  public func child() -> TraceContext {
    var child = self
    child.spanID = hexadecimal(SystemRandom().bytes(8))
    return child
  }

  /// The header's value.
  public var traceparent: String { "00-\(traceID)-\(spanID)-\(isSampled ? "01" : "00")" }

  private static func isHex(_ text: Substring) -> Bool {
    text.utf8.allSatisfy { (48...57).contains($0) || (97...102).contains($0) }
  }
}
