/// A download needs more than writing into tables that were empty: it is staged and applied at its end.
struct NotAhead: Error {}

/// What is applied ahead has held the write lock for as long as it may.
struct NotInTime: Error {}
