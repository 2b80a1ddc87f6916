/// What an entry of the change log says of its key. Every entry may be read as "look what is there now"; the operation
/// says whether old values stand with it.
package enum LogOperation {
  /// The sender of an upload, whom `salvor_gone` names, holds something else than the row: what it makes on its own version
  /// is in conflict. No old values.
  package static let differs: Int64 = -1
  /// Nothing was changed in the row; what its scope asks for was. To whom it came so, `salvor_came` says; it is news to
  /// nobody else. No old values.
  package static let scopeMoved: Int64 = -2
  /// The same, as logs of earlier versions say it: to whom it came is not known.
  package static let touch: Int64 = 0
  package static let insert: Int64 = 1
  /// The row is where it was in every scope. No need of old values.
  package static let update: Int64 = 2
  package static let delete: Int64 = 3
  /// An update that changed columns which decide the row's scope.
  package static let move: Int64 = 5
  /// The same, of a row whose key was taken by another one that replaced it.
  package static let replaced: Int64 = 6
}
