import SQLiteSupport
import SalvorModel
import SalvorWire

/// What the triggers add to an application's own writes. The limit: the same statements on the same table without
/// triggers, in a database of the same settings.
///
/// CPU time is compared (docs/reference/benchmarks.md says why); wall time stands beside it.
struct Capture {
  var rows: Int
  var transactions: Int

  private enum Operation: CaseIterable {
    case insert, updateByKey, updateInOneStatement, delete, oneRowTransactions

    var ratioMax: Double {
      switch self {
      case .insert: 2.1
      case .updateByKey: 1.9
      case .updateInOneStatement: 3.0
      case .delete: 1.7
      case .oneRowTransactions: 1.5
      }
    }

    /// Whether the rows are there beforehand, as a sync would have left them.
    var needsRows: Bool { self != .insert }
  }

  func run(_ bench: Bench) async throws -> WorkloadResult {
    let runs = bench.options.isQuick ? bench.options.runs : max(5, bench.options.runs)
    let captured = Variant(bench, "captured")
    let plain = Variant(bench, "plain")
    defer {
      for variant in [captured, plain] { bench.discard(variant.empty, variant.loaded, variant.work) }
    }
    bench.say("capture: preparing databases of \(grouped(rows)) rows")
    try await makeDeviceDatabase(captured.empty, schema: RecordData.schema)
    try makePlainDatabase(plain.empty, like: captured.empty)
    for variant in [captured, plain] {
      try PlainDatabase.copy(variant.empty, to: variant.loaded)
      try PlainDatabase.load(.records(RecordData(), count: rows), into: variant.loaded)
    }

    var figures: [Figure] = []
    for operation in Operation.allCases {
      var costs: (captured: [Cost], plain: [Cost]) = ([], [])
      for _ in 1...runs {
        costs.plain.append(try measure(bench, operation, plain))
        costs.captured.append(try measure(bench, operation, captured))
      }
      bench.say("capture: \(title(operation)) is measured")
      figures += self.figures(operation, costs.captured, costs.plain)
    }
    return WorkloadResult(name: "capture", title: "\(grouped(rows)) rows, medians of \(runs)", figures: figures)
  }

  private func title(_ operation: Operation) -> String {
    switch operation {
    case .insert: "insert"
    case .updateByKey: "update 3 columns by key"
    case .updateInOneStatement: "update 3 columns in one statement"
    case .delete: "delete with WHERE"
    case .oneRowTransactions: "\(grouped(transactions)) one-row transactions"
    }
  }

  private func figures(_ operation: Operation, _ captured: [Cost], _ plain: [Cost]) -> [Figure] {
    [
      Figure(
        name: "\(title(operation)), CPU", value: captured.map(\.cpu).median, unit: .seconds,
        limit: plain.map(\.cpu).median, limitName: "no triggers", target: .ratio(atMost: operation.ratioMax),
        details: [
          ("runs", .array(captured.map { .real($0.cpu) })), ("limitRuns", .array(plain.map { .real($0.cpu) })),
        ]),
      Figure(
        name: "\(title(operation)), wall", value: captured.map(\.wall).median, unit: .seconds,
        limit: plain.map(\.wall).median, limitName: "no triggers"),
    ]
  }

  // MARK: Databases

  /// The databases of one side of the comparison. Each measurement works on a copy.
  private struct Variant {
    let empty: String
    let loaded: String
    let work: String

    init(_ bench: Bench, _ name: String) {
      empty = bench.path("capture-\(name)-empty.db")
      loaded = bench.path("capture-\(name)-loaded.db")
      work = bench.path("capture-\(name)-work.db")
    }
  }

  private func makePlainDatabase(_ path: String, like other: String) throws {
    let ddl = try PlainDatabase.tableDDL(of: other, RecordData.schema)
    let connection = try PlainDatabase.open(path)
    defer { connection.close() }
    for sql in ddl { try connection.execute(sql) }
  }

  // MARK: Measuring

  private func measure(_ bench: Bench, _ operation: Operation, _ variant: Variant) throws -> Cost {
    PlainDatabase.remove(variant.work)
    try PlainDatabase.copy(operation.needsRows ? variant.loaded : variant.empty, to: variant.work)
    bench.settle()
    let connection = try PlainDatabase.open(variant.work)
    defer { connection.close() }
    let cost = try perform(operation, connection)
    guard connection.totalChanges > 0 else { throw SalvorError(.failed, "\(title(operation)) changed nothing.") }
    return cost
  }

  private func perform(_ operation: Operation, _ connection: SQLiteConnection) throws -> Cost {
    switch operation {
    case .insert:
      var cost = try Cost.of { try connection.execute("BEGIN IMMEDIATE") }
      let statement = try connection.prepare(PlainDatabase.insertStatement(RecordData.table))
      try DataSet.records(RecordData(), count: rows).eachBatch(inKeyOrder: false) { _, batch in
        try cost.add { try batch.run(statement) }
      }
      try cost.add { try connection.execute("COMMIT") }
      return cost
    case .updateByKey:
      let changes = newValues(Array(0..<rows))
      let statement = try connection.prepare(updateByKey)
      return try Cost.of { try connection.transaction { try changes.run(statement) } }
    case .updateInOneStatement:
      return try Cost.of {
        try connection.execute("UPDATE record SET quantity = quantity + 1, price = price + 1, status = 'moved'")
      }
    case .delete:
      return try Cost.of { try connection.execute("DELETE FROM record WHERE quantity >= 0") }
    case .oneRowTransactions:
      let changes = newValues(RecordData.spread(transactions, of: rows))
      let statement = try connection.prepare(updateByKey)
      return try Cost.of { try changes.run(statement) }
    }
  }

  private var updateByKey: String { "UPDATE record SET quantity = ?1, price = ?2, status = ?3 WHERE id = ?4" }

  private func newValues(_ places: [Int]) -> RowArena {
    let data = RecordData()
    var changes = RowArena(columnCount: 4)
    for place in places {
      changes.append(Int64(5000 + place % 100))
      changes.append(Double(place % 1000) + 0.5)
      changes.append("moved".utf8)
      changes.append(data.key(place))
    }
    return changes
  }
}
