/// Why a request is displaced: what its entry of the archive says.
enum DisplacementReason: String {
  /// An update of a row that is not there.
  case rowGone = "row-gone"
  /// A unique value that another row has, or a row that the table does not take.
  case constraint
  case missingParent = "missing-parent"
  /// A delete of a row that others reference.
  case referenced
  /// It depends on one that is displaced.
  case blocked
  /// A younger change of its row was accepted meanwhile.
  case overtaken

  var message: String {
    switch self {
    case .rowGone: "The row that it changes is not there."
    case .constraint: "What the server has is in its way, or the table does not take the row."
    case .missingParent: "The row that it needs is not there."
    case .referenced:
      "It deletes a row that others reference. Delete those, or let them reference another row, and retry it."
    case .blocked: "It depends on a change that cannot stand beside what the server has."
    case .overtaken:
      "The server has accepted a newer change of the row since. errors retry brings this one back, errors delete takes it away."
    }
  }
}
