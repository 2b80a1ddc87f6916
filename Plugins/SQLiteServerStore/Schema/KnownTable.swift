/// What the database has of a table that was synchronized before.
struct KnownTable {
  var number: Int64
  var generation: Int64
  var columns: [String]
  var grouping: String
  var triggers: String
}
