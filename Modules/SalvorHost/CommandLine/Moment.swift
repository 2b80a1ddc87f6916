import SalvorConfiguration

/// A time as people read it, with its zone: milliseconds since 1970 as `2026-11-21 04:05:06 UTC`.
func moment(_ milliseconds: Int64) -> String { timestamp(milliseconds) + " UTC" }
