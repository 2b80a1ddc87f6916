import SQLiteSupport
import SalvorModel
import SalvorStorage

/// The rows of all sides, compared value by value.
struct DemoComparison: Sendable {
  struct TableResult: Sendable {
    var table: String
    /// Rows of the server, then of each device.
    var counts: [Int64]
    /// Rows that one side has otherwise, or not at all, and that no refused request explains.
    var differing: Int64
    /// Rows that show a change which the server has refused.
    var inError: Int64
  }

  var tables: [TableResult] = []
  var isEqual: Bool { tables.allSatisfy { $0.differing == 0 } }
  var inError: Int64 { tables.reduce(0) { $0 + $1.inError } }

  /// - Parameter devices: the devices' files, in the order of the counts.
  static func compare(server: String, devices: [String]) throws -> DemoComparison {
    var comparison = DemoComparison()
    let connection = try SQLiteConnection(server, mode: .readWrite, busyTimeoutMilliseconds: 20_000)
    for (place, device) in devices.enumerated() {
      try connection.run("ATTACH ? AS device\(place)", .text(device))
    }
    for table in DemoData.tables { comparison.tables.append(try compare(table, devices.count, connection)) }
    return comparison
  }

  private static func compare(
    _ table: String, _ devices: Int, _ connection: SQLiteConnection
  ) throws -> TableResult {
    func count(_ schema: String) throws -> Int64 {
      try connection.integer("SELECT count(*) FROM \(schema).\(table)") ?? 0
    }
    var result = TableResult(table: table, counts: [try count("main")], differing: 0, inError: 0)
    let columns = try connection.rows("SELECT name, pk FROM pragma_table_info('\(table)') ORDER BY cid")
    let key = columns.filter { $0[1] != 0 }.compactMap(\.[0].string).joined(separator: ", ")
    // Storage classes, too: 1 and 1.0 are equal to SQL, but not the same value.
    let values = columns.compactMap(\.[0].string).map { "\($0), typeof(\($0))" }.joined(separator: ", ")
    for place in 0..<devices {
      let device = "device\(place)"
      result.counts.append(try count(device))
      let differing =
        try connection.integer(
          """
          SELECT count(*) FROM (
            SELECT \(key) FROM (SELECT \(values) FROM main.\(table) EXCEPT SELECT \(values) FROM \(device).\(table))
            UNION
            SELECT \(key) FROM (SELECT \(values) FROM \(device).\(table) EXCEPT SELECT \(values) FROM main.\(table)))
          """) ?? 0
      let inError =
        try connection.integer(
          "SELECT count(*) FROM \(device).salvor_row_state WHERE \"table\" = ? AND in_error", .text(table)) ?? 0
      result.inError += min(differing, inError)
      result.differing += max(0, differing - inError)
    }
    return result
  }
}
