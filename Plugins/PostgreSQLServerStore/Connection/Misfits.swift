#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  extension PostgreSQLConnection {
    /// PostgreSQL refuses a value without naming its column: each is read once as its column reads it. Of a row that is refused alone.
    package func misfit(in table: String, _ values: [(column: String, value: Value)]) throws -> (
      column: String, type: String
    )? {
      let name = "\(quoted(settings.tablesIn)).\(quoted(table))"
      for (column, value) in values {
        let text: Value
        switch value {
        case .null, .blob: continue
        case .integer(let integer): text = .text("\(integer)")
        case .real(let real): text = .text(PostgreSQLType.text(real))
        case .text: text = value
        }
        let found = try scalar(
          """
          SELECT format_type(atttypid, atttypmod) FROM pg_attribute
          WHERE attrelid = to_regclass(?1) AND attname = ?2 AND NOT attisdropped
          """, .text(Array(name.utf8)), .text(column))
        guard let type = found?.string else { continue }
        let read =
          type.hasPrefix("json")
          ? "CAST(CAST(?1 AS text) AS \(type))"
          : "(jsonb_populate_record(NULL::\(name), jsonb_build_object(\(literal(column)), CAST(?1 AS text)))).\(quoted(column))"
        do { _ = try attempt { try rows("SELECT \(read) IS NULL", text) } } catch let error as SalvorError
          where refusesRow(error)
        {
          return (column, type)
        }
      }
      return nil
    }

    private func literal(_ text: String) -> String { PostgreSQLDialect().literal(.text(text)) }
  }
#endif
