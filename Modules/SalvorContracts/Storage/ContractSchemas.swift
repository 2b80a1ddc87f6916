import SalvorModel

extension Schema {
  /// The same, with one conflict policy for every table that both sides write.
  func settled(by policy: String) -> Schema {
    var schema = self
    for place in schema.tables.indices where schema.tables[place].maintained == .dual {
      schema.tables[place].conflicts = policy
    }
    return schema
  }
}

/// The schemas that the storage suites run on.
enum ContractSchemas {
  /// One table with one policy; the plainest case.
  static func notes(
    conflicts: String = Table.defaultConflicts, sameKey: SameKey? = nil, unique: [[String]] = [],
    check: [String] = [], heal: HealMode = .all
  ) -> Schema {
    Schema(tables: [
      Table(
        "note", primaryKey: ["id"],
        columns: [Column("id", .text), Column("title", .text), Column("body", .text, nullable: true)],
        unique: unique, check: check, conflicts: conflicts, sameKey: sameKey, heal: heal)
    ])
  }

  /// An integer key, for which the same key is a collision; a unique value; a check.
  static let seats = Schema(tables: [
    Table(
      "seat", primaryKey: ["id"],
      columns: [
        Column("id", .integer), Column("place", .integer, nullable: true), Column("seats", .integer, defaultValue: 1),
      ], unique: [["place"]], check: ["seats < 100"])
  ])

  /// Parents and children of four kinds, scoped by a parameter; a table of the server's.
  static let inspections = inspections(handover: false)

  static func inspections(handover: Bool) -> Schema {
    Schema(
      parameters: [Schema.Parameter(name: "region", type: .text)],
      groups: [Schema.Group(name: "reference"), Schema.Group(name: "inspections")],
      tables: [
        Table(
          "severity", maintained: .server, group: "reference", primaryKey: ["id"],
          columns: [Column("id", .integer), Column("name", .text)]),
        Table(
          "establishment", group: "inspections", primaryKey: ["id"],
          columns: [Column("id", .text), Column("name", .text), Column("region", .text, nullable: true)],
          scope: [ScopeColumn(column: "region", source: .parameter("region"))], handover: handover),
        Table(
          "inspection", group: "inspections", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("establishment_id", .text), Column("date", .text),
            Column("inspector", .text, nullable: true),
          ],
          references: [
            Reference(column: "establishment_id", table: "establishment", inheritsScope: true, onDelete: .cascade)
          ]),
        Table(
          "infraction", group: "inspections", primaryKey: ["inspection_id", "line"],
          columns: [
            Column("inspection_id", .text), Column("line", .integer), Column("severity_id", .integer, nullable: true),
            Column("note", .text, nullable: true),
          ],
          references: [
            Reference(column: "inspection_id", table: "inspection", inheritsScope: true, onDelete: .cascade),
            Reference(column: "severity_id", table: "severity"),
          ]),
      ])
  }

  /// Tables with flag columns of the application's own, as an inspection's: a form, its sections, their answers. Remarks
  /// have no such columns, the photos below them have; a client-only table hangs on the forms.
  static let marked = Schema(tables: [
    Table(
      "form", primaryKey: ["id"],
      columns: [Column("id", .text), Column("title", .text, nullable: true)] + flagColumns, flags: bothFlags),
    Table(
      "section", primaryKey: ["id"],
      columns: [Column("id", .text), Column("form_id", .text), Column("name", .text, nullable: true)] + flagColumns,
      references: [Reference(column: "form_id", table: "form")], flags: bothFlags),
    Table(
      "answer", primaryKey: ["section_id", "line"],
      columns: [
        Column("section_id", .text), Column("line", .integer), Column("note", .text, nullable: true),
        Column("IsDeleted", .boolean, nullable: true),
      ],
      references: [Reference(column: "section_id", table: "section", onDelete: .cascade)],
      flags: FlagColumns(deleted: "IsDeleted")),
    Table(
      "remark", primaryKey: ["id"],
      columns: [
        Column("id", .text), Column("section_id", .text, nullable: true), Column("text", .text, nullable: true),
      ],
      references: [Reference(column: "section_id", table: "section", onDelete: .cascade)]),
    Table(
      "photo", primaryKey: ["id"],
      columns: [Column("id", .text), Column("remark_id", .text), Column("name", .text, nullable: true)] + flagColumns,
      references: [Reference(column: "remark_id", table: "remark", onDelete: .cascade)], flags: bothFlags),
    Table(
      "draft", maintained: .client, primaryKey: ["id"],
      columns: [Column("id", .text), Column("form_id", .text, nullable: true)],
      references: [Reference(column: "form_id", table: "form", onDelete: .setNull)]),
  ])

  /// A table that references itself, and a value that only one row may have.
  static let folders = Schema(tables: [
    Table(
      "folder", primaryKey: ["id"],
      columns: [Column("id", .text), Column("above", .text, nullable: true), Column("label", .text, nullable: true)]
        + flagColumns,
      references: [Reference(column: "above", table: "folder")], unique: [["label"]], flags: bothFlags)
  ])

  private static let flagColumns = [
    Column("IsDirty", .boolean, defaultValue: 0), Column("IsDeleted", .boolean, defaultValue: 0),
  ]
  private static let bothFlags = FlagColumns(dirty: "IsDirty", deleted: "IsDeleted")

  /// Tables that are chosen by two parameters, by one of them and by none, in one group; what inherits in another.
  static let places = Schema(
    parameters: [Schema.Parameter(name: "region", type: .text), Schema.Parameter(name: "size", type: .integer)],
    groups: [Schema.Group(name: "places"), Schema.Group(name: "tasks")],
    tables: [
      Table(
        "site", group: "places", primaryKey: ["id"],
        columns: [
          Column("id", .text), Column("region", .text), Column("size", .integer, nullable: true),
          Column("name", .text, nullable: true),
        ],
        scope: [
          ScopeColumn(column: "region", source: .parameter("region")),
          ScopeColumn(column: "size", source: .parameter("size")),
        ], handover: true),
      Table(
        "van", group: "places", primaryKey: ["id"], columns: [Column("id", .text), Column("region", .text)],
        scope: [ScopeColumn(column: "region", source: .parameter("region"))], handover: true),
      Table("note", group: "places", primaryKey: ["id"], columns: [Column("id", .text), Column("body", .text)]),
      Table(
        "task", group: "tasks", primaryKey: ["id"],
        columns: [
          Column("id", .text), Column("site_id", .text), Column("note_id", .text, nullable: true),
          Column("done", .integer, defaultValue: 0),
        ],
        references: [
          Reference(column: "site_id", table: "site", inheritsScope: true, onDelete: .cascade),
          Reference(column: "note_id", table: "note"),
        ]),
    ])

  /// Rows that belong to the principal who reads them.
  static let diaries = Schema(tables: [
    Table(
      "diary", primaryKey: ["id"],
      columns: [Column("id", .text), Column("owner", .text), Column("text", .text, nullable: true)],
      scope: [ScopeColumn(column: "owner", source: .principal)])
  ])

  /// Rows that are seen by any of several ways, through the rows of a join table and what hangs on them. With `regions`
  /// one of the ways is a parameter.
  static func members(handover: Bool = false, regions: Bool = false) -> Schema {
    let principal = ScopeColumn(column: "person", source: .principal)
    let open = ScopeColumn(column: "open", source: .value(1))
    let byMember = ScopeColumn(column: "id", source: .via(table: "member", column: "project_id"))
    let region = ScopeColumn(column: "region", source: .parameter("region"))
    let byTask = ScopeColumn(column: "id", source: .via(table: "task", column: "form_id"))
    return Schema(
      parameters: regions ? [Schema.Parameter(name: "region", type: .text)] : [],
      groups: [Schema.Group(name: "people"), Schema.Group(name: "work")],
      tables: [
        Table(
          "member", group: "people", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("project_id", .text, nullable: true), Column("person", .text),
            Column("active", .boolean, defaultValue: 1),
          ], scope: [principal, ScopeColumn(column: "active", source: .value(1))], handover: handover),
        Table(
          "project", group: "work", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("open", .boolean, defaultValue: 0), Column("region", .text, nullable: true),
          ], scopeAlternatives: [[open], [byMember]] + (regions ? [[region]] : []), handover: handover),
        Table(
          "form", group: "work", primaryKey: ["id"],
          columns: [Column("id", .text), Column("open", .boolean, defaultValue: 0)],
          scopeAlternatives: [[open], [byTask]], handover: handover),
        Table(
          "task", group: "work", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("project_id", .text), Column("form_id", .text, nullable: true),
            Column("label", .text, nullable: true),
          ],
          references: [
            Reference(column: "project_id", table: "project", inheritsScope: true, onDelete: .cascade),
            Reference(column: "form_id", table: "form", soft: true),
          ], handover: handover),
        Table(
          "answer", group: "work", primaryKey: ["task_id", "line"],
          columns: [
            Column("task_id", .text), Column("line", .integer), Column("form_id", .text),
            Column("text", .text, nullable: true),
          ],
          references: [
            Reference(column: "task_id", table: "task", inheritsScope: true, onDelete: .cascade),
            Reference(column: "form_id", table: "form", inheritsScope: true, onDelete: .cascade),
          ]),
      ])
  }

  /// A reference to the same table, one that clears, and one that refuses.
  static let tree = Schema(tables: [
    Table(
      "node", primaryKey: ["id"],
      columns: [Column("id", .text), Column("parent", .text, nullable: true), Column("label", .text, nullable: true)],
      references: [Reference(column: "parent", table: "node", onDelete: .cascade)]),
    Table(
      "leaf", primaryKey: ["id"],
      columns: [
        Column("id", .text), Column("node", .text, nullable: true), Column("kept", .text, nullable: true),
      ],
      references: [
        Reference(column: "node", table: "node", onDelete: .setNull), Reference(column: "kept", table: "node"),
      ]),
  ])

  /// A column of every type, names that must be quoted, and a key of two columns.
  static let odd = Schema(tables: [
    Table(
      "odd \"table\" ü", primaryKey: ["key \"b\"", "key a"],
      columns: [
        Column("key a", .integer), Column("select", .text, nullable: true), Column("key \"b\"", .text),
        Column("real.", .real, nullable: true), Column("x'y", .blob, nullable: true),
        Column("is", .boolean, nullable: true), Column("when", .timestamp, nullable: true),
        Column("json", .json, nullable: true), Column("ganz", .integer, nullable: true),
      ])
  ])

  static let wide = Schema(tables: [
    Table(
      "wide", primaryKey: ["id"],
      columns: [Column("id", .integer)] + (0..<199).map { Column("column_\($0)", .text, nullable: true) })
  ])

  /// Two groups, and a table that never leaves the device.
  static let groups = Schema(
    groups: [Schema.Group(name: "first"), Schema.Group(name: "second")],
    tables: [
      Table(
        "a", group: "first", primaryKey: ["id"], columns: [Column("id", .text), Column("v", .text, nullable: true)]),
      Table(
        "b", group: "second", primaryKey: ["id"],
        columns: [Column("id", .text), Column("a_id", .text, nullable: true), Column("v", .text, nullable: true)],
        references: [Reference(column: "a_id", table: "a")]),
      Table(
        "draft", maintained: .client, primaryKey: ["id"],
        columns: [Column("id", .text), Column("a_id", .text, nullable: true)],
        references: [Reference(column: "a_id", table: "a", onDelete: .cascade)]),
      Table(
        "stub", maintained: .client, primaryKey: ["id"],
        columns: [Column("id", .text), Column("a_id", .text, nullable: true)],
        references: [Reference(column: "a_id", table: "a")]),
    ])

  /// Two groups; of the second, rows that reference the first, and rows below them.
  static let groupsBelow = Schema(
    groups: [Schema.Group(name: "first"), Schema.Group(name: "second")],
    tables: [
      Table("a", group: "first", primaryKey: ["id"], columns: [Column("id", .text)]),
      Table(
        "b", group: "second", primaryKey: ["id"],
        columns: [Column("id", .text), Column("a_id", .text, nullable: true)],
        references: [Reference(column: "a_id", table: "a", onDelete: .setNull)]),
      Table(
        "c", group: "second", primaryKey: ["id"], columns: [Column("id", .text), Column("b_id", .text)],
        references: [Reference(column: "b_id", table: "b")]),
    ])

  /// Values that a careless store bends: big integers, text that is not UTF-8, NUL, empty and NULL.
  static let hardRows: [Row] = [
    [
      .integer(Int64.max), .text([0xFF, 0x00, 0xC3]), "k", .real(-0.5), .blob([]), 1, "2026-01-01T00:00:00Z", "{ }",
      .integer(Int64.min),
    ],
    [
      .integer(Int64.min), "", "\u{0}\"\\/\u{1F600}", .real(.infinity), .blob([0, 255]), 0, "", "{\"a\" :1}",
      .integer(9_007_199_254_740_993),
    ],
    [0, .null, "", .real(.leastNonzeroMagnitude), .null, .null, .null, .null, .null],
    [-1, "e\u{301}", "é", .real(1), .blob(Array(repeating: 7, count: 5000)), .null, .null, .null, 0],
    [-1, "é", "e\u{301}", .real(0.1), .blob([0x27]), 1, "x", "null", -1],
  ]
}
