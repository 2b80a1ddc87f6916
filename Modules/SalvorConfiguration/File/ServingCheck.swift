import SalvorModel
import SalvorModuleKit
import SalvorTransport

extension HostConfiguration {
  /// Why a server of this configuration would not start: clear text that others than this machine can reach, an
  /// authentication that cannot be made, and one that believes its callers on an address that others can reach. Empty
  /// without a server.
  ///
  /// The transport and the authentication are made for it, not started; the authentication may read its files.
  public func servingProblems() -> [Diagnostic] {
    guard let server else { return [] }
    let transport: any ServerTransport
    let authentication: any Authentication
    do {
      transport = try server.listen.make()
    } catch {
      return [problem("listen", server.listenLine, "cannot be used: \(reason(error))")]
    }
    do {
      authentication = try server.authentication.make()
    } catch {
      return [problem("authentication", server.authenticationLine, "cannot be used: \(reason(error))")]
    }
    let place = transport as? any ListeningAddress
    let reach =
      (place?.clearTextReach.map { [problem("listen", server.listenLine, $0)] } ?? []) + monitoringProblems(server)
    guard authentication.isForLocalCallersOnly, place?.isLoopback != true else { return reach }
    return reach + [
      problem(
        "authentication", server.authenticationLine,
        "is \"\(server.authentication.descriptor.name)\", which is for callers on this machine only, but others can reach "
          + "server.listen: use \"tokens\" (salvor token makes one), or listen on 127.0.0.1")
    ]
  }

  private func monitoringProblems(_ server: ServerSection) -> [Diagnostic] {
    do {
      let place = try server.monitoring?.make() as? any ListeningAddress
      return place?.clearTextReach.map { [problem("monitoring", server.monitoringLine, $0)] } ?? []
    } catch {
      return [problem("monitoring", server.monitoringLine, "cannot be used: \(reason(error))")]
    }
  }

  private func problem(_ key: String, _ line: Int, _ message: String) -> Diagnostic {
    Diagnostic(file: file, line: line, path: "server.\(key)", message: message)
  }

  /// On one line: a diagnostic is a line, and a module's own file may have a problem on each of its lines.
  private func reason(_ error: any Error) -> String {
    let lines = ((error as? SalvorError)?.message ?? "\(error)").split(separator: "\n")
    return lines.dropFirst().reduce(String(lines.first ?? "")) { $0 + ($0.hasSuffix(":") ? " " : "; ") + $1 }
  }
}
