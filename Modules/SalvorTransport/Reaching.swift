import SalvorModel

extension ClientTransport {
  /// The status and the body's beginning of one answer to `GET path`. Sends no credential. Throws `timeout` after so long, whatever the
  /// transport's own patience is.
  public func ask(_ path: String, withinMilliseconds milliseconds: Int64, _ clock: any Clock) async throws -> (
    status: Int, body: [UInt8]
  ) {
    try await withThrowingTaskGroup(of: (status: Int, body: [UInt8])?.self) { group in
      group.addTask {
        let response = try await send(TransportRequest(method: "GET", path: path, contentLength: 0))
        return (response.status, try await response.body.collect(upTo: 1 << 20))
      }
      group.addTask {
        try? await clock.sleep(milliseconds: milliseconds)
        return nil
      }
      defer { group.cancelAll() }
      guard let first = try await group.next() ?? nil else {
        throw SalvorError(.timeout, "The server has not answered within \(milliseconds) ms.")
      }
      return first
    }
  }
}
