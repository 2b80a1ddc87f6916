/// How well a restore knows what it lost (`salvor_restore.exact`).
package enum RestoreCertainty: Int64 {
  /// The file beside the database remembers the last commit alone.
  case remembered = 0
  /// The database before was asked.
  case asked = 1
  /// It was, and the file beside it agrees that nothing was made after its last commit.
  case end = 2
}
