import SalvorModel
import SalvorStorage

/// A base that a download or an acknowledgement changed, and the commit that did it.
struct BaseChange: Sendable, Hashable {
  var row: RowName
  var version: Int64
  /// Not that it left the scope.
  var isDeleted: Bool
  /// It left what this device may see or has subscribed to.
  var isLeft = false
  /// A request of this device did it.
  var isOwn = false
  /// The server made no commit for it: the version is the one after the cursor, until the download ends.
  var isAssumed = false
  /// The row came whole since this device wrote it: by this version nobody is known to have changed it.
  var cameWhole = false
  /// An offer that was accepted did it: the lost commit that made the row so.
  var origin: LostVersion.Origin?
  /// It is of no history that the device knows: the version that was offered until a recovery gave up the requests. `version` is above all others then.
  var lost: LostVersion?
}
