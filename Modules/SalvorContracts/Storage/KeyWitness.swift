import SalvorModel
import SalvorStorage

struct RowKey: Sendable, Hashable {
  var table: String
  var key: Key
}

/// Which rows each device of a history could ever know of: those that its principal saw on the server after some step, and
/// those that it had itself. Nobody is told the key of another one (semantics 7).
struct KeyWitness {
  private var known: [Set<RowKey>]
  /// Tables without a scope: a key of theirs is no secret, also of a row that came and went between two steps.
  private var everyones: Set<String> = []

  init(clients: Int) { known = Array(repeating: [], count: clients) }

  mutating func look(at bench: PairBench) async throws {
    for table in bench.schema.synchronized {
      if bench.schema.scopeAlternatives(of: table).isEmpty { everyones.insert(table.name) }
      for index in bench.clients.indices {
        let rows =
          try await bench.scoped(table, bench.clients[index].principal)
          + bench.clients[index].store.rows(of: table.name)
        for row in rows { known[index].insert(RowKey(table: table.name, key: table.key(of: row))) }
      }
    }
  }

  func expectKnown(_ told: [RowKey], by client: Int) throws {
    for name in told where !everyones.contains(name.table) {
      try expect(known[client].contains(name), "client \(client) was told of \(name), which it could never see")
    }
  }
}
