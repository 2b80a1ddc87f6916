#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import ServerStoreSupport

  /// What the database has of a table of the application's.
  struct TableFacts {
    struct Column {
      var name: String
      /// As `format_type` says it, of a domain the type that all of its bases lead to.
      var type: String
      var isEnum: Bool
      var isDomain: Bool
      /// Another one than the database's own and "C".
      var hasOwnCollation: Bool
      /// Text under a collation that holds texts equal which are not the same bytes.
      var isFolding: Bool
      var notNull: Bool
      var hasDefault: Bool
      var isGenerated: Bool
      /// The database draws it from a sequence.
      var isDrawn: Bool
      /// Text under a collation that does not compare bytes.
      var isCollated: Bool
    }

    struct Unique {
      /// Nil: an expression.
      var columns: [String?]
      var isPrimaryKey: Bool
      var isPartial: Bool
    }

    struct ForeignKey {
      var column: String
      var parent: String
      var onDelete: String
    }

    var columns: [Column] = []
    var uniques: [Unique] = []
    var foreignKeys: [ForeignKey] = []
    var actingKeys: [ActingKey] = []
    var key: [String] { uniques.first(where: \.isPrimaryKey)?.columns.compactMap(\.self) ?? [] }

    func column(_ name: String) -> Column? { columns.first { $0.name == name } }

    /// Nil: there is no such table.
    init?(_ name: String, _ connection: PostgreSQLConnection) throws {
      let table = Value.text(Array("\(quoted(connection.settings.tablesIn)).\(quoted(name))".utf8))
      guard try connection.integer("SELECT to_regclass(?1) IS NOT NULL", table) == 1 else { return nil }
      columns = try connection.rows(
        """
        SELECT a.attname::text, format_type(t.oid, NULL),
          a.attnotnull, a.atthasdef OR a.attidentity <> '', a.attgenerated <> '',
          coalesce(l.collname NOT IN ('C', 'POSIX', 'ucs_basic')
            AND NOT (l.collname = 'default' AND (SELECT datcollate IN ('C', 'POSIX') FROM pg_database
              WHERE datname = current_database())), false),
          a.attidentity <> '' OR coalesce(pg_get_expr(d.adbin, d.adrelid) LIKE 'nextval(%', false),
          t.typtype = 'e', NOT coalesce(l.collisdeterministic, true), t.oid <> a.atttypid, coalesce(l.oid NOT IN (100, 950), false)
        FROM pg_attribute a CROSS JOIN LATERAL (
          WITH RECURSIVE base AS (SELECT t.oid, t.typtype, t.typbasetype FROM pg_type t WHERE t.oid = a.atttypid
            UNION ALL SELECT t.oid, t.typtype, t.typbasetype FROM base b JOIN pg_type t ON t.oid = b.typbasetype
            WHERE b.typtype = 'd')
          SELECT oid, typtype FROM base WHERE typtype <> 'd') t
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        WHERE a.attrelid = to_regclass(?1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
        """, table
      ).map { row in
        Column(
          name: row[0].string ?? "", type: row[1].string ?? "", isEnum: row[7] == 1, isDomain: row[9] == 1,
          hasOwnCollation: row[10] == 1, isFolding: row[8] == 1,
          notNull: row[2] == 1, hasDefault: row[3] == 1, isGenerated: row[4] == 1, isDrawn: row[6] == 1,
          isCollated: row[5] == 1)
      }
      var indexes: [Int64: Unique] = [:]
      for row in try connection.rows(
        """
        SELECT i.indexrelid::bigint, a.attname::text, i.indisprimary, i.indpred IS NOT NULL
        FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::smallint[]) WITH ORDINALITY k (number, place)
        LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
        WHERE i.indrelid = to_regclass(?1) AND i.indisunique AND k.place <= i.indnkeyatts ORDER BY 1, k.place
        """, table)
      {
        let number = row[0].integer ?? 0
        indexes[number, default: Unique(columns: [], isPrimaryKey: row[2] == 1, isPartial: row[3] == 1)].columns
          .append(row[1].string)
      }
      uniques = indexes.sorted { $0.key < $1.key }.map(\.value)
      foreignKeys = try connection.rows(
        """
        SELECT a.attname::text, p.relname::text, CASE c.confdeltype WHEN 'c' THEN 'cascade' WHEN 'n' THEN 'set null'
          WHEN 'r' THEN 'restrict' WHEN 'd' THEN 'set default' ELSE 'no action' END
        FROM pg_constraint c JOIN pg_class p ON p.oid = c.confrelid
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
        WHERE c.conrelid = to_regclass(?1) AND c.contype = 'f' AND cardinality(c.conkey) = 1
        """, table
      ).map { ForeignKey(column: $0[0].string ?? "", parent: $0[1].string ?? "", onDelete: $0[2].string ?? "") }
      var acting: [Int64: ActingKey] = [:]
      for row in try connection.rows(
        """
        SELECT c.oid::bigint, p.relname::text, c.confdeltype = 'c', a.attname::text, b.attname::text
        FROM pg_constraint c JOIN pg_class p ON p.oid = c.confrelid
        CROSS JOIN LATERAL unnest(c.conkey, c.confkey) WITH ORDINALITY k (own, other, place)
        JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = k.own
        JOIN pg_attribute b ON b.attrelid = c.confrelid AND b.attnum = k.other
        WHERE c.conrelid = to_regclass(?1) AND c.contype = 'f' AND c.confdeltype IN ('c', 'n') ORDER BY 1, k.place
        """, table)
      {
        let onDelete: OnDelete = row[2] == 1 ? .cascade : .setNull
        var key =
          acting[row[0].integer ?? 0]
          ?? ActingKey(columns: [], parent: row[1].string ?? "", parentColumns: [], onDelete: onDelete)
        key.columns.append(row[3].string ?? "")
        key.parentColumns.append(row[4].string ?? "")
        acting[row[0].integer ?? 0] = key
      }
      actingKeys = acting.sorted { $0.key < $1.key }.map(\.value)
    }

    /// As the shared code takes them.
    var sharedIndexes: [UniqueIndex] {
      uniques.map { unique in
        UniqueIndex(
          columns: unique.columns.map { name in
            UniqueIndex.Column(name: name, isBinary: !(name.flatMap(column)?.isCollated ?? false))
          }, isPrimaryKey: unique.isPrimaryKey)
      }
    }
  }
#endif
