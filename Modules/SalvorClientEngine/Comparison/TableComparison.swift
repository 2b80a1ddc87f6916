import SalvorModel
import SalvorStorage
import SalvorWire

/// Compares the bases of one table with the server's rows by digests: over large ranges first, then over small ones within
/// those that differ, then row by row (docs/architecture/comparison.md). What the server has else goes to the sink as a
/// download payload.
struct TableComparison {
  let store: any RecoveringClientStore
  var questions: Questions

  /// Rows of a table that is compared row by row at once.
  static let smallMax: Int64 = 1_000
  /// Rows of a large range: so many small ones, whose digests are asked for where it differs.
  private static let largeRange = RecoveryLimits.rowsPerRange * 16
  /// Large ranges that are looked into with one request.
  private static let questionsMax = 128

  /// - Parameters:
  ///   - columns: that travel, in their order.
  ///   - serverCount: the server's rows, where that is known.
  ///   - after: where an earlier comparison of the table was left.
  ///   - passed: called with the key up to which the table is compared, when the sink has what differs before it.
  mutating func run(
    _ table: String, columns: [String], serverCount: Int64? = nil, after: Key? = nil,
    _ sink: ([UInt8], String) async throws -> Void, passed: (Key) async throws -> Void = { _ in }
  ) async throws {
    if after == nil, let serverCount, serverCount <= Self.smallMax,
      try await store.digest(of: table).count <= Self.smallMax
    {
      // One range whose digest no rows have: all keys, each with the digest of its row.
      let all = RangePage(columns: columns, ranges: [RangeDigest(last: nil, count: -1, digest: "")], isLast: true)
      try await questions.rows(try await store.differences(from: all, after: nil, of: table), sink)
      return
    }
    var after = after
    var through: Int64 = 0
    while true {
      let question = RangeQuestion(
        table: table, range: RowQuery.Range(after: after, last: nil), rowsPerRange: Self.largeRange)
      let page = try await questions.ranges([question])[0]
      let large = try await store.differences(from: page, after: after, of: table)
      for start in stride(from: 0, to: large.count, by: Self.questionsMax) {
        try await look(into: large[start..<min(start + Self.questionsMax, large.count)], sink)
      }
      through = page.ranges.reduce(through) { min($0 + $1.count, JSONValue.countMax) }
      if let serverCount { questions.progress(.comparing(table: table, rows: through, of: serverCount)) }
      guard !page.isLast, let last = page.ranges.last?.last else { return }
      after = last
      try await passed(last)
    }
  }

  private mutating func look(
    into large: ArraySlice<RowQuery>, _ sink: ([UInt8], String) async throws -> Void
  ) async throws {
    var waiting = large.compactMap { query in query.range.map { RangeQuestion(table: query.table, range: $0) } }
    while !waiting.isEmpty {
      let pages = try await questions.ranges(waiting)
      var rest: [RangeQuestion] = []
      var differing: [RowQuery] = []
      for (question, page) in zip(waiting, pages) {
        differing += try await store.differences(from: page, after: question.range.after, of: question.table)
        if !page.isLast {
          var next = question
          next.range.after = page.ranges.last?.last ?? question.range.after
          rest.append(next)
        }
      }
      if !differing.isEmpty { try await questions.rows(differing, sink) }
      waiting = rest
    }
  }
}
