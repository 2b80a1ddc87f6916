#if PostgreSQL
  import SalvorModel
  import ServerStoreSupport

  /// What every session of Salvor's sets for itself.
  extension PostgreSQLConnection {
    func sessionSettings() throws -> [String] {
      var values = [
        "TimeZone = 'UTC'", "DateStyle = 'ISO, YMD'", "IntervalStyle = 'iso_8601'", "extra_float_digits = 1",
        "bytea_output = 'hex'", "standard_conforming_strings = on", "quote_all_identifiers = off", "array_nulls = on",
        "search_path = \(try searchPath())",
        "lock_timeout = \(settings.lockTimeout)", "row_security = off", "jit = off",
      ]
      if let timeout = settings.statementTimeout { values.append("statement_timeout = \(timeout)") }
      return values
    }

    /// Salvor's own names first, then those of the database's or the role's path: triggers of the application's name things so. Temporary tables
    /// last: one that somebody has left in a pooled session would take the place of a table.
    private func searchPath() throws -> String {
      let found = try once("SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'search_path'").first?.first
      let theirs = (found ?? nil).flatMap { $0.isEmpty || $0 == "\"\"" ? nil : $0 }
      return ([quotedNames([settings.schema, settings.tablesIn])] + [theirs, "pg_temp"].compactMap { $0 })
        .joined(separator: ", ")
    }

    /// Nil: there is none.
    func timeLimit() throws -> Duration? {
      let limit =
        try settings.statementTimeout
        ?? once("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'statement_timeout'").first?.first
        .flatMap { $0.flatMap { Int64($0) } }
      return limit.flatMap { $0 > 0 ? .milliseconds($0) : nil }
    }
  }
#endif
