import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// What the digests of a begin came to (docs/architecture/comparison.md).
struct Comparison: Sendable {
  var compared: ComparedTables
  /// Tables that the device has to compare before it can download.
  var differing: [ComparisonOffer.Table] = []
  /// The device waits for an answer before the download: something differs, or it has asked what has changed, too.
  var isToBeAnswered: Bool
}

extension ServerEngine {
  /// Compares the digests of a begin with the rows in the device's scope, before its upload is processed: neither side has the
  /// upload's effect then. Nil: there is nothing to compare, or a download goes on that was compared before.
  func compare(_ session: SessionTable.Session) async throws -> Comparison? {
    let message = session.begin.message
    guard !message.compare.isEmpty, message.position == nil,
      let store = configuration.store as? any RecoveringServerStore
    else { return nil }
    let groups = Set(message.groups.map(\.name))
    let scopes = GroupScopes(message, in: configuration.schema)
    var comparison = Comparison(
      compared: ComparedTables(head: try await head(of: message)),
      isToBeAnswered: message.compare.contains(where: \.isFed))
    if message.compared == comparison.compared.head { comparison.compared.ownUpTo = comparison.compared.head.number }
    for asked in message.compare {
      // What the server does not synchronize (any more) is told by the schema.
      guard let table = configuration.schema.table(asked.table), table.maintained != .client,
        groups.contains(table.group)
      else { continue }
      let own = try await store.digest(of: table.name, for: scopes.scope(ofTable: table.name, for: session.principal))
      let isByKeys = table.download == .keySet && !asked.isFed
      if own.agrees(with: asked) {
        if isByKeys { comparison.compared.fed.insert(table.name) }
      } else if isByKeys, own.count == 0 || asked.count == 0 {
        comparison.compared.whole.insert(table.name)
      } else {
        if isByKeys { comparison.compared.fed.insert(table.name) }
        comparison.differing.append(ComparisonOffer.Table(name: table.name, count: own.count))
        comparison.isToBeAnswered = true
      }
    }
    return comparison
  }

  /// The commit that rows are read at, or after: that of the download that is gone on with, where it is still known.
  private func head(of message: BeginMessage) async throws -> Commit {
    if let compared = message.compared {
      let query = AdmissionQuery(remote: message.remote, previous: nil, current: nil, cursors: [compared])
      if try await configuration.store.admit(query).cursors == [.known] { return compared }
    }
    return try await configuration.store.sweep()
  }

  /// The end of an answer whose download waits until the device has compared.
  func offer(_ comparison: Comparison, _ session: SessionTable.Session) async throws -> ComparisonOffer {
    var compared = comparison.compared
    if compared.ownUpTo == nil {
      // The device compares what it has after the upload.
      compared.head = try await configuration.store.sweep()
      compared.ownUpTo = compared.head.number
    }
    try await sessions.note(compared, of: session)
    return ComparisonOffer(token: session.token, head: compared.head, tables: comparison.differing)
  }

  /// `POST /v1/sync/TOKEN/ranges`, `…/rows` and `…/download`.
  func compare(_ request: TransportRequest, token: String, _ what: String) async throws -> TransportResponse {
    guard let store = configuration.store as? any RecoveringServerStore else {
      throw SalvorError(.notFound, "This server's storage module cannot compare. Use the storage \"sqlite\".")
    }
    let principal = try await authenticate(request)
    let session = try await sessions.find(token, principal: principal)
    let scopes = GroupScopes(session.begin.message, in: configuration.schema)
    let scope: @Sendable (String) -> ReadScope = { scopes.scope(ofTable: $0, for: principal) }
    switch what {
    case "rows":
      return try await answerRows(request, store, scope: scope) { [sessions] in await sessions.touch(session) }
    case "ranges": return try await answerRanges(request, store, scope: scope)
    default:
      _ = try await decodedBody(request, limit: BodyBudget.freeBytes)
      return try await answer(
        sessionLine(principal, []).bytes + [0x0A], pages(session, session.compared), request)
    }
  }
}
