import SalvorModel
import SalvorStorage

/// The declared rules of a schema: what the server has and remembers goes on under the new names. The rows of a dropped
/// table stay, and are synchronized no more.
extension ServerState {
  /// After it `schema` has the names and columns of `after`, as far as it had them.
  mutating func follow(_ after: Schema) {
    let names = DeclaredNames(from: schema, to: after)
    guard !names.isEmpty else { return }
    func goesOn(_ name: RowName) -> Bool { !names.droppedTables.contains(name.table) }
    names.apply(to: &tables, of: schema, keepsTables: true)
    for place in commits.indices {
      if var then = commits[place].tables {
        names.apply(to: &then, of: schema, keepsTables: true)
        commits[place].tables = then
      }
      commits[place].changed = Set(commits[place].changed.filter(goesOn).map(names.row))
      commits[place].healed = Dictionary(
        commits[place].healed.filter { goesOn($0.key) }.map { row, columns in
          (names.row(row), Set(columns.map { names.column($0, of: row.table) }))
        }
      ) { first, _ in first }
    }
    healed = Dictionary(
      healed.filter { goesOn($0.key) }.map { row, columns in
        (names.row(row), columns.mapKeys { names.column($0, of: row.table) })
      }
    ) { first, _ in first }
    claimedDeletes = Dictionary(claimedDeletes.filter { goesOn($0.key) }.map { (names.row($0), $1) }) { first, _ in
      first
    }
    purged = Set(purged.filter(goesOn).map(names.row))
    unnumbered = Set(unnumbered.filter(goesOn).map(names.row))
    settled = Dictionary(
      settled.map { (Settled(id: $0.id, effect: $0.effect.map { renamed($0, names) }), $1) },
      uniquingKeysWith: { first, _ in first })
    conflictVersions = conflictVersions.map { version in
      var version = version
      for place in version.client.columns.indices {
        version.client.columns[place].name = names.column(version.client.columns[place].name, of: version.table)
      }
      version.server.row = version.server.row?.map {
        NamedValue(names.column($0.name, of: version.table), $0.value)
      }
      if let row = version.settlement?.row {
        version.settlement?.row = row.map { NamedValue(names.column($0.name, of: version.table), $0.value) }
      }
      version.table = names.table(version.table)
      return version
    }
    waiting = waiting.map { held in
      var held = held
      held.request = names.renamed(held.request)
      held.parent = held.parent.map(names.row)
      return held
    }
    // A half-sent upload has the names of before: its device sends it anew.
    remotes = remotes.mapValues { remote in
      var remote = remote
      remote.stagedSequence = nil
      remote.staged = [:]
      return remote
    }
    names.apply(to: &schema)
  }

  private func renamed(_ effect: Request.Effect, _ names: DeclaredNames) -> Request.Effect {
    var renamed = effect
    renamed.row = names.row(effect.row)
    renamed.values = Dictionary(
      effect.values.map { (names.column($0.key, of: effect.row.table), $0.value) },
      uniquingKeysWith: { first, _ in first })
    return renamed
  }
}
