import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

extension ServerEngine {
  /// `GET /v1/events?groups=A,B&since=COMMIT[,COMMIT]&remote=ID`: a stream of server-sent events that says which groups
  /// have changed, and nothing of their rows.
  func events(_ request: TransportRequest) async throws -> TransportResponse {
    let principal = try await authenticate(request)
    // A group's name may hold a comma: the list is taken apart before its names are decoded.
    let raw = queryParameters(request.path)
    let groups = try eventGroups(raw["groups"])
    let cursors = try eventCursors(request.headers["last-event-id"] ?? raw["since"], count: groups.count)
    var remote: RemoteID?
    if let text = raw["remote"] {
      guard let id = RemoteID(text) else {
        throw SalvorError(.malformed, "A remote ID is 32 hexadecimal digits.")
      }
      let known = try await configuration.store.admit(
        AdmissionQuery(remote: id, previous: nil, current: nil, cursors: []))
      try checkOwner(known.remote, principal)
      remote = id
    }
    let stream = try await events.listen(groups: groups, remote: remote, cursors: cursors)
    return TransportResponse(
      status: 200, headers: ["content-type": ServerEvent.contentType, "cache-control": "no-store"], body: stream)
  }

  /// The groups that were asked for; all that have events where none was.
  private func eventGroups(_ list: String?) throws -> [String] {
    let telling = config.groups.filter(\.serverInitiated).map(\.name)
    let known = telling.isEmpty ? "none of this server's" : telling.joined(separator: ", ")
    guard let list, !list.isEmpty else {
      guard !telling.isEmpty else {
        throw SalvorError(.usage, "No synchronization group has serverInitiated in the server's schema: poll.")
      }
      return telling
    }
    var groups: [String] = []
    for part in list.split(separator: ",") {
      let name = percentDecoded(part)
      guard telling.contains(name) else {
        throw SalvorError(
          .usage,
          "The group \"\(name.prefix(80))\" does not tell of its changes. Those with serverInitiated are: \(known).",
          context: ["group": String(name.prefix(80))])
      }
      if !groups.contains(name) { groups.append(name) }
    }
    return groups
  }

  /// One commit for all groups, or one for each, in their order; an empty one: what comes.
  private func eventCursors(_ list: String?, count: Int) throws -> [Commit?] {
    guard let list, !list.isEmpty else { return Array(repeating: nil, count: count) }
    let cursors = try list.split(separator: ",", omittingEmptySubsequences: false).map { text -> Commit? in
      if text.isEmpty { return nil }
      guard let commit = Commit(text: text) else {
        throw SalvorError(.malformed, "A commit is written NUMBER-ID, as in the id of an event.")
      }
      return commit
    }
    if cursors.count == 1 { return Array(repeating: cursors[0], count: count) }
    guard cursors.count == count else {
      throw SalvorError(.malformed, "since names one commit for all groups, or one for each of them.")
    }
    return cursors
  }
}
