/// Which lost rows a device offers to a restored server (semantics 10).
public enum HealMode: String, Sendable, CaseIterable {
  /// Rows that this remote wrote at a lost commit.
  case own
  /// Every row that it holds of a lost commit.
  case all
  /// As `own`; but the server takes each offer only when its operator has accepted it.
  case review
  /// Offers nothing.
  case off

  /// Of both, the one that gives back less.
  public func stricter(or other: HealMode) -> HealMode { strictness >= other.strictness ? self : other }

  private var strictness: Int {
    switch self {
    case .all: 0
    case .own: 1
    case .review: 2
    case .off: 3
    }
  }
}

/// Two lost incarnations of which one is known to have lived before the other.
public struct LostNeighbours: Sendable, Hashable {
  /// The one that lived first.
  public var earlier: IncarnationID
  /// The one that lived after it. Others may have lived between the two.
  public var later: IncarnationID
  /// From this number on the earlier one's commits are of another history: a restore took them before the later one made its own. Who made the later
  /// commits had seen those below it. `allApart`: all are; nil: none, as far as is known.
  public var apartFrom: Int64?

  /// As `apartFrom`: the later one's history has no commit of the earlier one.
  public static let allApart: Int64 = 1

  /// Says that `earlier` lived before `later`.
  public init(_ earlier: IncarnationID, before later: IncarnationID, apartFrom: Int64? = nil) {
    self.earlier = earlier
    self.later = later
    self.apartFrom = apartFrom
  }

  /// Adds what somebody tells.
  public func add(to pairs: inout [LostNeighbours]) {
    guard let known = pairs.firstIndex(where: { $0.earlier == earlier && $0.later == later }) else {
      return pairs.append(self)
    }
    pairs[known].apartFrom = Self.apartFrom(pairs[known].apartFrom, apartFrom)
  }

  /// What two tell of one pair: the higher number, which somebody has seen in a list of both. Where there is none, two that stand in one history
  /// once are of one.
  public static func apartFrom(_ one: Int64?, _ two: Int64?) -> Int64? {
    let number = max(one ?? 0, two ?? 0)
    return number > allApart || (one != nil && two != nil) ? number : nil
  }

  /// What a list says that is in the order in which they lived.
  public static func chain(_ incarnations: [IncarnationID]) -> [LostNeighbours] {
    zip(incarnations, incarnations.dropFirst()).map { LostNeighbours($0, before: $1) }
  }
}

/// Where a version of a row was acknowledged that a server has lost since: a commit of the incarnation `incarnation` that
/// the server's history does not have any more.
///
/// Of one row's offered versions the newest counts: of two incarnations the one that lived later, which devices that met both
/// tell (`UploadChunkWriter.lost`), in one the higher number.
public struct LostVersion: Sendable, Hashable {
  /// The start of the server that made the lost commit.
  public var incarnation: IncarnationID
  /// Of the lost commit.
  public var number: Int64
  /// The number of the newest commit that the device and the server had both made when they parted; 0: none.
  public var parting: Int64
  /// The row was as it is by a commit that was lost before: its device has offered it since, and `number` is the commit that this made. Nil:
  /// it was made by `number`, or nobody knows.
  public var origin: Origin?

  /// A commit that was lost before.
  public struct Origin: Sendable, Hashable {
    /// The start of the server that made it.
    public var incarnation: IncarnationID
    /// Its number.
    public var number: Int64
    /// All parts given.
    public init(incarnation: IncarnationID, number: Int64) {
      self.incarnation = incarnation
      self.number = number
    }

    /// Both parts with a space between them; nil: it is something else.
    public init?(text: String) {
      let parts = text.split(separator: " ")
      guard parts.count == 2, let incarnation = IncarnationID(parts[0]), let number = Int64(parts[1]) else {
        return nil
      }
      self.init(incarnation: incarnation, number: number)
    }

    /// Both parts with a space between them.
    public var text: String { "\(incarnation.text) \(number)" }
  }

  /// All parts given.
  public init(incarnation: IncarnationID, number: Int64, parting: Int64, origin: Origin? = nil) {
    self.incarnation = incarnation
    self.number = number
    self.parting = parting
    self.origin = origin
  }

  /// The same by the commit that made the row what it is.
  public var original: LostVersion {
    origin.map { LostVersion(incarnation: $0.incarnation, number: $0.number, parting: parting) } ?? self
  }
}

/// What marks a change of an upload as an offer: it brings back what a server acknowledged and lost (semantics 10).
public struct Offer: Sendable, Hashable {
  /// The lost commit at which the server acknowledged what the change brings back.
  public var version: LostVersion
  /// Columns of the change that the device wrote after the parting: of these it is an ordinary change. Of an insert, which makes a lost
  /// row again for the sake of a change that waits; and of an update or a delete, which then brings nothing back: all of it is a person's, made
  /// upon that version (decisions 184 and 236).
  public var written: [String]
  /// The server takes it only when its operator has accepted it: the device's policy says so, or it is one of a mass of
  /// deletes that the restore may have been meant to undo.
  public var isForReview: Bool
  /// It was kept beside the row as a conflict version, and is to be one again; it is never written into the row.
  public var isVersion: Bool

  /// Nothing written since, for no review and for the row itself, where nothing else is given.
  public init(_ version: LostVersion, written: [String] = [], isForReview: Bool = false, isVersion: Bool = false) {
    self.version = version
    self.written = written
    self.isForReview = isForReview
    self.isVersion = isVersion
  }
}
