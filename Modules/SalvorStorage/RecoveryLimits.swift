/// How much a device asks at a time while it compares, or recovers (docs/reference/protocol.md). More is refused with `too-large`.
public enum RecoveryLimits {
  /// Keys of all queries in one request for rows.
  public static let keysMax = 10_000
  /// Queries in one request for rows.
  public static let queriesMax = 10_000
  /// Rows that a query's range holds besides the named ones.
  public static let rangeRowsMax = 10_000
  /// Rows of one range, but the last, where nothing else is asked for.
  public static let rowsPerRange = 64
  /// What may be asked for.
  public static let rowsPerRangeAllowed = 1...65_536
  /// Questions in one request for ranges.
  public static let rangeQuestionsMax = 1_000
  /// Ranges of one answer.
  public static let rangesMax = 4_000
  /// Commits, and sequence IDs, of the history in a begin.
  public static let historyMax = 10_000
}
