import SalvorModel

/// A schema to write histories against: the application's own SQL, and what Salvor knows of it.
struct CaptureWorld {
  var name: String
  var sql: String
  /// Runs after Salvor's triggers are made: those that it makes fire before them.
  var later = ""
  var tables: [FuzzTable]

  struct FuzzTable {
    var name: String
    var key: [String]
    /// Column name and the pool its values are drawn from, as SQL literals.
    var columns: [(name: String, pool: [String])]
    /// `ON CONFLICT` targets of upserts, as SQL.
    var targets: [String]
    /// A row that UPDATE OR REPLACE removes may, by a foreign key action or a trigger, change the very row that is being updated.
    /// SQLite then fires a trigger with stale old values: a limit of capture (README).
    var updateMayRemoveItself = false
    /// Columns that triggers alone write.
    var ofTriggers: [String] = []
    /// Statements have no OR clause and are no upserts.
    var isPlain = false

    var table: Table {
      Table(
        name, primaryKey: key,
        columns: (columns.map(\.name) + ofTriggers).map { Column($0, .text, nullable: true) })
    }
  }
}

private let texts = ["'a'", "'A'", "'b'", "'B'", "'c'"]
private let nullableTexts = texts + ["NULL"]
private let numbers = ["1", "2", "3", "4"]
private let nullableNumbers = numbers + ["NULL"]
private let anything = [
  "1", "1.0", "'1'", "x'31'", "NULL", "2", "-9223372036854775808", "9223372036854775807", "1e300", "''", "x''", "'é'",
]

extension CaptureWorld {
  static let all = [
    family, caseless, untyped, tree, wide, oddNames, triggered, bookkeeping, partial, renamed, strict, deferred,
    childTriggers, late, temporary, hanging,
  ]

  /// Text key, composite key with cascade, SET NULL, ON UPDATE CASCADE.
  static let family = CaptureWorld(
    name: "family",
    sql: """
      CREATE TABLE parent (id TEXT NOT NULL PRIMARY KEY, name TEXT, rank INTEGER UNIQUE);
      CREATE TABLE child (p TEXT NOT NULL REFERENCES parent (id) ON DELETE CASCADE ON UPDATE CASCADE, line INTEGER NOT NULL, note TEXT,
        PRIMARY KEY (p, line));
      CREATE TABLE loose (id INTEGER NOT NULL PRIMARY KEY, p TEXT REFERENCES parent (id) ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED, n TEXT UNIQUE);
      """,
    tables: [
      FuzzTable(
        name: "parent", key: ["id"], columns: [("id", texts), ("name", nullableTexts), ("rank", nullableNumbers)],
        targets: ["(id)", "(rank)"]),
      FuzzTable(
        name: "child", key: ["p", "line"], columns: [("p", texts), ("line", numbers), ("note", nullableTexts)],
        targets: ["(p, line)"]),
      FuzzTable(
        name: "loose", key: ["id"], columns: [("id", numbers), ("p", nullableTexts), ("n", nullableTexts)],
        targets: ["(id)", "(n)"]),
    ])

  /// NOCASE key without a rowid, composite NOCASE unique, a key that may be NULL.
  static let caseless = CaptureWorld(
    name: "caseless",
    sql: """
      CREATE TABLE t (k TEXT COLLATE NOCASE NOT NULL, a TEXT COLLATE NOCASE, b TEXT COLLATE RTRIM, c TEXT COLLATE NOCASE, PRIMARY KEY (k), UNIQUE (a, b)) WITHOUT ROWID;
      CREATE TABLE u (x TEXT, y INTEGER, z TEXT COLLATE NOCASE, PRIMARY KEY (y, x COLLATE NOCASE));
      CREATE UNIQUE INDEX uz ON u (z COLLATE BINARY);
      """,
    tables: [
      FuzzTable(
        name: "t", key: ["k"],
        columns: [("k", texts), ("a", nullableTexts), ("b", ["'x'", "'x '", "'y'"]), ("c", nullableTexts)],
        targets: ["(k)", "(a, b)"]),
      FuzzTable(
        name: "u", key: ["y", "x"], columns: [("x", texts), ("y", ["1", "2"]), ("z", nullableTexts)], targets: ["(z)"]),
    ])

  /// Columns without a type keep every value as it is, keys too.
  static let untyped = CaptureWorld(
    name: "untyped",
    sql: "CREATE TABLE t (k NOT NULL PRIMARY KEY, a, b UNIQUE, c BLOB, d REAL, e NUMERIC)",
    tables: [
      FuzzTable(
        name: "t", key: ["k"],
        columns: [
          ("k", anything.filter { $0 != "NULL" }), ("a", anything), ("b", anything), ("c", anything), ("d", anything),
          ("e", anything),
        ],
        targets: ["(k)", "(b)"])
    ])

  /// A table that references itself, both ways.
  static let tree = CaptureWorld(
    name: "tree",
    sql: """
      CREATE TABLE node (id INTEGER PRIMARY KEY, up INTEGER REFERENCES node (id) ON DELETE CASCADE, friend INTEGER REFERENCES node (id) ON DELETE SET NULL,
        label TEXT UNIQUE);
      CREATE TABLE leaf (id TEXT NOT NULL PRIMARY KEY, node INTEGER REFERENCES node (id) ON DELETE CASCADE, note TEXT);
      """,
    tables: [
      FuzzTable(
        name: "node", key: ["id"],
        columns: [("id", numbers), ("up", nullableNumbers), ("friend", nullableNumbers), ("label", nullableTexts)],
        targets: ["(id)", "(label)"], updateMayRemoveItself: true),
      FuzzTable(
        name: "leaf", key: ["id"], columns: [("id", texts), ("node", nullableNumbers), ("note", nullableTexts)],
        targets: ["(id)"]),
    ])

  /// More columns than one mask has bits.
  static let wide: CaptureWorld = {
    let columns = (1...131).map { "c\($0)" }
    return CaptureWorld(
      name: "wide",
      sql:
        "CREATE TABLE w (id TEXT NOT NULL PRIMARY KEY, \(columns.map { $0 + " INTEGER" }.joined(separator: ", ")), UNIQUE (c70))",
      tables: [
        FuzzTable(
          name: "w", key: ["id"], columns: [("id", texts)] + columns.map { ($0, nullableNumbers) },
          targets: ["(id)", "(c70)"])
      ])
  }()

  /// Names that must be quoted, a generated column with a unique index on it.
  static let oddNames = CaptureWorld(
    name: "oddNames",
    sql: #"""
      CREATE TABLE "a""b c" ("ключ" TEXT NOT NULL PRIMARY KEY, "x""y" TEXT, "it's" INTEGER, "select" TEXT, "gen""d" TEXT AS (lower("select")) STORED, UNIQUE ("gen""d"));
      CREATE TABLE "order" ("group" INTEGER NOT NULL, "2" TEXT NOT NULL, "v0" TEXT, "id" INTEGER, "p" TEXT, "x" TEXT, "q" TEXT, PRIMARY KEY ("2", "group"), UNIQUE ("v0", "id"));
      """#,
    tables: [
      FuzzTable(
        name: #"a"b c"#, key: ["ключ"],
        columns: [("ключ", texts), (#"x"y"#, nullableTexts), ("it's", nullableNumbers), ("select", nullableTexts)],
        targets: [#"("ключ")"#]),
      FuzzTable(
        name: "order", key: ["2", "group"],
        columns: [
          ("group", ["1", "2"]), ("2", texts), ("v0", nullableTexts), ("id", ["1", "2", "NULL"]), ("p", nullableTexts),
          ("x", nullableTexts), ("q", nullableTexts),
        ],
        targets: [#"("2", "group")"#, #"("v0", "id")"#]),
    ])

  /// Triggers of the application's that write to the same table and to others, before and after. None changes the row
  /// that is being updated from a BEFORE trigger: SQLite leaves the result of that undefined.
  static let triggered = CaptureWorld(
    name: "triggered",
    sql: """
      CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, a TEXT, b TEXT UNIQUE, n INTEGER);
      CREATE TABLE s (id TEXT NOT NULL PRIMARY KEY, total INTEGER, last TEXT UNIQUE);
      CREATE TABLE audit (line INTEGER PRIMARY KEY, what TEXT);
      CREATE TRIGGER app_count AFTER INSERT ON t WHEN NEW.a IS NOT NULL BEGIN
        INSERT INTO s (id, total, last) VALUES (NEW.a, 1, NEW.b) ON CONFLICT (id) DO UPDATE SET total = total + 1; END;
      CREATE TRIGGER app_before BEFORE UPDATE OF a ON t WHEN NEW.n = 1 BEGIN UPDATE t SET n = 4 WHERE id <> OLD.id AND id <> NEW.id AND a = OLD.a; END;
      CREATE TRIGGER app_insert BEFORE INSERT ON t WHEN NEW.n = 3 BEGIN UPDATE t SET n = n + 10, a = 'c' WHERE id = NEW.id OR b = NEW.b; END;
      CREATE TRIGGER app_after AFTER UPDATE ON t WHEN NEW.n = 2 BEGIN UPDATE t SET n = 5 WHERE id = NEW.id; DELETE FROM s WHERE id = OLD.a; END;
      CREATE TRIGGER app_delete AFTER DELETE ON t BEGIN INSERT OR REPLACE INTO s (id, total, last) VALUES (coalesce(OLD.a, 'a'), OLD.n, OLD.b); INSERT INTO audit (what) VALUES ('gone'); END;
      """,
    tables: [
      FuzzTable(
        name: "t", key: ["id"], columns: [("id", numbers), ("a", nullableTexts), ("b", nullableTexts), ("n", numbers)],
        targets: ["(id)", "(b)"]),
      FuzzTable(
        name: "s", key: ["id"], columns: [("id", texts), ("total", numbers), ("last", nullableTexts)],
        targets: ["(id)", "(last)"]),
    ])

  /// A BEFORE trigger that deletes, an AFTER trigger that replaces in the same table, a cascade that meets a trigger.
  static let bookkeeping = CaptureWorld(
    name: "bookkeeping",
    sql: """
      CREATE TABLE t (id TEXT NOT NULL PRIMARY KEY, a TEXT, b INTEGER UNIQUE);
      CREATE TABLE c (id INTEGER PRIMARY KEY, t TEXT REFERENCES t (id) ON DELETE CASCADE, v INTEGER);
      CREATE TRIGGER app_bd BEFORE INSERT ON t WHEN NEW.a = 'a' BEGIN DELETE FROM t WHERE b = NEW.b AND id <> NEW.id; END;
      CREATE TRIGGER app_ai AFTER INSERT ON t WHEN NEW.a = 'b' BEGIN INSERT OR REPLACE INTO t (id, a, b) VALUES ('c', 'c', NEW.b + 1); END;
      CREATE TRIGGER app_cd AFTER DELETE ON c BEGIN UPDATE t SET a = 'A' WHERE b = OLD.v; END;
      CREATE TRIGGER app_cu BEFORE UPDATE ON t WHEN NEW.a = 'B' BEGIN INSERT INTO c (t, v) VALUES (NEW.id, 1); END;
      """,
    tables: [
      FuzzTable(
        name: "t", key: ["id"], columns: [("id", texts), ("a", nullableTexts), ("b", nullableNumbers)],
        targets: ["(id)", "(b)"], updateMayRemoveItself: true),
      FuzzTable(
        name: "c", key: ["id"], columns: [("id", numbers), ("t", nullableTexts), ("v", nullableNumbers)],
        targets: ["(id)"]),
    ])

  /// Partial unique indexes, several of them, and conflict clauses in the table itself.
  static let partial = CaptureWorld(
    name: "partial",
    sql: """
      CREATE TABLE t (id INTEGER PRIMARY KEY ON CONFLICT REPLACE, a TEXT UNIQUE ON CONFLICT REPLACE, b TEXT, live INTEGER, c TEXT COLLATE NOCASE UNIQUE);
      CREATE UNIQUE INDEX one ON t (b) WHERE live = 1;
      """,
    tables: [
      FuzzTable(
        name: "t", key: ["id"],
        columns: [
          ("id", numbers), ("a", nullableTexts), ("b", nullableTexts), ("live", ["0", "1"]), ("c", nullableTexts),
        ],
        targets: ["(id)", "(a)", "(b) WHERE live = 1", "(c)"])
    ])
}

extension CaptureWorld {
  /// Tables that reference themselves, whose keys change.
  static let renamed = CaptureWorld(
    name: "renamed",
    sql: """
      CREATE TABLE s (id TEXT NOT NULL PRIMARY KEY, up TEXT REFERENCES s (id) ON UPDATE CASCADE ON DELETE SET NULL, n INTEGER);
      CREATE TABLE q (a TEXT NOT NULL, b TEXT NOT NULL, ua TEXT, ub TEXT, n TEXT, PRIMARY KEY (a, b), FOREIGN KEY (ua, ub) REFERENCES q (a, b) ON UPDATE CASCADE ON DELETE CASCADE);
      """,
    tables: [
      FuzzTable(
        name: "s", key: ["id"], columns: [("id", texts), ("up", nullableTexts), ("n", nullableNumbers)],
        targets: ["(id)"], updateMayRemoveItself: true),
      FuzzTable(
        name: "q", key: ["a", "b"],
        columns: [
          ("a", ["'a'", "'b'"]), ("b", ["'a'", "'b'"]), ("ua", ["'a'", "'b'", "NULL"]), ("ub", ["'a'", "'b'", "NULL"]),
          ("n", nullableTexts),
        ],
        targets: ["(a, b)"], updateMayRemoveItself: true),
    ])

  /// STRICT tables, with and without a rowid, and generated columns of both kinds.
  static let strict = CaptureWorld(
    name: "strict",
    sql: """
      CREATE TABLE k (id TEXT NOT NULL PRIMARY KEY, v ANY, n INTEGER, b BLOB, up TEXT AS (upper(id)) VIRTUAL, twice INTEGER AS (n * 2) STORED UNIQUE) STRICT;
      CREATE TABLE w (x INTEGER NOT NULL, y TEXT NOT NULL, v ANY UNIQUE, both TEXT AS (x || y) VIRTUAL, PRIMARY KEY (x, y)) STRICT, WITHOUT ROWID;
      CREATE INDEX kup ON k (up);
      """,
    tables: [
      FuzzTable(
        name: "k", key: ["id"],
        columns: [("id", texts), ("v", anything), ("n", nullableNumbers), ("b", ["x'00'", "x''", "NULL"])],
        targets: ["(id)"]),
      FuzzTable(
        name: "w", key: ["x", "y"], columns: [("x", numbers), ("y", texts), ("v", anything)],
        targets: ["(x, y)", "(v)"]
      ),
    ])

  /// References that are looked at when the transaction ends, and REPLACE of the rows that they name.
  static let deferred = CaptureWorld(
    name: "deferred",
    sql: """
      CREATE TABLE s (id TEXT NOT NULL PRIMARY KEY, up TEXT UNIQUE REFERENCES s (id) DEFERRABLE INITIALLY DEFERRED);
      CREATE TABLE c (id INTEGER NOT NULL PRIMARY KEY, s TEXT REFERENCES s (id) ON DELETE CASCADE ON UPDATE SET NULL DEFERRABLE INITIALLY DEFERRED, other TEXT REFERENCES s (up) ON UPDATE CASCADE);
      """,
    tables: [
      FuzzTable(
        name: "s", key: ["id"], columns: [("id", texts), ("up", nullableTexts)], targets: ["(id)", "(up)"]),
      FuzzTable(
        name: "c", key: ["id"], columns: [("id", numbers), ("s", nullableTexts), ("other", nullableTexts)],
        targets: ["(id)"]),
    ])

  /// The application's triggers on rows below write to the row whose key changes or which goes.
  static let childTriggers = CaptureWorld(
    name: "childTriggers",
    sql: """
      CREATE TABLE p (id TEXT NOT NULL PRIMARY KEY, n INTEGER, m INTEGER);
      CREATE TABLE c (id INTEGER NOT NULL PRIMARY KEY, p TEXT REFERENCES p (id) ON UPDATE CASCADE ON DELETE CASCADE, v INTEGER);
      CREATE TRIGGER app_moved AFTER UPDATE OF p ON c BEGIN UPDATE p SET n = coalesce(n, 0) + 1 WHERE id = NEW.p; END;
      CREATE TRIGGER app_gone AFTER DELETE ON c WHEN OLD.v = 1 BEGIN UPDATE p SET m = coalesce(m, 0) + 1 WHERE id = OLD.p; END;
      CREATE TRIGGER app_left BEFORE UPDATE OF p ON c WHEN OLD.v = 2 BEGIN UPDATE p SET m = 0 WHERE id <> OLD.p; END;
      """,
    tables: [
      FuzzTable(
        name: "p", key: ["id"], columns: [("id", texts), ("n", nullableNumbers), ("m", nullableNumbers)],
        targets: ["(id)"], updateMayRemoveItself: true),
      FuzzTable(
        name: "c", key: ["id"], columns: [("id", numbers), ("p", nullableTexts), ("v", nullableNumbers)],
        targets: ["(id)"]),
    ])

  /// Rows that hang on others of their table: an UPDATE OR REPLACE that removes the parent takes the updated row along.
  static let hanging = CaptureWorld(
    name: "hanging",
    sql: """
      CREATE TABLE node (id TEXT NOT NULL PRIMARY KEY, up TEXT REFERENCES node (id) ON DELETE CASCADE, label TEXT UNIQUE, place INTEGER UNIQUE);
      CREATE TABLE leaf (id INTEGER PRIMARY KEY, node TEXT REFERENCES node (id) ON DELETE CASCADE, note TEXT UNIQUE);
      """,
    tables: [
      FuzzTable(
        name: "node", key: ["id"],
        columns: [("id", texts), ("up", nullableTexts), ("label", nullableTexts), ("place", nullableNumbers)],
        targets: ["(id)", "(label)"]),
      FuzzTable(
        name: "leaf", key: ["id"], columns: [("id", numbers), ("node", nullableTexts), ("note", nullableTexts)],
        targets: ["(id)"]),
    ])

  /// Triggers of the application's that fire before Salvor's and write to the very row.
  static let late = firing("late", "CREATE TRIGGER")
  static let temporary = firing("temporary", "CREATE TEMP TRIGGER")

  private static func firing(_ name: String, _ create: String) -> CaptureWorld {
    CaptureWorld(
      name: name,
      sql: "CREATE TABLE t (id INTEGER NOT NULL PRIMARY KEY, a TEXT, b TEXT, n INTEGER, stamp INTEGER);",
      later: """
        \(create) app_i AFTER INSERT ON t WHEN NEW.a = 'a' BEGIN UPDATE t SET stamp = 7 WHERE id = NEW.id; END;
        \(create) app_g AFTER INSERT ON t WHEN NEW.a = 'b' BEGIN DELETE FROM t WHERE id = NEW.id; END;
        \(create) app_u AFTER UPDATE OF b ON t WHEN NEW.b = 'B' BEGIN UPDATE t SET stamp = coalesce(stamp, 0) + 1 WHERE id = NEW.id; END;
        \(create) app_ud AFTER UPDATE OF a ON t WHEN NEW.a = 'c' BEGIN DELETE FROM t WHERE id = NEW.id; END;
        \(create) app_d AFTER DELETE ON t WHEN OLD.a = 'A' BEGIN INSERT INTO t (id, a) VALUES (OLD.id, 'z'); END;
        \(create) app_bi BEFORE INSERT ON t WHEN NEW.n = 3 BEGIN UPDATE t SET stamp = 3 WHERE id <> NEW.id; END;
        \(create) app_bd BEFORE DELETE ON t WHEN OLD.n = 4 BEGIN UPDATE t SET stamp = 4 WHERE id <> OLD.id; END;
        """,
      tables: [
        FuzzTable(
          name: "t", key: ["id"],
          columns: [("id", numbers), ("a", nullableTexts), ("b", nullableTexts), ("n", numbers)], targets: ["(id)"],
          ofTriggers: ["stamp"], isPlain: true)
      ])
  }
}
