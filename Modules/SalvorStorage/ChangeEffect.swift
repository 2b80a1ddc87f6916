import SalvorModel

/// What one change does that others depend on (semantics 7, *Depends on*). The rule stands here once, for every store that
/// follows it by look-ups; the specification says the same of all requests at once.
///
/// A request depends directly on each earlier one that left a trace which a change of it needs, and on a later one that makes
/// a row which it references (a deferred foreign key allows the child first). So a store needs four look-ups: the requests
/// that left a trace of each kind.
///
/// - `Row`: names a row.
/// - `Unique`: names a unique constraint and the values of its columns, none of them NULL.
package struct ChangeEffect<Row: Hashable & Sendable, Unique: Hashable & Sendable>: Sendable {
  package enum Trace: Hashable, Sendable {
    /// The row was changed.
    case changed(Row)
    /// The row was made, or got another parent.
    case linked(Row)
    /// A row that referenced this one was deleted, or got another parent.
    case unlinked(Row)
    /// A row gave up this unique value.
    case freed(Unique)
  }

  package var row: Row
  package var operation: Operation
  /// The rows that its row referenced before, as the change saw it, and after.
  package var targetsBefore: Set<Row> = []
  package var targetsAfter: Set<Row> = []
  /// The unique values that its row held before: as the change saw it, and as the base beneath it has it now.
  package var uniqueBefore: Set<Unique> = []
  package var uniqueBeneath: Set<Unique> = []
  package var uniqueAfter: Set<Unique> = []
  /// An offered update of a row that is there: it changes no column that an earlier change does, and comes before these by effect.
  package var isAhead = false

  package init(row: Row, operation: Operation) {
    self.row = row
    self.operation = operation
  }

  /// What it leaves for later requests.
  package var traces: [Trace] {
    var traces = [Trace.changed(row)]
    if operation == .insert || (operation == .update && targetsBefore != targetsAfter) { traces.append(.linked(row)) }
    traces += targetsBefore.subtracting(targetsAfter).map { .unlinked($0) }
    traces += uniqueBefore.union(uniqueBeneath).subtracting(uniqueAfter).map { .freed($0) }
    return traces
  }

  /// It depends on earlier requests that left one of these.
  package var needs: [Trace] {
    var needs = isAhead ? [] : [Trace.changed(row)]
    needs += targetsAfter.map { .linked($0) }
    if operation == .delete { needs.append(.unlinked(row)) }
    needs += uniqueAfter.subtracting(uniqueBefore).map { .freed($0) }
    return needs
  }
}
