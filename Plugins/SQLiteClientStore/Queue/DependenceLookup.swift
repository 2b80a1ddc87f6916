import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Which requests depend on which, followed from given requests by look-ups: it costs what depends, not what waits. The rule
/// itself is `ChangeEffect`'s.
///
/// It reads the log and the tables as they are, and says what is true at each call: tell it of rows that change meanwhile.
final class DependenceLookup {
  private let context: StoreContext
  private let index: LogIndex
  private let isMeant: (RequestRange) -> Bool
  /// Gives a row's base and steps where they are not those of the log.
  private let overlay: (CapturedTable, Key) throws -> RowTimeline?
  private var displaced: DisplacedChanges?
  private var facts: [RowRef: RowFacts] = [:]
  private let factsMax = 20_000
  /// By the request's first counter.
  private var rowsOfRequests: [Int64: [RowRef]] = [:]
  private let links: [Int64: TableLinks]
  private var values: ValueIndex?
  /// Rows that are not as the log has them, until `values` is made.
  private var changed: Set<RowRef> = []

  /// - Parameters:
  ///   - index: nil: one of its own.
  ///   - withDisplaced: displaced requests count, each in its place.
  ///   - isMeant: false for requests that are looked at as if they had never been.
  init(
    _ context: StoreContext, _ index: LogIndex? = nil, withDisplaced: Bool = false,
    where isMeant: @escaping (RequestRange) -> Bool = { _ in true },
    overlay: @escaping (CapturedTable, Key) throws -> RowTimeline? = { _, _ in nil }
  ) throws {
    self.context = context
    self.index = try index ?? LogIndex(context)
    self.isMeant = isMeant
    self.overlay = overlay
    links = Dictionary(
      uniqueKeysWithValues: context.catalog.tables.map { ($0.number, TableLinks($0, context)) })
    if withDisplaced {
      let displaced = try DisplacedChanges(context)
      self.displaced = displaced
      changed = Set(displaced.steps.keys)
    }
  }

  // MARK: Asking

  /// The requests and all that depend on them, in order.
  func dependents(of requests: [RequestRange]) throws -> [RequestRange] {
    // The oldest first: what came after it is found once.
    try closure(requests.sorted { $0.first < $1.first }) { try addDependents(of: $0, &$1) }
  }

  /// Those of some requests that depend on one of the roots, in order: for few requests, and many roots.
  func dependents(among requests: [RequestRange], on roots: [RequestRange]) throws -> [RequestRange] {
    var dependent: Set<Int64> = []
    var free: Set<Int64> = []
    for request in requests.sorted(by: { $0.first < $1.first }) {
      var search = Search()
      search.add(request)
      var next = 0
      while next < search.waiting.count, !dependent.contains(request.first) {
        let needed = search.waiting[next]
        next += 1
        if free.contains(needed.first) { continue }
        if dependent.contains(needed.first) || roots.holding(needed.first) != nil {
          dependent.insert(request.first)
        } else {
          try addNeeds(of: needed, &search)
        }
      }
      if !dependent.contains(request.first) { free.formUnion(search.found.keys) }
    }
    return requests.filter { dependent.contains($0.first) }
  }

  /// The requests and all that they depend on, in order.
  func needs(of requests: [RequestRange]) throws -> [RequestRange] {
    try closure(requests.sorted { $0.first > $1.first }) { try addNeeds(of: $0, &$1) }
  }

  /// The requests that one depends on directly.
  func directNeeds(of request: RequestRange) throws -> [RequestRange] {
    var search = Search()
    try addNeeds(of: request, &search)
    return search.found.values.sorted { $0.first < $1.first }
  }

  // MARK: Telling

  /// The row's base or steps are others now.
  func rowChanged(_ ref: RowRef) throws {
    facts[ref] = nil
    rowsOfRequests = [:]
    if let values { try add(ref, to: values) } else { changed.insert(ref) }
  }

  /// A displaced request is back in the log.
  func returned(_ request: RequestRange) throws {
    for ref in displaced?.remove(request) ?? [] { try rowChanged(ref) }
  }

  /// In order; none unless it was asked for with them.
  var displacedRequests: [RequestRange] { displaced?.all ?? [] }

  // MARK: Following

  private typealias Trace = ChangeFacts.Effect.Trace

  private struct Search {
    var found: [Int64: RequestRange] = [:]
    var waiting: [RequestRange] = []
    /// From which request on, or up to which one, a trace was followed. It is not followed there again.
    var bounds: [Trace: Int64] = [:]

    mutating func add(_ request: RequestRange) {
      if found.updateValue(request, forKey: request.first) == nil { waiting.append(request) }
    }

    /// Of those after `request`, the ones not asked for yet: before the result.
    mutating func later(_ trace: Trace, than request: RequestRange) -> Int64? {
      let bound = bounds[trace] ?? .max
      guard request.first < bound else { return nil }
      bounds[trace] = request.first
      return bound
    }

    /// Of those before `request`, the ones not asked for yet: from the result on.
    mutating func earlier(_ trace: Trace, than request: RequestRange) -> Int64? {
      let bound = bounds[trace] ?? 0
      guard request.first > bound else { return nil }
      bounds[trace] = request.first
      return bound
    }
  }

  private func closure(
    _ roots: [RequestRange], _ follow: (RequestRange, inout Search) throws -> Void
  ) throws -> [RequestRange] {
    var search = Search()
    for root in roots { search.add(root) }
    var next = 0
    while next < search.waiting.count {
      try follow(search.waiting[next], &search)
      next += 1
    }
    return search.waiting.sorted { $0.first < $1.first }
  }

  private func addDependents(of request: RequestRange, _ search: inout Search) throws {
    for ref in try rows(of: request) {
      let row = try facts(of: ref)
      let isMaker = row.maker?.first == request.first
      for trace in row.changes(from: request.first, before: request.first + 1).flatMap(\.traces) {
        guard let bound = search.later(trace, than: request) else { continue }
        // Those that reference a row which it makes may be earlier.
        let first = isMaker && trace == .linked(ref) ? 0 : request.first + 1
        for other in try rows(needing: trace) {
          for change in try facts(of: other).changes(from: first, before: bound) where change.needs.contains(trace) {
            search.add(change.request)
          }
        }
      }
    }
  }

  private func addNeeds(of request: RequestRange, _ search: inout Search) throws {
    for ref in try rows(of: request) {
      for trace in try facts(of: ref).changes(from: request.first, before: request.first + 1).flatMap(\.needs) {
        if case .linked(let parent) = trace, let maker = try facts(of: parent).maker, maker.first > request.first {
          search.add(maker)
        }
        guard let bound = search.earlier(trace, than: request) else { continue }
        for other in try rows(leaving: trace) {
          for change in try facts(of: other).changes(from: bound, before: request.first)
          where change.traces.contains(trace) {
            search.add(change.request)
          }
        }
      }
    }
  }

  /// Rows of which a change may need a trace.
  private func rows(needing trace: Trace) throws -> [RowRef] {
    switch trace {
    case .changed(let row), .unlinked(let row): [row]
    case .linked(let row): try rows(referencing: row)
    case .freed(let value): try rows(with: value)
    }
  }

  /// Rows of which a change may have left a trace.
  private func rows(leaving trace: Trace) throws -> [RowRef] {
    switch trace {
    case .changed(let row), .linked(let row): [row]
    case .unlinked(let row): try rows(referencing: row)
    case .freed(let value): try rows(with: value)
    }
  }

  // MARK: Looking up

  private func rows(of request: RequestRange) throws -> [RowRef] {
    if let rows = displaced?.rows(of: request) { return rows }
    if let known = rowsOfRequests[request.first] { return known }
    let rows = try context.rows(changedBy: request).map { RowRef(table: $0.table.number, key: $0.key) }
    if rowsOfRequests.count >= factsMax { rowsOfRequests = [:] }
    rowsOfRequests[request.first] = rows
    return rows
  }

  private func facts(of ref: RowRef) throws -> RowFacts {
    if let known = facts[ref] { return known }
    guard let table = context.catalog.table(number: ref.table), let links = links[ref.table] else { return RowFacts() }
    var timeline = try timeline(table, ref)
    timeline.steps = try timeline.steps.filter { isMeant(try request(of: $0.seq)) }
    let found = try links.facts(ref, timeline, isOffer: { try context.isNothingButOffer($0.seq) }) {
      try request(of: $0.seq)
    }
    if facts.count >= factsMax { facts.removeAll() }
    facts[ref] = found
    return found
  }

  private func request(of counter: Int64) throws -> RequestRange {
    try displaced?.request(of: counter) ?? context.range(of: counter)
  }

  private func timeline(_ table: CapturedTable, _ ref: RowRef) throws -> RowTimeline {
    var timeline: RowTimeline
    if let other = try overlay(table, ref.key) {
      timeline = other
    } else {
      timeline = try index.timeline(table, ref.key)
    }
    if let steps = displaced?.steps[ref] {
      timeline.steps = (timeline.steps + steps).sorted { $0.seq < $1.seq }
    }
    return timeline
  }

  /// Rows that reference, referenced or saw themselves reference a row.
  private func rows(referencing ref: RowRef) throws -> [RowRef] {
    guard ref.key.count == 1 else { return [] }
    var found: Set<RowRef> = []
    for table in context.catalog.tables {
      for reference in links[table.number]?.references ?? [] where reference.parent == ref.table {
        found.formUnion(try madeValues().rows(table, reference.slot, ref.key[0]))
      }
    }
    return Array(found)
  }

  private func rows(with unique: UniqueValue) throws -> [RowRef] {
    guard let table = context.catalog.table(number: unique.table), let slot = unique.slots.last,
      let value = unique.values.last
    else { return [] }
    return try madeValues().rows(table, slot, value)
  }

  private func madeValues() throws -> ValueIndex {
    if let values { return values }
    let made = try ValueIndex(context, index, slots: links.mapValues(\.slots).filter { !$0.value.isEmpty })
    for ref in changed { try add(ref, to: made) }
    changed = []
    values = made
    return made
  }

  private func add(_ ref: RowRef, to values: ValueIndex) throws {
    guard let table = context.catalog.table(number: ref.table), let slots = links[ref.table]?.slots, !slots.isEmpty
    else { return }
    let timeline = try timeline(table, ref)
    var present = timeline.base
    for step in timeline.steps {
      for row in [present, step.saw].compactMap({ $0 }) { try values.add(table, ref.key, row, slots) }
      switch step.change {
      case .insert(let row): present = row
      case .update(let news): for (slot, value) in news { present?[slot] = value }
      case .delete: present = nil
      }
    }
    if let present { try values.add(table, ref.key, present, slots) }
  }
}

/// The changes of displaced requests, which are not in the log.
private struct DisplacedChanges {
  private(set) var steps: [RowRef: [RowTimeline.Step]] = [:]
  private var requests: [Int64: RequestRange] = [:]
  /// By the request's first counter.
  private var rows: [Int64: [RowRef]] = [:]

  init(_ context: StoreContext) throws {
    for change in try context.archived(where: "state = 'displaced'", []) {
      let ref = RowRef(table: change.table.number, key: change.key)
      steps[ref, default: []].append(change.step)
      requests[change.step.seq] = change.range
      if rows[change.range.first]?.contains(ref) != true { rows[change.range.first, default: []].append(ref) }
    }
  }

  var all: [RequestRange] { Set(requests.values).sorted { $0.first < $1.first } }
  func rows(of request: RequestRange) -> [RowRef]? { rows[request.first] }
  func request(of counter: Int64) -> RequestRange? { requests[counter] }

  /// Answers the request's rows.
  mutating func remove(_ request: RequestRange) -> [RowRef] {
    let refs = rows.removeValue(forKey: request.first) ?? []
    for ref in refs {
      steps[ref]?.removeAll { (request.first...request.last).contains($0.seq) }
      if steps[ref]?.isEmpty == true { steps[ref] = nil }
    }
    for counter in request.first...request.last { requests[counter] = nil }
    return refs
  }
}
