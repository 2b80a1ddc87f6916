import SalvorModel
import SalvorStorage
import SalvorTransport

extension Log {
  /// One line for each synchronization or recovery, with its trace and the remote ID; no value of a row.
  func tell(_ report: SyncReport, took duration: Duration) {
    let milliseconds = duration.components.seconds * 1000 + duration.components.attoseconds / 1_000_000_000_000_000
    if let error = report.error {
      write(
        error.isRetryable ? .warning : .error, "sync failed",
        ["code": error.code.rawValue, "reason": error.context["reason"], "ms": "\(milliseconds)"])
      return
    }
    write(
      report.refused > 0 ? .warning : .info, "sync",
      [
        "outcome": report.outcome?.rawValue ?? "failed", "uploaded": "\(report.uploaded)",
        "upserts": "\(report.upserts)",
        "deletes": "\(report.deletes)", "refused": "\(report.refused)", "conflicts": "\(report.conflicts)",
        "out": "\(report.bytesSent)", "in": "\(report.bytesReceived)", "trips": "\(report.roundTrips)",
        "ms": "\(milliseconds)",
      ])
    if let recovery = report.recovery {
      notice("recovery", ["reason": recovery.reason.rawValue, "strategy": recovery.strategy])
    }
  }
}

extension SalvorClient {
  /// Whether the server answers at all: nil where it does, else why not. Sends no credential and changes nothing.
  ///
  /// - Parameter milliseconds: how long the answer is waited for.
  public func reach(withinMilliseconds milliseconds: Int64 = 3000) async -> SalvorError? {
    do {
      let answer = try await configuration.transport.ask(
        "/healthz", withinMilliseconds: milliseconds, configuration.clock)
      guard answer.status == 200 else {
        return SalvorError(
          .protocolVersion, "What answers at the server's address is no Salvor server (status \(answer.status)).")
      }
      return nil
    } catch {
      return asSalvorError(error)
    }
  }
}

extension SalvorClient {
  /// The request that the server refused last; nil: there is none in the archive.
  public func lastRefusal(of status: ClientStatus) async throws -> QueuedRequest? {
    // While capture is paused the log may not be read.
    guard let id = status.lastRefused, status.capturePausedSince == nil else { return nil }
    let before = RequestID(stamp: id.stamp, counter: id.counter - 1)
    return try await openStore().requests(in: [.refused], after: before, limit: 1).first { $0.id == id }
  }
}
