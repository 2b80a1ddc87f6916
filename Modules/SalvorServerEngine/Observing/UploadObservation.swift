import SalvorModel
import SalvorStorage
import SalvorTransport

extension ServerEngine {
  /// An upload that was processed: counted by outcome, and a line of the log.
  func observe(_ results: UploadResults, of remote: RemoteID, tookSince began: ContinuousClock.Instant) {
    let duration = ContinuousClock.now - began
    let seconds = Double(duration.components.seconds) + Double(duration.components.attoseconds) / 1e18
    metrics.processing.observe(seconds)
    if let traces = configuration.traces, let context = LogContext.current, context.trace.isSampled {
      traces.take(
        TraceSpan(
          context.trace.child(), parentID: context.trace.spanID, name: "process upload", kind: .internal,
          endedMilliseconds: configuration.clock.now(), duration: duration,
          attributes: [
            "salvor.remote": .text(remote.text), "salvor.accepted": .integer(results.acceptedRequests),
            "salvor.refused": .integer(Int64(results.refused.count)),
          ]))
    }
    activity.note(results, of: remote)
    activity.noteSuccess(of: remote)
    var reasons: [String: Int64] = [:]
    for refusal in results.refused { reasons[refusal.reason.rawValue, default: 0] += 1 }
    for (reason, count) in reasons { metrics.refusedByReason.add(MetricsText.label("reason", reason), count) }
    let refused = reasons.sorted { $0.key < $1.key }.map { "\($0.key):\($0.value)" }.joined(separator: ",")
    if !refused.isEmpty { operatorEvents.send("upload-refused", ["remote": remote.text, "reasons": refused]) }
    let isSlow = seconds * 1000 > Double(configuration.slowMilliseconds)
    configuration.log.write(
      isSlow ? .warning : .info, isSlow ? "slow upload" : "upload",
      [
        "accepted": "\(results.acceptedRequests)", "refused": refused.isEmpty ? "0" : refused,
        "ms": "\((seconds * 10_000).rounded() / 10)",
      ])
  }
}
