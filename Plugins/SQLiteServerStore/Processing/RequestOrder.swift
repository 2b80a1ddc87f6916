import SalvorModel
import SalvorStorage

/// The order in which requests are decided: the client's, except that one goes after the later one that makes a row it
/// references, and with that one go those it depends on.
struct RequestOrder {
  /// - Parameters:
  ///   - steps: of each request, worked out one after the other.
  ///   - isThere: whether a row that one of them makes is in the tables already.
  static func order(
    _ requests: [StagedRequest], _ steps: [[Step]], isThere: (UInt64) throws -> Bool
  ) rethrows -> [Int] {
    var makers: [UInt64: Int] = [:]
    for (index, steps) in steps.enumerated() {
      for step in steps where step.operation == .insert && makers[step.row] == nil { makers[step.row] = index }
    }
    var needs: [[Int]] = requests.map { _ in [] }
    var hasLaterMaker = false
    for (index, steps) in steps.enumerated() {
      for target in steps.flatMap(\.targetsAfter) {
        if let maker = makers[target], maker > index, try !isThere(target) {
          needs[index].append(maker)
          hasLaterMaker = true
        }
      }
    }
    guard hasLaterMaker else { return Array(requests.indices) }
    addEarlier(steps, &needs)
    return visit(needs)
  }

  /// For each request the newest earlier one of each kind that it depends on; the others follow from that one.
  private static func addEarlier(_ steps: [[Step]], _ needs: inout [[Int]]) {
    var rows: [UInt64: Int] = [:]
    var made: [UInt64: Int] = [:]
    var unlinked: [UInt64: [Int]] = [:]
    var freed: [UInt64: Int] = [:]
    for (index, steps) in steps.enumerated() {
      for step in steps {
        if let earlier = rows[step.row] { needs[index].append(earlier) }
        needs[index] += step.targetsAfter.compactMap { made[$0] }
        if step.operation == .delete { needs[index] += unlinked[step.row] ?? [] }
        needs[index] += step.uniqueAfter.subtracting(step.uniqueBefore).compactMap { freed[$0] }
      }
      for step in steps {
        rows[step.row] = index
        if step.makesOrRelinks { made[step.row] = index }
        for parent in step.targetsBefore.subtracting(step.targetsAfter) { unlinked[parent, default: []].append(index) }
        for value in step.uniqueBefore.subtracting(step.uniqueAfter) { freed[value] = index }
      }
    }
  }

  /// A stack of its own: a chain of references may be as long as the upload.
  private static func visit(_ needs: [[Int]]) -> [Int] {
    var order: [Int] = []
    var visited = [Bool](repeating: false, count: needs.count)
    for start in needs.indices where !visited[start] {
      var stack: [(index: Int, needs: [Int])] = []
      visited[start] = true
      stack.append((start, needs[start].sorted(by: >)))
      while let last = stack.indices.last {
        if let need = stack[last].needs.popLast() {
          guard !visited[need] else { continue }
          visited[need] = true
          stack.append((need, needs[need].sorted(by: >)))
        } else {
          order.append(stack.removeLast().index)
        }
      }
    }
    return order
  }
}
