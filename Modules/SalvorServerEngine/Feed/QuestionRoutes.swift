import SalvorModel
import SalvorStorage
import SalvorTransport
import SalvorWire

/// The questions about rows that a device asks where it compares: under a sync session's token, and under a recovery's
/// (docs/reference/protocol.md, *Comparing*).
extension ServerEngine {
  /// The lines of a request's body.
  func lines(_ request: TransportRequest, max count: Int) async throws -> [JSONValue] {
    let body = try await decodedBody(request, limit: configuration.limits.chunkBytesMax)
    let lines = body.split(separator: 0x0A, maxSplits: count + 1)
    guard lines.count <= count else {
      throw SalvorError(.tooLarge, "The body has more than \(count) line\(count == 1 ? "" : "s").")
    }
    let (depth, values) = (configuration.limits.depthMax, configuration.limits.valuesMax)
    return try await parsed(body.count) {
      // One limit for all of them.
      var left = values
      return try lines.map { line in
        try JSONValue(parsing: Array(line), depthMax: depth, valuesLeft: &left)
      }
    }
  }

  /// A body of one line.
  func line(_ request: TransportRequest) async throws -> JSONValue {
    guard let line = try await lines(request, max: 1).first else {
      throw SalvorError(.malformed, "The body must be one line of JSON.")
    }
    return line
  }

  /// A body of one line for an administrator's command.
  ///
  /// - Parameter members: what it may say. Anything else, and a member that stands twice, throws `malformed`: a misspelt condition would make the command act on all.
  func line(_ request: TransportRequest, of members: Set<String>) async throws -> JSONValue {
    let line = try await line(request)
    guard case .object(let found) = line else { throw SalvorError(.malformed, "The body must be a JSON object.") }
    if let unknown = found.first(where: { !members.contains($0.key) }) {
      throw SalvorError(
        .malformed,
        "The body has a member \"\(unknown.key.prefix(40))\", which nothing reads. It may have: \(members.sorted().joined(separator: ", ")). Nothing was done."
      )
    }
    var seen: Set<String> = []
    if let twice = found.first(where: { !seen.insert($0.key).inserted }) {
      throw SalvorError(
        .malformed, "The body has the member \"\(twice.key)\" twice. Nothing was done: send it once.")
    }
    return line
  }

  /// `POST …/rows`: the answer to each query goes out while the next one is asked.
  ///
  /// - Parameters:
  ///   - scope: of a table, by its name.
  ///   - touch: called for each piece that is answered.
  func answerRows(
    _ request: TransportRequest, _ store: any RecoveringServerStore, scope: @escaping @Sendable (String) -> ReadScope,
    touch: @escaping @Sendable () async -> Void
  ) async throws -> TransportResponse {
    var queries: [RowQuery] = []
    var keys = 0
    for line in try await lines(request, max: RecoveryLimits.queriesMax) {
      let query = try RowQuery(line)
      keys += query.keys.count
      guard keys <= RecoveryLimits.keysMax else {
        throw SalvorError(.tooLarge, "A request for rows names at most \(RecoveryLimits.keysMax) keys. Ask in parts.")
      }
      queries.append(query)
    }
    let answers = RowAnswers(queries, store, scope: scope, touch: touch)
    // What fails in the first one is a problem response; what fails later cuts the answer.
    let first = try await answers.next() ?? []
    guard let second = try await answers.next() else { return try await respond(first, request) }
    let head = OneByOne([first, second])
    return try respond(
      streaming: ByteStream(next: { if let piece = await head.take() { piece } else { try await answers.next() } }),
      request)
  }

  /// `POST …/ranges`: a line for each question. What goes over the limit of all is asked for again.
  ///
  /// - Parameter scope: of a table, by its name.
  func answerRanges(
    _ request: TransportRequest, _ store: any RecoveringServerStore, scope: (String) -> ReadScope
  ) async throws -> TransportResponse {
    let questions = try await lines(request, max: RecoveryLimits.rangeQuestionsMax).map { try RangeQuestion($0) }
    guard !questions.isEmpty else { throw SalvorError(.malformed, "The body must name the ranges' tables.") }
    var answer: [UInt8] = []
    var left = RecoveryLimits.rangesMax
    for question in questions {
      let page = try await store.ranges(question, limit: max(1, left), for: scope(question.table))
      left -= page.ranges.count
      answer += page.json.bytes + [0x0A]
    }
    return try await respond(answer, request)
  }
}

extension RowQuery {
  /// Takes the first `count` keys out. One with a range is small by its limit, and stays whole.
  fileprivate mutating func first(_ count: Int) -> RowQuery? {
    guard range == nil, keys.count > count else { return nil }
    let part = RowQuery(table: table, keys: Array(keys.prefix(count)), digests: Array(digests.prefix(count)))
    keys.removeFirst(count)
    digests.removeFirst(min(count, digests.count))
    return part
  }
}

/// Answers queries for rows one after the other, and skips the empty answers.
private actor RowAnswers {
  private var queries: ArraySlice<RowQuery>
  private let scope: @Sendable (String) -> ReadScope
  private let store: any RecoveringServerStore
  private let touch: @Sendable () async -> Void

  init(
    _ queries: [RowQuery], _ store: any RecoveringServerStore, scope: @escaping @Sendable (String) -> ReadScope,
    touch: @escaping @Sendable () async -> Void
  ) {
    self.queries = queries[...]
    self.scope = scope
    self.store = store
    self.touch = touch
  }

  /// At least a piece of this size, where there is so much.
  private static let pieceBytes = 64 << 10
  /// A store answers so many keys at a time: more where the answers are smaller than this, fewer where rows are large.
  private static let keysAtOnce = 1...256
  private static let answerBytesTarget = 1 << 20
  private var keysNext = 16

  func next() async throws -> [UInt8]? {
    var piece: [UInt8] = []
    while piece.count < Self.pieceBytes, let first = queries.first {
      var rest = first
      let part = rest.first(keysNext)
      if part == nil { queries.removeFirst() } else { queries[queries.startIndex] = rest }
      let query = part ?? first
      let answer = try await store.rows(matching: query, for: scope(query.table))
      let target = Self.answerBytesTarget
      keysNext = answer.count < target ? keysNext * 2 : keysNext * target / answer.count
      keysNext = min(max(keysNext, Self.keysAtOnce.lowerBound), Self.keysAtOnce.upperBound)
      piece += answer
    }
    await touch()
    return piece.isEmpty ? nil : piece
  }
}

private actor OneByOne {
  private var pieces: ArraySlice<[UInt8]>
  init(_ pieces: [[UInt8]]) { self.pieces = pieces[...] }
  func take() -> [UInt8]? { pieces.popFirst() }
}
