import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `GET /admin/v1/restores` and `GET /admin/v1/restores/ID`.
  func restores(_ request: TransportRequest, _ parts: [String]) async throws -> TransportResponse {
    guard request.method == "GET", parts.count <= 1 else { throw notFound(request) }
    let records =
      try await (configuration.store as? any RestoreReportingServerStore)?.restores(limit: RestoreRecord.listedMax)
      ?? []
    guard let id = parts.first else { return json(["restores": .array(records.map(\.json))]) }
    guard let record = records.first(where: { "\($0.id)" == id }) else { throw RestoreRecord.notFound(id) }
    return json(record.json)
  }

  /// What the newest restore has brought back, and lacks.
  func observeRestores(_ out: inout MetricsText) async {
    guard let restore = try? await (configuration.store as? any RestoreReportingServerStore)?.restores(limit: 1).first
    else { return }
    out.labelled(
      "salvor_restore_offers", "gauge", "Offers since the newest restore, by what became of them",
      Dictionary(
        uniqueKeysWithValues: [
          ("healed", restore.healed), ("superseded", restore.superseded), ("conflict", restore.conflicts),
          ("refused", restore.refused), ("purged", restore.purged),
        ].map { (MetricsText.label("outcome", $0.0), $0.1) }))
    out.gauge(
      "salvor_restore_lost_commits", "Commits that the newest restore is known to have lost", restore.lostCommits)
    out.gauge(
      "salvor_restore_commits_missing", "Of these, the ones that nobody has offered anything of",
      restore.commitsNotOffered.reduce(0) { $0 + Int64($1.count) })
    out.gauge(
      "salvor_restore_remotes_missing", "Remotes that may hold lost rows and have not come since the newest restore",
      Int64(restore.absent.count { $0.isMissed }))
  }
}

extension RestoreRecord {
  /// So many are listed.
  public static let listedMax = 100

  public static func notFound(_ id: String) -> SalvorError {
    SalvorError(.notFound, "There is no restore \(id). salvor server restores lists them.", context: ["id": id])
  }
}
