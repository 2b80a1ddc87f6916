import SalvorModel
import Testing

@Suite("traceparent (W3C Trace Context)")
struct TraceContextTests {
  private static let trace = "4bf92f3577b34da6a3ce929d0e0e4736"
  private static let span = "00f067aa0ba902b7"

  @Test("A header is read and written as it stands, and a step within it keeps the trace")
  func roundTrip() throws {
    let text = "00-\(Self.trace)-\(Self.span)-01"
    let context = try #require(TraceContext(traceparent: text))
    #expect(context.traceID == Self.trace && context.spanID == Self.span && context.isSampled)
    #expect(context.traceparent == text)
    let child = context.child()
    #expect(child.traceID == Self.trace && child.spanID != Self.span)
    #expect(TraceContext(traceparent: child.traceparent) == child)
    #expect(TraceContext(traceparent: TraceContext().traceparent) != nil)
  }

  @Test("A later version's header counts by its first four parts")
  func laterVersion() {
    #expect(TraceContext(traceparent: "01-\(Self.trace)-\(Self.span)-00-what-comes")?.traceID == Self.trace)
  }

  @Test(
    "What is no traceparent is none",
    arguments: [
      "", "00", "00-\(trace)-\(span)", "00-\(trace)-\(span)-01-more", "ff-\(trace)-\(span)-01",
      "00-\(trace)x-\(span)-01",
      "00-00000000000000000000000000000000-\(span)-01", "00-\(trace)-0000000000000000-01",
      "00-4BF92F3577B34DA6A3CE929D0E0E4736-\(span)-01", "00-\(trace)-\(span)-0\n1", "00-\(trace)\"-\(span)-01",
    ])
  func refused(text: String) { #expect(TraceContext(traceparent: text) == nil) }
}
