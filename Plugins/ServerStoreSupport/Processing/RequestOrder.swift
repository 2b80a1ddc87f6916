import SalvorModel
import SalvorStorage

/// The order in which requests are decided: the client's, except that one goes after the later one that makes a row it
/// references, unless that one depends on it in turn. A request takes its own place or that of the last one that it needs,
/// whichever is later.
struct RequestOrder {
  /// - Parameter steps: of each request, worked out one after the other in the client's order.
  /// - Returns: Units: each one request, or those that depend on one another, in a circle, in the client's order.
  static func units(_ steps: [[Step]]) -> [[Int]] {
    var makers: [UInt64: Int] = [:]
    for (index, steps) in steps.enumerated() {
      for step in steps where step.makes && makers[step.effect.row] == nil { makers[step.effect.row] = index }
    }
    var needs: [[Int]] = steps.map { _ in [] }
    var hasLaterMaker = false
    for (index, steps) in steps.enumerated() {
      for target in steps.flatMap(\.effect.targetsAfter) {
        if let maker = makers[target], maker > index {
          needs[index].append(maker)
          hasLaterMaker = true
        }
      }
    }
    guard hasLaterMaker else { return steps.indices.map { [$0] } }
    addEarlier(steps, &needs)
    return sorted(circles(in: needs), needs)
  }

  /// For each request the newest earlier one that left what it needs; the others follow from that one. Rows that gave up one
  /// parent say nothing of each other.
  private static func addEarlier(_ steps: [[Step]], _ needs: inout [[Int]]) {
    var left: [Step.Effect.Trace: [Int]] = [:]
    for (index, steps) in steps.enumerated() {
      for trace in steps.flatMap(\.effect.needs) { needs[index] += left[trace] ?? [] }
      for trace in steps.flatMap(\.effect.traces) {
        if case .unlinked = trace { left[trace, default: []].append(index) } else { left[trace] = [index] }
      }
    }
  }

  /// Each unit after those that it needs.
  private static func sorted(_ units: [[Int]], _ needs: [[Int]]) -> [[Int]] {
    var unitOf = [Int](repeating: 0, count: needs.count)
    var keys: [(place: Int, depth: Int)] = []
    for (unit, members) in units.enumerated() {
      for member in members { unitOf[member] = unit }
      var key = (place: members[members.count - 1], depth: 1)
      for other in members.flatMap({ needs[$0] }).map({ unitOf[$0] }) where other != unit {
        key = (max(key.place, keys[other].place), max(key.depth, keys[other].depth + 1))
      }
      keys.append(key)
    }
    return units.indices.sorted {
      (keys[$0].place, keys[$0].depth, units[$0][0]) < (keys[$1].place, keys[$1].depth, units[$1][0])
    }.map { units[$0] }
  }

  /// The strongly connected components, each sorted and after those that it needs (Tarjan). The stack is its own: a chain
  /// of references may be as long as the upload.
  private static func circles(in needs: [[Int]]) -> [[Int]] {
    var units: [[Int]] = []
    /// When a request was reached; -1: not yet. And the earliest one reached from it whose unit is not known yet.
    var reached = [Int](repeating: -1, count: needs.count)
    var earliest = reached
    var isOpen = [Bool](repeating: false, count: needs.count)
    var open: [Int] = []
    var count = 0
    for start in needs.indices where reached[start] < 0 {
      var path: [(index: Int, next: Int)] = []
      func enter(_ index: Int) {
        reached[index] = count
        earliest[index] = count
        count += 1
        open.append(index)
        isOpen[index] = true
        path.append((index, 0))
      }
      enter(start)
      while let (index, next) = path.last {
        if next < needs[index].count {
          path[path.count - 1].next += 1
          let need = needs[index][next]
          if reached[need] < 0 {
            enter(need)
          } else if isOpen[need] {
            earliest[index] = min(earliest[index], reached[need])
          }
          continue
        }
        path.removeLast()
        if let above = path.last?.index { earliest[above] = min(earliest[above], earliest[index]) }
        guard earliest[index] == reached[index] else { continue }
        var members: [Int] = []
        while let member = open.popLast() {
          isOpen[member] = false
          members.append(member)
          if member == index { break }
        }
        units.append(members.sorted())
      }
    }
    return units
  }
}
