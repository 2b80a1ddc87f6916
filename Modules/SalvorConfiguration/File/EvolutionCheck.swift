import SalvorModel
import SalvorModuleKit

/// Checks the rules that lead on from earlier versions of a schema (`renamedFrom`, `dropped`): a former name is no present
/// one, and leads to one thing only.
extension SchemaCheck {
  mutating func checkEvolution() {
    let tables = schema.tables.map {
      Evolving(name: $0.name, renamedFrom: $0.renamedFrom, keys: place($0, "renamedFrom"))
    }
    check(tables, kind: "table", dropped: schema.dropped, at: ["dropped"])
    for table in schema.tables {
      let columns = table.columns.map {
        Evolving(name: $0.name, renamedFrom: $0.renamedFrom, keys: place(table, "columns", $0.name, "renamedFrom"))
      }
      check(columns, kind: "column", dropped: table.dropped, at: place(table, "dropped"))
      for name in table.primaryKey where table.dropped.contains(name) {
        report(place(table, "dropped"), "names the column \"\(name)\" of the primary key, which stays what it is")
      }
      if table.maintained == .client, !table.dropped.isEmpty {
        warn(place(table, "dropped"), "has no effect: the columns of a client-only table are the application's own")
      }
    }
  }

  private struct Evolving {
    var name: String
    var renamedFrom: [String]
    var keys: [String]
  }

  private mutating func check(_ things: [Evolving], kind: String, dropped: [String], at keys: [String]) {
    // SQLite does not tell A from a.
    let present = Dictionary(things.map { ($0.name.folded, $0.name) }) { first, _ in first }
    var origins: [String: String] = [:]
    for thing in things {
      for name in thing.renamedFrom {
        let folded = name.folded
        if name.isEmpty {
          report(thing.keys, "holds an empty name")
        } else if let now = present[folded] {
          report(
            thing.keys,
            now == thing.name
              ? "names the \(kind) itself; give the name that it had before"
              : "names the \(kind) \"\(now)\", which is there; a former name leads to one \(kind) only")
        } else if let other = origins[folded] {
          report(
            thing.keys,
            other == thing.name
              ? "holds \"\(name)\" twice; keep one of them"
              : "holds \"\(name)\", which \"\(other)\" was renamed from, too; a former name leads to one \(kind) only")
        } else {
          origins[folded] = thing.name
        }
      }
    }
    var seen: Set<String> = []
    for name in dropped {
      let folded = name.folded
      if name.isEmpty {
        report(keys, "holds an empty name")
      } else if let now = present[folded] {
        report(keys, "names the \(kind) \"\(now)\", which is there; take it out of one of the two places")
      } else if let now = origins[folded] {
        report(keys, "names \"\(name)\", which \"\(now)\" was renamed from; it cannot be gone, too")
      } else if !seen.insert(folded).inserted {
        report(keys, "holds \"\(name)\" twice; keep one of them")
      }
    }
  }
}
