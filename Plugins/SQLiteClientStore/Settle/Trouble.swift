import SalvorModel

/// Something that keeps a row in work from standing as it is to be.
struct Trouble {
  /// The change to blame; nil: none is.
  var culprit: Int64?
  var reason: DisplacementReason
  /// What a person is told; nil: the reason says it.
  var message: String?
}

/// A change to blame.
struct Culprit {
  var seq: Int64
  var reason: DisplacementReason
  var message: String?
}
