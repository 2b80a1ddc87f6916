import SQLiteSupport
import SalvorModel
import SalvorStorage

/// What the blobs that one upload refers to may have together: a server holds no more at a time. Reads the values of the
/// requests up to the first that does not fit.
struct BlobBudget {
  private let context: StoreContext
  /// A smaller blob stands in the payload.
  private let bytesMin: Int
  private let bytesMax: Int64

  init(_ context: StoreContext, bytesMin: Int, bytesMax: Int64) {
    self.context = context
    self.bytesMin = bytesMin
    self.bytesMax = bytesMax
  }

  /// Those of `wanted`, which are in order, that an upload holds, with those that they depend on, in order. A request whose
  /// own unit is beyond the budget is passed over; where nothing else is left, the smallest such unit is alone.
  func fitting(
    _ wanted: [RequestRange], _ dependence: DependenceLookup, _ index: LogIndex
  ) throws -> [RequestRange] {
    var chosen: [Int64: RequestRange] = [:]
    var known: [Int64: Int64] = [:]
    var bytes: Int64 = 0
    var alone: [RequestRange] = []
    for request in wanted where chosen[request.first] == nil {
      let unit = try self.unit(of: request, dependence, without: chosen)
      var more: Int64 = 0
      for member in unit {
        let own = try known[member.first] ?? self.bytes(of: member, index)
        known[member.first] = own
        more += own
      }
      if more == 0 || bytes + more <= bytesMax {
        for member in unit { chosen[member.first] = member }
        bytes += more
      } else if bytes > 0 {
        break
      } else if alone.isEmpty || unit.count < alone.count {
        alone = unit
      }
    }
    return (chosen.isEmpty ? alone : Array(chosen.values)).sorted { $0.first < $1.first }
  }

  /// The request and all that it depends on, but for what is chosen.
  private func unit(
    of request: RequestRange, _ dependence: DependenceLookup, without chosen: [Int64: RequestRange]
  ) throws -> [RequestRange] {
    var found = [request.first: request]
    var rest = [request]
    while let next = rest.popLast() {
      for need in try dependence.directNeeds(of: next) where chosen[need.first] == nil && found[need.first] == nil {
        found[need.first] = need
        rest.append(need)
      }
    }
    return Array(found.values)
  }

  private func bytes(of request: RequestRange, _ index: LogIndex) throws -> Int64 {
    guard let request = try context.outstanding(request, index: index) else { return 0 }
    return request.changes.reduce(0) { sum, change in
      let keys = change.table.keyCount
      switch change.step.change {
      case .insert(let row): return row.dropFirst(keys).reduce(sum) { $0 + bytes(of: $1) }
      case .update(let news):
        return news.reduce(sum) { $0 + bytes(of: $1.value) + bytes(of: change.step.before?[$1.key] ?? .null) }
      case .delete: return sum
      }
    }
  }

  private func bytes(of value: Value) -> Int64 {
    guard case .blob(let bytes) = value, bytes.count >= bytesMin else { return 0 }
    return Int64(bytes.count)
  }
}
