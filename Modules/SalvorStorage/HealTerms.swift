import SalvorModel

/// What a server says of healing with each answer (semantics 10).
public struct HealTerms: Sendable, Hashable {
  /// The start of the server that answers.
  public var incarnation: IncarnationID
  /// The number of the commit of the oldest copy of the database that may be put back; nil: none is listed.
  public var floor: Int64?
  /// How many offers of this remote the server holds until a parent or its operator's consent comes.
  public var waiting: Int64
  /// Grows with each settling of offers that this database has held, of any remote: where fewer wait than a device knows of, it
  /// says whether that is news.
  public var settlings: Int64
  /// How many offered deletes of this remote the server holds, which `waiting` does not count; nil: it does not say.
  public var deletes: Int64?
  /// Offers that the server holds no longer, because the device has taken them back.
  public var withdrawn: [RequestID] = []
  /// By default no copy is listed, and nothing waits or ever did.
  public init(
    incarnation: IncarnationID, floor: Int64? = nil, waiting: Int64 = 0, settlings: Int64 = 0, deletes: Int64? = nil
  ) {
    self.incarnation = incarnation
    self.floor = floor
    self.waiting = waiting
    self.settlings = settlings
    self.deletes = deletes
  }
}
