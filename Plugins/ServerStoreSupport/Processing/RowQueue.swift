import SalvorModel
import SalvorStorage
import SalvorWire

/// Changes of one shape, each of another row, that follow one another and that nothing speaks against: one statement writes them
/// (`ShapePlan.runSet`). They stand in one chunk.
struct RowQueue {
  /// Fewer are written one by one: a set needs a savepoint.
  static let rowsMin = 4
  private static let rowsMax = 4096

  private(set) var rows: [UploadRow] = []
  private(set) var hashes: [UInt64] = []
  private var known: Set<UInt64> = []
  /// Where sets fail, they are smaller for a while.
  private var limit = rowsMax

  var isFull: Bool { rows.count >= limit }

  func takes(_ change: UploadRow, _ hash: UInt64) -> Bool {
    !isFull && (rows.isEmpty || rows[0].plan === change.plan) && !known.contains(hash)
  }

  mutating func append(_ change: UploadRow, _ hash: UInt64) {
    rows.append(change)
    hashes.append(hash)
    known.insert(hash)
  }

  mutating func take() -> (rows: [UploadRow], hashes: [UInt64]) {
    defer {
      rows.removeAll(keepingCapacity: true)
      hashes.removeAll(keepingCapacity: true)
      known.removeAll(keepingCapacity: true)
    }
    return (rows, hashes)
  }

  mutating func note(written: Bool) {
    limit = written ? min(Self.rowsMax, limit * 2) : max(Self.rowsMin * 4, limit / 4)
  }
}

/// Where the reading of the upload stands.
struct UploadReading {
  var nextOrdinal = 0
  var lastCounter: Int64 = 0
  /// A request of several changes that has not ended.
  var group: StagedRequest?
  /// What the last `offer` line said.
  var offers: (first: Int64, last: Int64, offer: Offer)?
  /// What the last `former` line said.
  var former: (first: Int64, contents: [FormerContent])?

  func offer(of counter: Int64) -> Offer? {
    offers.flatMap { ($0.first...$0.last).contains(counter) ? $0.offer : nil }
  }

  /// The next one in the order.
  mutating func request(
    _ stamp: RequestStamp, _ first: Int64, _ last: Int64, _ changes: [StagedChange]
  ) -> StagedRequest {
    defer { nextOrdinal += 1 }
    let was = former.flatMap { $0.first == first ? $0.contents : nil } ?? []
    return StagedRequest(ordinal: nextOrdinal, stamp: stamp, first: first, last: last, changes: changes, former: was)
  }
}
