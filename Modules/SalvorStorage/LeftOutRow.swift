import SalvorModel

/// A row of the server's that this device does not show, because the row that it references did not come: that one is larger than devices
/// take, or the server does not have it.
public struct LeftOutRow: Sendable, Hashable {
  /// The row that is left out.
  public var row: RowPlace
  /// The row that it references.
  public var parent: RowPlace

  /// Takes both as they are.
  public init(row: RowPlace, parent: RowPlace) {
    self.row = row
    self.parent = parent
  }
}

extension Sequence<LeftOutRow> {
  /// One notice for each table and parent: how many rows, and the first of them by key.
  public var notices: [String] {
    var order: [Place] = []
    var keys: [Place: [Key]] = [:]
    for entry in self {
      let place = Place(table: entry.row.table, parent: entry.parent)
      if keys[place] == nil { order.append(place) }
      keys[place, default: []].append(entry.row.key)
    }
    var notices = order.prefix(noticesMax).map { place -> String in
      let rows = keys[place] ?? []
      let names = rows.prefix(namedMax).map(text).joined(separator: ", ") + (rows.count > namedMax ? ", …" : "")
      let (were, they) =
        rows.count == 1
        ? ("The row \(names) of \(place.table) was", "It references")
        : ("\(rows.count) rows of \(place.table) (\(names)) were", "They reference")
      return
        "\(were) left out. \(they) the row \(text(place.parent.key)) of \(place.parent.table), which did not come: it is larger than devices take (server.limits.rowBytesMax or blobBytesMax), or the server does not have it (PRAGMA foreign_key_check there names such rows). Mend it at the server: a synchronization that brings it brings these rows, too."
    }
    let rest = order.dropFirst(noticesMax).reduce(0) { $0 + (keys[$1]?.count ?? 0) }
    if rest > 0 { notices.append("\(rest) more rows were left out, since rows that they reference did not come.") }
    return notices
  }
}

private struct Place: Hashable {
  var table: String
  var parent: RowPlace
}

private let noticesMax = 20
private let namedMax = 10
/// Of a key so many characters are told.
private let keyCharactersMax = 200

private func text(_ key: Key) -> String {
  "[\(key.map { "\($0)" }.joined(separator: ", ").prefix(keyCharactersMax))]"
}
