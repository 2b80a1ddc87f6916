import SalvorModel

/// A row of the server's that this device does not show.
public struct LeftOutRow: Sendable, Hashable {
  /// Why it is not here.
  public enum Cause: Sendable, Hashable {
    /// The row that it references did not come: that one is larger than devices take, or the server does not have it.
    case lacks(RowPlace)
    /// The server does not have the row that it references, and need not: this device's table alone has the foreign key, and the schema does
    /// not name it.
    case lacksByOwnKey(RowPlace)
    /// This device's table takes it and another row of the server's for one: a unique index of its own compares otherwise than the server's.
    /// The other row, where it is known, and the constraint in SQLite's words.
    case collides(with: RowPlace?, constraint: String)
    /// This device's table does not take it: a CHECK, NOT NULL, STRICT or a trigger that raises. The constraint in SQLite's words, and the
    /// application's triggers that may have refused it.
    case refused(constraint: String, triggers: [String])
  }

  /// The row that is left out.
  public var row: RowPlace
  /// Why.
  public var cause: Cause

  /// Takes both as they are.
  public init(row: RowPlace, cause: Cause) {
    self.row = row
    self.cause = cause
  }
}

extension Sequence<LeftOutRow> {
  /// One notice for each table and cause: how many rows, and the first of them by key.
  public var notices: [String] {
    var order: [Place] = []
    var keys: [Place: [Key]] = [:]
    for entry in self {
      let place = Place(table: entry.row.table, cause: entry.cause)
      if keys[place] == nil { order.append(place) }
      keys[place, default: []].append(entry.row.key)
    }
    var notices = order.prefix(noticesMax).map { place -> String in
      let rows = keys[place] ?? []
      let names = rows.prefix(namedMax).map(text).joined(separator: ", ") + (rows.count > namedMax ? ", …" : "")
      let isOne = rows.count == 1
      let which =
        isOne ? "The row \(names) of \(place.table) was" : "\(rows.count) rows of \(place.table) (\(names)) were"
      return "\(which) left out. \(place.cause.text(isOne: isOne))"
    }
    let rest = order.dropFirst(noticesMax).reduce(0) { $0 + (keys[$1]?.count ?? 0) }
    if rest > 0 { notices.append("\(rest) more rows were left out for such reasons.") }
    return notices
  }
}

extension Sequence<LeftOutRow> {
  /// `notices` of the rows of each table.
  public var noticesByTable: [String: [String]] { Dictionary(grouping: self, by: \.row.table).mapValues(\.notices) }
}

extension LeftOutRow.Cause {
  fileprivate func text(isOne: Bool) -> String {
    switch self {
    case .lacks(let parent):
      return
        "\(isOne ? "It references" : "They reference") the row \(SalvorStorage.text(parent.key)) of \(parent.table), which did not come: it was left out itself, it is larger than devices take (server.limits.rowBytesMax or blobBytesMax), or the server does not have it (PRAGMA foreign_key_check there names such rows). A synchronization that brings it brings these rows, too."
    case .lacksByOwnKey(let parent):
      return
        "\(isOne ? "It references" : "They reference") the row \(SalvorStorage.text(parent.key)) of \(parent.table), which is not here, and this device's table has a foreign key for it that the schema does not name: the server and other devices have \(isOne ? "it" : "them"). Declare the reference in the schema (references), or make the table here without it (between salvor capture pause and resume); salvor verify --repair brings \(isOne ? "it" : "them") back then."
    case .collides(let other, let constraint):
      let row = other.map { "the row \(SalvorStorage.text($0.key)) of \($0.table)" } ?? "another row"
      return
        "This device's table takes \(isOne ? "it" : "them") and \(row) for one (\(constraint)), and the server does not: a unique index of this device compares otherwise, as with COLLATE NOCASE. Give one of them another value, at the server or here, or make the index here as the server's is (between salvor capture pause and resume). The next synchronization that changes rows of the table looks again; salvor verify --repair does so at once."
    case .refused(let constraint, let triggers):
      let trigger =
        triggers.isEmpty
        ? ""
        : " Where a trigger of the application's refused \(isOne ? "it" : "them") (\(triggers.joined(separator: ", "))), drop it or make it anew, or say applicationTriggers: \"off\" for the table."
      return
        "This device's table does not take \(isOne ? "it" : "them"): \(constraint). Mend \(isOne ? "the row" : "the rows") at the server; or, where the constraint is this device's own, make the table here without it (between salvor capture pause and resume).\(trigger) The next synchronization brings \(isOne ? "the row" : "the rows") then; salvor verify --repair tries at once."
    }
  }
}

private struct Place: Hashable {
  var table: String
  var cause: LeftOutRow.Cause
}

private let noticesMax = 20
private let namedMax = 10
/// Of a key so many characters are told.
private let keyCharactersMax = 200

private func text(_ key: Key) -> String {
  "[\(key.map { "\($0)" }.joined(separator: ", ").prefix(keyCharactersMax))]"
}
