import SQLiteClientStore
import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What it costs a person to look at one request of a long queue and to take it out. The limit: the same in a short queue, on
/// the same rows. Both queues have been listed before, as a person does to find the request.
struct Revert {
  var rows: Int
  var queues: (few: Int, many: Int)

  private enum Operation: String, CaseIterable {
    case show = "show one request"
    case plan = "what a withdrawal would take along"
    case withdraw = "withdraw one request"
  }

  private static let repetitions = 21

  func run(_ bench: Bench) async throws -> WorkloadResult {
    let loaded = bench.path("revert-loaded.db")
    let work = bench.path("revert-work.db")
    defer { bench.discard(loaded, work) }
    bench.say("revert: preparing a database of \(grouped(rows)) rows")
    try await makeDeviceDatabase(loaded, schema: RecordData.schema)
    try PlainDatabase.load(DataSet.records(RecordData(), count: rows), into: loaded)
    var costs: [Operation: (few: [Double], many: [Double])] = [:]
    var firsts: [Double] = []
    for _ in 1...bench.options.runs {
      let few = try await measure(bench, queues.few, loaded, work)
      let many = try await measure(bench, queues.many, loaded, work)
      firsts.append(many.first)
      for operation in Operation.allCases {
        costs[operation, default: ([], [])].few.append(few.costs[operation] ?? 0)
        costs[operation, default: ([], [])].many.append(many.costs[operation] ?? 0)
      }
    }
    var figures = Operation.allCases.map { operation in
      Figure(
        name: "\(operation.rawValue) of \(grouped(queues.many))", value: costs[operation]?.many.median ?? 0,
        unit: .seconds, limit: costs[operation]?.few.median, limitName: "of \(grouped(queues.few))",
        target: .ratio(atMost: 2))
    }
    figures.append(
      Figure(
        name: "the first listing of \(grouped(queues.many)), ten requests", value: firsts.median, unit: .seconds))
    return WorkloadResult(
      name: "revert-100k", title: "\(grouped(rows)) rows, medians of \(bench.options.runs)", figures: figures)
  }

  private func measure(
    _ bench: Bench, _ queue: Int, _ loaded: String, _ work: String
  ) async throws -> (first: Double, costs: [Operation: Double]) {
    PlainDatabase.remove(work)
    try PlainDatabase.copy(loaded, to: work)
    try write(queue, work)
    bench.settle()
    let store = SQLiteClientStore(path: work)
    _ = try await store.open(ClientSetup(schema: RecordData.schema, principal: "bench"))
    let start = Measure.wall()
    let oldest = try await store.requests(in: [.queued], after: nil, limit: 10)
    let first = Measure.wall() - start
    guard let stamp = oldest.first?.id.stamp, let counter = oldest.first?.id.counter else {
      throw SalvorError(.failed, "The queue is empty.")
    }
    var times: [Operation: [Double]] = [:]
    for place in RecordData.spread(Self.repetitions, of: queue) {
      let id = RequestID(stamp: stamp, counter: counter + Int64(place))
      for operation in Operation.allCases {
        let start = Measure.wall()
        let count: Int
        switch operation {
        case .show: count = try await store.request(id).count
        case .plan: count = try await store.plan(.withdraw(id)).requests.count
        case .withdraw: count = try await store.remove(.withdraw(id)).requests.count
        }
        times[operation, default: []].append(Measure.wall() - start)
        guard count == 1 else { throw SalvorError(.failed, "The request \(id) is not there, or not alone.") }
      }
    }
    await store.close()
    bench.say("revert: a queue of \(grouped(queue)) is measured")
    return (first, times.mapValues(\.median))
  }

  /// So many requests, each an update of a row of its own.
  private func write(_ queue: Int, _ path: String) throws {
    let connection = try PlainDatabase.open(path)
    defer { connection.close() }
    let data = RecordData()
    var changes = RowArena(columnCount: 2)
    for place in RecordData.spread(queue, of: rows) {
      changes.append(Int64(5000 + place % 100))
      changes.append(data.key(place))
    }
    let statement = try connection.prepare("UPDATE record SET quantity = ?1 WHERE id = ?2")
    try connection.transaction { try changes.run(statement) }
  }
}
