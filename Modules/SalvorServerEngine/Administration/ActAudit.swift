import SalvorModel
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// Does an act of an operator once, and writes down who did what, from where and with which result.
  ///
  /// - Parameter message: the body of the request, which is part of what is asked for.
  func act(
    _ name: String, _ target: String, _ who: Administrator, _ request: TransportRequest, _ message: JSONValue = .null,
    _ body: () async throws -> TransportResponse
  ) async throws -> TransportResponse {
    try await idempotent.run(request, message, who) {
      var response: TransportResponse
      do { response = try await body() } catch {
        try? audit(name, target, who, asSalvorError(error).code.rawValue)
        throw error
      }
      do { try audit(name, target, who, "done") } catch {
        // Done it is: an error would say the contrary.
        let warning = "The act was done, and is not in the list of acts. \(asSalvorError(error).message)"
        configuration.log.warning(
          "an act is not in the list of acts", ["act": name, "why": asSalvorError(error).message])
        response.headers[AuditRecord.warningHeader] = String(
          warning.unicodeScalars.map { (0x20..<0x7F).contains($0.value) ? Character($0) : "?" })
      }
      return response
    }
  }

  private func audit(_ act: String, _ target: String, _ who: Administrator, _ result: String) throws {
    metrics.administrationActs.add(
      "\(MetricsText.label("act", act)),\(MetricsText.label("result", result == "done" ? "done" : "refused"))")
    configuration.log.notice(
      "act of an operator", ["act": act, "target": target, "who": who.name, "from": who.from, "result": result])
    operatorEvents.send("act", ["act": act, "target": target, "who": who.name, "result": result])
    try configuration.audit?.append(
      AuditRecord(
        time: configuration.clock.now(), who: who.name, from: who.from, act: act, target: target, result: result,
        trace: LogContext.current?.trace.traceID))
  }
}
