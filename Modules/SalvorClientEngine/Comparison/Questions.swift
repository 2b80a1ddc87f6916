import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// A device's questions about the server's rows, under the token of a sync session or of a recovery
/// (docs/reference/protocol.md, *Comparing*).
struct Questions {
  let configuration: ClientConfiguration
  /// Under which the questions are asked.
  let path: String
  var report: SyncReport
  let progress: @Sendable (SyncProgress) -> Void
  /// The rows of one question.
  private let keysMax = 2000

  init(
    _ configuration: ClientConfiguration, path: String, _ report: SyncReport,
    _ progress: @escaping @Sendable (SyncProgress) -> Void
  ) {
    self.configuration = configuration
    self.path = path
    self.report = report
    self.progress = progress
  }

  /// Calls `sink` with the payload that answers the questions.
  mutating func rows(
    _ queries: [RowQuery], _ sink: ([UInt8], String) async throws -> Void
  ) async throws {
    for batch in batches(queries) {
      var reader = try await post("rows", batch.map(\.json))
      var page: [UInt8] = []
      var table: [UInt8] = []
      while let event = try await reader.next() {
        guard case .payload(let line) = event else { throw try Self.problem(event) }
        let namesTable = line.starts(with: Self.tableLine)
        if namesTable { table = Array(line) + [0x0A] }
        if page.count >= configuration.limits.chunkBytesTarget {
          try await sink(page, "rows")
          page.removeAll(keepingCapacity: true)
          // The lines after one that names a table are that table's: each piece begins with such a line.
          if !namesTable { page += table }
        }
        page += line
        page.append(0x0A)
      }
      report.bytesReceived += reader.bytesReceived
      if !page.isEmpty { try await sink(page, "rows") }
      progress(.downloading(bytes: report.bytesReceived))
    }
  }

  private static let tableLine = Array("{\"table\"".utf8)

  /// Questions of a bounded number of keys; one that names more is cut. A question about a range stays whole.
  private func batches(_ queries: [RowQuery]) -> [[RowQuery]] {
    var batches: [[RowQuery]] = []
    var batch: [RowQuery] = []
    var count = 0
    func flush() {
      if !batch.isEmpty { batches.append(batch) }
      batch = []
      count = 0
    }
    for query in queries {
      var rest = query
      while rest.range == nil, rest.keys.count > keysMax {
        var part = rest
        part.keys = Array(rest.keys.prefix(keysMax))
        part.digests = Array(rest.digests.prefix(keysMax))
        rest.keys.removeFirst(keysMax)
        rest.digests.removeFirst(min(keysMax, rest.digests.count))
        flush()
        batches.append([part])
      }
      if count + rest.keys.count > keysMax { flush() }
      batch.append(rest)
      count += rest.keys.count + 1
    }
    flush()
    return batches
  }

  /// Answers in the order of the questions. Each goes on in the order of keys, and does not end before its last key.
  mutating func ranges(_ questions: [RangeQuestion]) async throws -> [RangePage] {
    var reader = try await post("ranges", questions.map(\.json))
    var pages: [RangePage] = []
    while let event = try await reader.next() {
      guard case .control(let line) = event, line["problem"] == nil else { throw try Self.problem(event) }
      pages.append(try RangePage(line))
    }
    report.bytesReceived += reader.bytesReceived
    guard pages.count == questions.count, zip(questions, pages).allSatisfy({ $1.goesOn(after: $0.range.after) })
    else { throw Self.unexpected }
    return pages
  }

  /// The feed from the groups' cursors to the head. Answers with the groups as they are then, or with files in their place.
  ///
  /// - Parameters:
  ///   - subscriptions: nil: each group goes on with its own.
  ///   - snapshot: which files the device takes, or holds.
  mutating func download(
    _ groups: [GroupState], subscriptions: ResolvedSubscriptions? = nil, snapshot: SnapshotTaking? = nil,
    _ sink: ([UInt8], String) async throws -> Void
  ) async throws -> (groups: [GroupState], offers: [SnapshotOffer]) {
    var members: [JSONValue.Member] = [
      .init("groups", .array(groups.map { BeginMessage.Group($0).json })), .init("position", .null),
    ]
    if let subscriptions { members.append(.init("subscriptions", subscriptions.json)) }
    if let snapshot { members.append(.init("snapshot", snapshot.json)) }
    var reader = try await post("download", [.object(members)])
    defer { report.bytesReceived += reader.bytesReceived }
    var page: [UInt8] = []
    while let event = try await reader.next() {
      switch event {
      case .payload(let line):
        page += line
        page.append(0x0A)
      case .control(let line):
        if line["session"] != nil || line["config"] != nil { continue }
        if let position = line["position"]?.string {
          try await sink(page, position)
          page.removeAll(keepingCapacity: true)
          progress(.downloading(bytes: report.bytesReceived + reader.bytesReceived))
        } else if let end = line["end"] {
          if !page.isEmpty { try await sink(page, "end") }
          var ends: [GroupState] = []
          for entry in try end.array("groups") {
            var group = try GroupState(entry)
            group.lastSync = configuration.clock.now()
            ends.append(group)
          }
          return (ends, [])
        } else if snapshot?.takes.isEmpty == false, let offers = line["snapshots"]?.array {
          return ([], try offers.prefix(100).map { try SnapshotOffer($0) })
        } else {
          throw try Self.problem(event)
        }
      }
    }
    throw SalvorError(.unreachable, "The server's answer was cut. Try again: what was begun goes on.")
  }

  private mutating func post(_ what: String, _ lines: [JSONValue]) async throws -> ResponseReader {
    var body = PayloadWriter()
    for line in lines {
      line.write(to: &body)
      body.raw("\n")
    }
    return ResponseReader(
      try await configuration.request("POST", "\(path)/\(what)", body.bytes, counting: &report), configuration)
  }

  static var unexpected: SalvorError {
    SalvorError(.malformed, "The server's answer to a question has a line that is not of the protocol.")
  }

  private static func problem(_ event: ResponseReader.Event) throws -> SalvorError {
    if case .control(let line) = event, let problem = line["problem"] {
      return Problem.error(problem, status: 500, asked: "A question")
    }
    return unexpected
  }
}

extension RangePage {
  /// False: who asked on after this page could ask for ever.
  fileprivate func goesOn(after key: Key?) -> Bool {
    var before = key
    for range in ranges {
      // A range without a last key is the table's end.
      guard let last = range.last else { return isLast && range == ranges.last }
      if let before, !keyPrecedes(before, last) { return false }
      before = last
    }
    return isLast || !ranges.isEmpty
  }
}
