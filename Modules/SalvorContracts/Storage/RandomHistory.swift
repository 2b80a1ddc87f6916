import SalvorModel
import SalvorStorage

/// One step of a random history.
enum HistoryStep: Sendable, CustomStringConvertible {
  case clientWrite(Int, [ApplicationWrite])
  case serverWrite([ApplicationWrite])
  case sync(Int, groups: Set<String>?, cut: SyncCut)
  case keeping(Int, KeepingStep)
  case restartClient(Int)
  case restartServer
  /// Somebody chooses what a device gets.
  case choose(Int, DeviceSettings)
  /// Somebody resolves an open conflict, if there is one.
  case resolve(Int, ConflictSide)

  var description: String {
    switch self {
    case .clientWrite(let client, let writes): "client \(client) writes \(writes)"
    case .serverWrite(let writes): "the server's tables are written: \(writes)"
    case .sync(let client, let groups, let cut):
      "client \(client) syncs \(groups.map { "\($0.sorted())" } ?? "all"), cut: \(cut)"
    case .keeping(let client, let step): "client \(client) \(step)"
    case .restartClient(let client): "client \(client) restarts"
    case .restartServer: "the server restarts"
    case .choose(let client, let settings):
      "client \(client) subscribes to \(settings.sortedSubscriptions.map { "\($0.target) \($0.parameterText)" }), once to \(settings.subscribed.sorted()), settings \(settings.settings)"
    case .resolve(let choice, let keep): "open conflict \(choice) is resolved: \(keep.rawValue)"
    }
  }
}

/// Draws the steps of a history from a seed and from the rows that there are. Few keys and few values, so that things
/// collide.
struct RandomHistory: Sendable {
  let schema: Schema
  let clients: Int
  var random: SeededGenerator
  var resolves = false
  /// Devices change what they subscribe to.
  var subscribes = false
  /// Applications write with deferred foreign keys.
  var defers = false

  mutating func step(rows: (_ client: Int?) async throws -> [String: [Row]]) async throws -> HistoryStep {
    if resolves, random.chance(10) {
      return .resolve(random.below(100), random.pick([.client, .client, .server]))
    }
    let client = random.below(clients)
    if subscribes, random.chance(15) { return .choose(client, settings()) }
    switch random.below(100) {
    case 0..<37: return .clientWrite(client, try await writes(rows(client), isServer: false))
    case 37..<45: return .keeping(client, KeepingStep(&random))
    case 45..<62: return .serverWrite(try await writes(rows(nil), isServer: true))
    case 62..<65: return .restartClient(client)
    case 65..<67: return .restartServer
    default: return .sync(client, groups: groups(), cut: cut())
    }
  }

  /// None to three subscriptions, of tables and groups, with and without values.
  private mutating func settings() -> DeviceSettings {
    let owners = schema.synchronized.filter { table in
      !table.scopeParameters.isEmpty
    }
    var settings = DeviceSettings()
    if random.chance(50) { settings.settings["home"] = random.pick(["EU", "US", "none"]) }
    guard random.chance(90), !owners.isEmpty else { return settings }
    for _ in 0..<random.below(4) {
      let owner = random.pick(owners)
      var subscription = Subscription(target: random.chance(50) ? owner.name : owner.group)
      for scope in owner.scopeColumns {
        guard case .parameter(let name) = scope.source, random.chance(80),
          let column = owner.columns.first(where: { $0.name == scope.column })
        else { continue }
        if column.type == .text {
          let fixed = Subscription.Choice.value(random.pick(["EU", "US", "none"]))
          subscription.parameters[name] = random.chance(20) ? .setting("home") : fixed
        } else {
          subscription.parameters[name] = .value(.integer(Int64(random.below(3))))
        }
      }
      settings.subscriptions.insert(subscription)
    }
    if random.chance(30) { settings.subscribed.insert(random.pick(owners).name) }
    settings.subscribed.formUnion(settings.subscriptions.map(\.target))
    return settings
  }

  private mutating func groups() -> Set<String>? {
    guard schema.groups.count > 1, random.chance(20) else { return nil }
    return [random.pick(schema.synchronized).group]
  }

  private mutating func cut() -> SyncCut {
    switch random.below(20) {
    case 0: .beforeUpload
    case 1: .duringUpload
    case 2, 3: .acknowledgementLost
    case 4, 5: .afterSettle
    case 6: .afterPages(1)
    case 7: .afterPages(2)
    case 8: .beforeApply
    default: .none
    }
  }

  private mutating func writes(_ rows: [String: [Row]], isServer: Bool) -> [ApplicationWrite] {
    if defers, !isServer, random.chance(60) { return deferredWrites(rows) }
    var rows = rows
    let count = 1 + random.below(3)
    var writes: [ApplicationWrite] = []
    for _ in 0..<count {
      // Triggers cannot tell a child's delete and then its parent's from a cascade: one delete in a transaction.
      let hasDelete = writes.contains { if case .delete = $0 { true } else { false } }
      var table = random.pick(schema.tables)
      if isServer && table.maintained == .client { table = random.pick(schema.synchronized) }
      if !isServer && table.maintained == .server && random.chance(80) { table = random.pick(schema.tables) }
      writes.append(write(table, &rows, mayDelete: !hasDelete, isServer: isServer))
    }
    guard !isServer, count > 1, random.chance(40) else { return writes }
    return [.beginRequest(tag: random.chance(50) ? "tag" : nil)] + writes + [.endRequest]
  }

  /// `rows` follows roughly, so that later statements of one transaction meet earlier ones.
  private mutating func write(
    _ table: Table, _ rows: inout [String: [Row]], mayDelete: Bool, isServer: Bool
  ) -> ApplicationWrite {
    let present = rows[table.name] ?? []
    let kind = random.below(100)
    if present.isEmpty || kind < 35 {
      let row = table.columns.map { value(of: $0, in: table, rows) }
      rows[table.name, default: []].append(row)
      let flags = [table.flags.dirty, table.flags.deleted]
      return .insert(
        table: table.name,
        values: zip(table.columns, row).filter { !flags.contains($0.0.name) }.map { NamedValue($0.name, $1) })
    }
    let row = random.pick(present)
    let key = table.key(of: row)
    if !isServer, let flag = flag(of: table, row) { return .update(table: table.name, key: key, values: [flag]) }
    if kind < 55 && mayDelete {
      rows[table.name]?.removeAll { $0 == row }
      return .delete(table: table.name, key: key)
    }
    var columns = table.travelling.filter { !table.primaryKey.contains($0.name) }
    if columns.isEmpty || kind >= 95 { columns = table.travelling.filter { table.primaryKey.contains($0.name) } }
    let first = random.pick(columns)
    var values = [NamedValue(first.name, value(of: first, in: table, rows))]
    let second = random.pick(columns)
    if second.name != first.name && random.chance(30) {
      values.append(NamedValue(second.name, value(of: second, in: table, rows)))
    }
    return .update(table: table.name, key: key, values: values)
  }

  /// A change of the application's own flags, more often back than not. Tables without any draw nothing for it.
  private mutating func flag(of table: Table, _ row: Row) -> NamedValue? {
    guard table.flags != FlagColumns(), random.chance(40) else { return nil }
    if let deleted = table.flags.deleted, random.chance(85) {
      return NamedValue(deleted, .integer(table.isMarked(row) && random.chance(70) ? 0 : 1))
    }
    return table.flags.dirty.map { NamedValue($0, .integer(Int64(random.below(2)))) }
  }

  private mutating func value(of column: Column, in table: Table, _ rows: [String: [Row]]) -> Value {
    if let reference = table.references.first(where: { $0.column == column.name }) {
      if column.nullable && random.chance(25) { return .null }
      if let parent = schema.table(reference.table), let present = rows[parent.name], !present.isEmpty,
        random.chance(90)
      {
        return parent.key(of: random.pick(present))[0]
      }
    }
    if column.nullable && random.chance(20) { return .null }
    if table.scopeColumns.contains(where: { $0.column == column.name && $0.source.isParameter }) {
      return column.type == .text ? random.pick(["EU", "US"]) : .integer(Int64(random.below(3)))
    }
    switch column.type {
    case .text, .timestamp, .json: return .text("\(random.pick(["a", "b", "c", "d", "e"]))")
    case .integer: return .integer(Int64(table.check.isEmpty ? random.below(6) : random.pick([1, 2, 3, 4, 99, 100])))
    case .boolean: return .integer(Int64(random.below(2)))
    case .real: return .real(Double(random.below(4)) / 2)
    case .blob: return .blob([UInt8(random.below(3))])
    }
  }
}
