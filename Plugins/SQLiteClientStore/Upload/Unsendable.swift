import SQLiteSupport
import SalvorModel
import SalvorStorage

/// Requests that cannot be said to the server, since it does not know their tables or columns yet, or since their tables
/// have to be compared first (`UnprovenTables`: a row may have been made while nobody looked): they wait as a whole, and what
/// depends on them waits, too. And offers that the server holds already.
struct Unsendable {
  let context: StoreContext

  /// In order. In a transaction; requests are sorted.
  func requests() throws -> [RequestRange] {
    let additions = context.additions
    let unproven = try UnprovenTables(context).changedHere()
    // A row of theirs may reference one that the server is told of after the comparison only.
    let referencing = UnprovenTables(context).referencing(unproven)
    var roots = try context.waitingOffers()
    guard !additions.isEmpty || !unproven.isEmpty else { return try waiting(roots) }
    var made: Set<RowRef> = []
    let index = try LogIndex(context)
    let numbers = Set(Array(additions.tables) + Array(additions.slots.keys))
      .union(unproven).union(referencing).map(String.init).joined(separator: ", ")
    try context.connection.query(
      "SELECT \(context.catalog.logColumns) FROM salvor_log WHERE t IN (\(numbers)) AND op IN \(StoreContext.changeOperations) ORDER BY seq"
    ) { row in
      let entry = try context.catalog.entry(from: row)
      var isUncertain = referencing.contains(entry.table) || unproven.contains(entry.table)
      if !referencing.contains(entry.table), isUncertain, let table = context.catalog.table(number: entry.table) {
        // One that begins with an insert is told to the server as it is.
        let key = entry.key(table)
        if entry.operation == .insert { made.insert(RowRef(table: entry.table, key: key)) }
        isUncertain = !made.contains(RowRef(table: entry.table, key: key))
      }
      if try isUncertain || isUnknown(entry, additions, index) {
        let request = try context.range(of: entry.seq)
        if roots.last != request { roots.append(request) }
      }
      return true
    }
    roots.sort { $0.first < $1.first }
    return roots.isEmpty ? [] : try DependenceLookup(context, index).dependents(of: roots)
  }

  /// Offers that wait, and what depends on them. Where nearly all that is here waits, only the rest is asked what it needs.
  private func waiting(_ offers: [RequestRange]) throws -> [RequestRange] {
    guard !offers.isEmpty else { return [] }
    guard let others = try context.requestsBesideWaitingOffers(fewerThan: offers.count) else {
      return try DependenceLookup(context, LogIndex(context)).dependents(of: offers)
    }
    guard !others.isEmpty else { return offers }
    let dependents = try DependenceLookup(context, LogIndex(context)).dependents(among: others, on: offers)
    return dependents.isEmpty ? offers : (offers + dependents).sorted { $0.first < $1.first }
  }

  private func isUnknown(_ entry: LogEntry, _ additions: LocalAdditions, _ index: LogIndex) throws -> Bool {
    if additions.tables.contains(entry.table) { return true }
    guard let slots = additions.slots[entry.table], let table = context.catalog.table(number: entry.table) else {
      return false
    }
    if entry.operation.isUpdate { return slots.contains { entry.mask[$0] } }
    guard entry.operation == .insert else { return false }
    // An insert without a value of its own there is the same to the server.
    let step = try index.timeline(table, entry.key(table)).steps.first { $0.seq == entry.seq }
    guard case .insert(let row)? = step?.change else { return false }
    return slots.contains { row[$0] != context.defaultValue(table, $0) }
  }
}
