import SalvorModel

/// Something that keeps a row in work from standing as it is to be.
struct Trouble {
  /// The change to blame; nil: none is.
  var culprit: Int64?
  var reason: DisplacementReason
}

/// A change to blame.
struct Culprit {
  var seq: Int64
  var reason: DisplacementReason
}
