import SQLiteSupport
import SalvorModel
import SalvorStorage

/// An outstanding request with its changes decoded.
struct OutstandingRequest {
  struct Change {
    var table: CapturedTable
    var key: Key
    var step: RowTimeline.Step
  }
  var range: RequestRange
  var changes: [Change]
  var state: RequestState
}

extension StoreContext {
  /// The requests in the log after `counter`, decoded, in order; at most `limit` of those that `isWanted`.
  ///
  /// - Parameter asCaptured: with the old values that each change saw, not those that the base has under it now.
  func outstanding(
    after counter: Int64 = 0, limit: Int = .max, asCaptured: Bool = true,
    where isWanted: (RequestState) -> Bool = { _ in true }
  ) throws -> [OutstandingRequest] {
    let index = try LogIndex(self)
    var timelines: [RowRef: [Int64: RowTimeline.Step]] = [:]
    var states: [Int64: RequestState] = [:]
    for row in try connection.rows("SELECT first, state FROM salvor_request_state") {
      if let first = row[0].integer { states[first] = row[1].string.flatMap { RequestState(rawValue: $0) } }
    }
    let uploadLast = try connection.state(.uploadLast)?.integer ?? 0
    let uploadState = try connection.text(.uploadState).flatMap { RequestState(rawValue: $0) } ?? .sent
    let excluded = try connection.rows("SELECT first FROM salvor_upload_excluded").compactMap { $0[0].integer }
    let leftOut = Set(excluded)
    let anySeen = try asCaptured && anySeen()
    var ranges = try RangeCursor(self, after: counter)
    var found: [OutstandingRequest] = []
    try connection.query(
      "SELECT \(catalog.logColumns) FROM salvor_log WHERE seq > ?1 AND op IN \(Self.changeOperations) ORDER BY seq",
      [.integer(counter)]
    ) { row in
      let entry = try catalog.entry(from: row)
      guard let table = catalog.table(number: entry.table) else { return true }
      let range = try ranges.range(of: entry.seq) ?? RequestRange(first: entry.seq, last: entry.seq)
      let state =
        states[range.first] ?? (range.first <= uploadLast && !leftOut.contains(range.first) ? uploadState : .queued)
      guard isWanted(state) else { return true }
      if found.last?.range.first != range.first {
        if found.count >= limit { return false }
        found.append(OutstandingRequest(range: range, changes: [], state: state))
      }
      let key = entry.key(table)
      let ref = RowRef(table: table.number, key: key)
      if timelines[ref]?[entry.seq] == nil {
        timelines[ref] = Dictionary(
          uniqueKeysWithValues: try index.timeline(table, key).steps.map {
            ($0.seq, anySeen ? try self.asCaptured($0) : $0)
          })
      }
      guard let step = timelines[ref]?[entry.seq] else { return true }
      found[found.count - 1].changes.append(OutstandingRequest.Change(table: table, key: key, step: step))
      return true
    }
    return found
  }
}

/// The dependence of all outstanding requests, as they were before a step.
struct OutstandingDependence {
  /// Beyond this many changes dependence is followed along rows only, and where a reference or a unique value fails.
  static let changesMax: Int64 = 10_000

  private let ranges: [RequestRange]
  private let dependence: Dependence

  /// Nil where there are too many. Before anything is written: the log is decoded from the rows as they are.
  ///
  /// - Parameter isStaying: false for requests that are about to leave.
  init?(_ context: StoreContext, where isStaying: (RequestRange) -> Bool = { _ in true }) throws {
    let count =
      try context.connection.integer(
        "SELECT count(*) FROM salvor_log WHERE op IN \(StoreContext.changeOperations)") ?? 0
    guard count > 0, count <= Self.changesMax else { return nil }
    let requests = try context.outstanding().filter { isStaying($0.range) }
    ranges = requests.map(\.range)
    dependence = Dependence(requests, schema: context.schema)
  }

  /// First counters of the requests that one depends on directly.
  func needs(of range: RequestRange) -> [Int64] {
    guard let place = ranges.firstIndex(where: { $0.first == range.first }) else { return [] }
    return dependence.direct[place].sorted().map { ranges[$0].first }
  }

  func dependents(of range: RequestRange) -> [RequestRange] {
    guard let place = ranges.firstIndex(where: { $0.first == range.first }) else { return [] }
    return dependence.dependents(of: [place]).sorted().map { ranges[$0] }
  }
}

/// Which request depends on which (semantics 7, *Depends on*).
struct Dependence {
  /// For each request, the places of those it depends on directly.
  private(set) var direct: [Set<Int>]

  init(_ requests: [OutstandingRequest], schema: Schema) {
    direct = requests.map { _ in [] }
    var onRow: [RowRef: Set<Int>] = [:]
    var made: [Place: Set<Int>] = [:]
    var unlinked: [Place: Set<Int>] = [:]
    var freed: [Place: Set<Int>] = [:]
    for (index, request) in requests.enumerated() {
      let facts = request.changes.map { Facts($0, schema) }
      for (change, fact) in zip(request.changes, facts) {
        direct[index].formUnion(onRow[RowRef(table: change.table.number, key: change.key)] ?? [])
        for parent in fact.targetsAfter { direct[index].formUnion(made[parent] ?? []) }
        if case .delete = change.step.change { direct[index].formUnion(unlinked[fact.row] ?? []) }
        for value in fact.uniqueAfter.subtracting(fact.uniqueBefore) { direct[index].formUnion(freed[value] ?? []) }
      }
      direct[index].remove(index)
      for (change, fact) in zip(request.changes, facts) {
        onRow[RowRef(table: change.table.number, key: change.key), default: []].insert(index)
        if fact.makesOrRelinks { made[fact.row, default: []].insert(index) }
        for parent in fact.targetsBefore.subtracting(fact.targetsAfter) { unlinked[parent, default: []].insert(index) }
        for value in fact.uniqueBefore.subtracting(fact.uniqueAfter) { freed[value, default: []].insert(index) }
      }
    }
    addLaterParents(requests, schema)
  }

  /// A parent that was captured after its child, as a deferred foreign key allows.
  private mutating func addLaterParents(_ requests: [OutstandingRequest], _ schema: Schema) {
    var makers: [Place: Int] = [:]
    for (index, request) in requests.enumerated() {
      for change in request.changes {
        guard case .insert = change.step.change else { continue }
        let row = Facts(change, schema).row
        if makers[row] == nil { makers[row] = index }
      }
    }
    for (index, request) in requests.enumerated() {
      for parent in request.changes.flatMap({ Facts($0, schema).targetsAfter }) {
        if let maker = makers[parent], maker > index { direct[index].insert(maker) }
      }
    }
  }

  /// `roots` and all that depends on them.
  func dependents(of roots: Set<Int>) -> Set<Int> {
    var found = roots
    var grew = true
    while grew {
      grew = false
      for index in direct.indices where !found.contains(index) && !direct[index].isDisjoint(with: found) {
        found.insert(index)
        grew = true
      }
    }
    return found
  }

  /// `roots` and all that they depend on.
  func needs(of roots: Set<Int>) -> Set<Int> {
    var found = roots
    var waiting = Array(roots)
    while let index = waiting.popLast() {
      for needed in direct[index] where found.insert(needed).inserted { waiting.append(needed) }
    }
    return found
  }

  /// A row by its key, or the holder of a unique value.
  struct Place: Hashable {
    var table: String
    var columns: [String]
    var values: [Value]
  }

  private struct Facts {
    var row: Place
    var targetsBefore: Set<Place> = []
    var targetsAfter: Set<Place> = []
    var uniqueBefore: Set<Place> = []
    var uniqueAfter: Set<Place> = []
    var makesOrRelinks: Bool

    init(_ change: OutstandingRequest.Change, _ schema: Schema) {
      row = Place(table: change.table.name, columns: [], values: change.key)
      makesOrRelinks = false
      guard let table = schema.table(change.table.name) else { return }
      func value(_ column: String, _ row: SlotRow) -> Value {
        change.table.columns.firstIndex { $0.name.lowercased() == column.lowercased() }.map { row[$0] } ?? .null
      }
      func targets(_ row: SlotRow?) -> Set<Place> {
        guard let row else { return [] }
        return Set(
          table.references.compactMap { reference in
            let value = value(reference.column, row)
            return value.isNull ? nil : Place(table: reference.table, columns: [], values: [value])
          })
      }
      func unique(_ row: SlotRow?) -> Set<Place> {
        guard let row else { return [] }
        return Set(
          table.unique.compactMap { columns in
            let values = columns.map { value($0, row) }
            return values.contains(.null) ? nil : Place(table: table.name, columns: columns, values: values)
          })
      }
      targetsBefore = targets(change.step.before)
      targetsAfter = targets(change.step.after)
      uniqueBefore = unique(change.step.before)
      uniqueAfter = unique(change.step.after)
      switch change.step.change {
      case .insert: makesOrRelinks = true
      case .update: makesOrRelinks = targetsBefore != targetsAfter
      case .delete: break
      }
    }
  }
}
