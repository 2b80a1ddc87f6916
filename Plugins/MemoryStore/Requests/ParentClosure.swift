import SalvorModel

/// An unchanged parent of changed rows, as an upload names it (semantics 4, *parent closure*).
struct ContextRow: Sendable, Hashable {
  /// Of the change that it is sent with.
  var counter: Int64
  var row: RowName
  /// The number of the commit that the device's rows of its group stood at when the upload was chosen.
  var made: Int64
}

/// The parents of every row that an upload changes, and theirs, up to the root, each once.
///
/// A changed row's parents are those that its base references, which the row is made from where the server has lost it,
/// and those that it references after each of its outstanding requests. A parent is named where it has a base, with the
/// parents of that base. Rows that the upload changes itself are none: they come with their values.
struct ParentClosure {
  private let content: ClientContent
  /// The rows that the upload changes, with the first counter of each.
  private var changed: [RowName: Int64] = [:]
  private(set) var rows: [ContextRow] = []
  private var found: Set<RowName> = []

  init(of upload: [Request], in content: ClientContent) {
    self.content = content
    for change in upload.flatMap(\.changes) where changed[change.row] == nil { changed[change.row] = change.counter }
    var view = content.bases
    for (name, counter) in changed.sorted(by: { $0.value < $1.value }) { addParents(of: view[name], name, counter) }
    for change in content.outstanding.flatMap(\.changes) {
      guard let table = content.schema.table(change.row.table) else { continue }
      view[change.row] = change.applied(to: view[change.row], of: table)
      if let counter = changed[change.row] { addParents(of: view[change.row], change.row, counter) }
    }
  }

  private mutating func addParents(of row: Row?, _ name: RowName, _ counter: Int64) {
    guard let row, let table = content.schema.table(name.table) else { return }
    for reference in table.references where !reference.soft {
      let value = table.value(reference.column, of: row)
      let parent = RowName(table: reference.table, key: [value])
      guard !value.isNull, changed[parent] == nil, let base = content.bases[parent],
        let group = content.schema.table(parent.table)?.group, found.insert(parent).inserted
      else { continue }
      rows.append(ContextRow(counter: counter, row: parent, made: content.groups[group]?.cursor?.number ?? 0))
      addParents(of: base, parent, counter)
    }
  }
}
