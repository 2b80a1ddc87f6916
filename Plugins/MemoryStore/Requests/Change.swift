import SalvorModel
import SalvorStorage
import SalvorWire

/// One captured insert, update or delete of one row, with what it saw and with its full new values.
struct Change: Sendable, Hashable {
  var counter: Int64
  /// The number of the commit that the device's rows stood at when the change was made.
  var made: Int64
  var row: RowName
  var operation: Operation
  /// Insert: every travelling column with its new value. Update: the changed columns with both. Delete: on a device the
  /// whole row with its old values; as uploaded none.
  var columns: [ChangedColumn]
  /// It brings back what the server acknowledged and lost (semantics 10).
  var offer: Offer?
  /// Of a lost row that a request makes again (`Offer.written`): the columns that the request changes, as the server had acknowledged them.
  var acknowledged: [NamedValue] = []

  /// Of an offer: the lost commit that made the row so.
  var origin: LostVersion.Origin? {
    guard let offer, offer.written.isEmpty else { return nil }
    let original = offer.version.original
    return LostVersion.Origin(incarnation: original.incarnation, number: original.number)
  }

  func column(_ name: String) -> ChangedColumn? { columns.first { $0.name == name } }

  /// The row after the change, or nil where there is none then: it was deleted, or an update found no row.
  func applied(to before: Row?, of table: Table) -> Row? {
    var after: Row
    switch operation {
    case .delete: return nil
    case .update:
      guard let before else { return nil }
      after = before
    case .insert: after = before ?? table.columns.map { $0.defaultValue ?? .null }
    }
    for column in columns { if let place = table.columnIndex(column.name) { after[place] = column.new } }
    return after
  }

  /// The row after the change, which is sent again. Of an insert, NULL and the defaults do not replace what the row has
  /// (semantics 7).
  func made(on before: Row?, of table: Table) -> Row? {
    guard operation == .insert, let before else { return applied(to: before, of: table) }
    var set = self
    set.columns = columns.filter { column in table.columns.first { $0.name == column.name }?.isSet(column.new) ?? true }
    return set.applied(to: before, of: table)
  }

  /// Both say something of the same part of the row: one column, or whether it is there.
  func meets(_ other: Change) -> Bool {
    guard operation == .update, other.operation == .update else { return true }
    return columns.contains { other.column($0.name) != nil }
  }

  /// The row as the change saw it, as far as it says: `row` with the old values it carries.
  func seen(in row: Row?, of table: Table) -> Row? {
    guard operation != .insert else { return nil }
    guard var seen = row ?? (operation == .delete && !columns.isEmpty ? table.columns.map { _ in .null } : nil) else {
      return nil
    }
    for column in columns { if let place = table.columnIndex(column.name) { seen[place] = column.old } }
    return seen
  }
}

extension Change {
  /// It brings a lost row back, with what its device has written since or without. A person's update or delete does not.
  var givesBack: Bool { offer.map { !$0.isVersion && ($0.written.isEmpty || operation == .insert) } ?? false }
  /// Of an ordinary update: the lost version that it was made upon (decision 236).
  var madeUpon: LostVersion? { offer.flatMap { operation == .update && !$0.written.isEmpty ? $0.version : nil } }
}

struct ChangedColumn: Sendable, Hashable {
  var name: String
  var old: Value
  var new: Value
}

/// The unit that the server accepts or refuses.
struct Request: Sendable, Hashable {
  var stamp: RequestStamp
  var changes: [Change]
  var tag: String?
  /// On a device; as uploaded always `queued`.
  var state = RequestState.queued
  var refusal: Refused?
  /// On a device, of a displaced request: the state to which it returns.
  var stateBefore: RequestState?
  /// On a device, of a displaced request: a younger change of its row was accepted since, and it returns when a person asks.
  var isOvertaken = false
  /// On a device: the IDs it had before, oldest first.
  var history: [RequestID] = []
  /// What it was under its stamp before columns or tables were dropped, oldest first.
  var former: [FormerContent] = []
  /// On a device: when it was captured, and how often it was refused.
  var since: Int64?
  var attempts = 0
  var lastAttempt: Int64?
  /// On a device, of an offer: the server holds it.
  var isWaiting = false
  /// On a device, of a loss in the archive: it may be offered under another setting.
  var withheld: Withheld?

  struct Withheld: Sendable, Hashable {
    var version: LostVersion
    /// This device wrote the row by a lost commit.
    var isOwn: Bool
    var isForReview: Bool
    /// The row as it was; nil: it was deleted.
    var was: [NamedValue]?
  }

  struct Refused: Sendable, Hashable {
    var reason: String
    /// Nil: put aside by a recovery, not refused.
    var status: Int?
    var message: String
    var blockedBy: RequestID?
  }

  var firstCounter: Int64 { changes[0].counter }
  var lastCounter: Int64 { changes[changes.count - 1].counter }
  var id: RequestID { RequestID(stamp: stamp, counter: firstCounter) }
  var rows: Set<RowName> { Set(changes.map(\.row)) }
  var isInError: Bool { state == .refused || state == .blocked }
  /// It waits at the server.
  var isHeldByServer: Bool { isWaiting && state != .displaced && state != .kept }
  /// It is nothing but an offer: nobody wrote it here since.
  var isPlainOffer: Bool { changes.contains { $0.offer?.written.isEmpty == true } }

  /// It was made after the other one, and both say something of the same part of a row. An offer is older than any change of the queue.
  func overtakes(_ older: Request) -> Bool {
    !isPlainOffer
      && older.changes.contains { old in
        changes.contains { $0.counter > old.counter && $0.row == old.row && $0.meets(old) }
      }
  }

  /// What it does, whatever it saw: a request ID that two clones of a device gave away names two different effects.
  var effect: [Effect] {
    changes.map { change in
      Effect(
        row: change.row, operation: change.operation,
        values: Dictionary(change.columns.map { ($0.name, $0.new) }) { first, _ in first })
    }
  }

  /// It has another ID from here on, since the server has settled the one that it had.
  mutating func restamp(_ stamp: RequestStamp) {
    history.append(id)
    former = []
    self.stamp = stamp
  }

  /// What it does, as a server remembers it (`FormerContent`).
  func content(_ schema: Schema) -> UInt32 {
    RequestContent(
      changes.map { change in
        let columns = change.operation == .delete ? [] : change.columns
        return UploadedChange(
          counter: change.counter, made: change.made, table: change.row.table, key: change.row.key,
          operation: change.operation, columns: columns.map { UploadedColumn($0.name, new: $0.new) }
        ).content(schema.table(change.row.table) ?? Table(change.row.table, primaryKey: [], columns: []))
      }
    ).bits
  }

  struct Effect: Sendable, Hashable {
    var row: RowName
    var operation: Operation
    var values: [String: Value]
  }
}
