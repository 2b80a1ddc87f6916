#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  extension PostgreSQLConnection {
    /// PostgreSQL refuses a value without naming its column: each is read once as its column reads it. Of a row that is refused alone.
    package func misfit(in table: String, _ values: [(column: String, value: Value)]) throws -> (
      column: String, type: String
    )? {
      for (column, value) in values {
        guard let sent = sentText(value), let type = try type(of: column, in: table) else { continue }
        do { _ = try attempt { try rows("SELECT \(reading(column, of: table, type)) IS NULL", sent) } } catch let error
          as SalvorError where refusesRow(error)
        {
          return (column, type)
        }
      }
      return nil
    }

    package func asStored(_ value: Value, in table: String, _ column: String) throws -> Value? {
      guard let sent = sentText(value), let type = try type(of: column, in: table) else { return value }
      if Self.storedAsSent.contains(type) { return value }
      do {
        return try attempt { try rows("SELECT \(reading(column, of: table, type))", sent) }.first?[0]
      } catch let error as SalvorError where refusesRow(error) { return nil }
    }

    /// Every value of them comes back as it was sent.
    private static let storedAsSent: Set<String> = [
      "text", "bigint", "integer", "smallint", "double precision", "bytea",
    ]

    /// Nil: nothing is read of it as its column reads a text.
    private func sentText(_ value: Value) -> Value? {
      switch value {
      case .null, .blob: nil
      case .integer(let integer): .text("\(integer)")
      case .real(let real): .text(PostgreSQLType.text(real))
      case .text: value
      }
    }

    /// In the database's words; nil: there is no such column.
    private func type(of column: String, in table: String) throws -> String? {
      try scalar(
        """
        SELECT format_type(atttypid, atttypmod) FROM pg_attribute
        WHERE attrelid = to_regclass(?1) AND attname = ?2 AND NOT attisdropped
        """, .text(Array(name(table).utf8)), .text(column))?.string
    }

    /// An expression: the text `?1` as the column reads it.
    private func reading(_ column: String, of table: String, _ type: String) -> String {
      type.hasPrefix("json")
        ? "CAST(CAST(?1 AS text) AS \(type))"
        : "(jsonb_populate_record(NULL::\(name(table)), jsonb_build_object(\(literal(column)), CAST(?1 AS text)))).\(quoted(column))"
    }

    private func name(_ table: String) -> String { "\(quoted(settings.tablesIn)).\(quoted(table))" }

    private func literal(_ text: String) -> String { PostgreSQLDialect().literal(.text(text)) }
  }
#endif
