import SalvorModel
import SalvorServerEngine
import SalvorServerHost
import SalvorStorage

extension Invocation {
  /// Does an act of the command line on the server's database, and writes down who did it. The act comes first: what could
  /// not be written down is a warning.
  func audited<Result>(
    _ act: String, _ target: String, on store: any ServerStore, _ body: () async throws -> Result
  ) async throws -> Result {
    let file = AuditFile(of: store)
    func write(_ result: String) {
      do {
        try file?.append(
          AuditRecord(
            time: SystemClock().now(), who: "user:\(userName)", from: "local", act: act, target: target, result: result)
        )
      } catch {
        terminal.error("warning: \((error as? SalvorError)?.message ?? "\(error)")")
      }
    }
    do {
      let result = try await body()
      write("done")
      return result
    } catch {
      write((error as? SalvorError)?.code.rawValue ?? "failed")
      throw error
    }
  }
}
