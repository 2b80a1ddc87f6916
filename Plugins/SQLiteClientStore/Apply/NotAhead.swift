/// A download needs more than writing into tables that were empty: it is staged and applied at its end.
struct NotAhead: Error {}
