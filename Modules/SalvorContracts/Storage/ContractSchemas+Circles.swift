import SalvorModel

/// Tables whose rows may reference themselves and one another, for applications that write with deferred foreign keys.
extension ContractSchemas {
  /// A table that references itself, one with a key of two columns below it, and two that reference each other.
  static let circles = Schema(tables: [
    Table(
      "node", primaryKey: ["id"],
      columns: [Column("id", .text), Column("above", .text, nullable: true), Column("label", .text, nullable: true)],
      references: [Reference(column: "above", table: "node")], unique: [["label"]]),
    Table(
      "line", primaryKey: ["node", "number"],
      columns: [Column("node", .text), Column("number", .integer), Column("next", .text, nullable: true)],
      references: [Reference(column: "node", table: "node"), Reference(column: "next", table: "node")]),
    Table(
      "desk", primaryKey: ["id"], columns: [Column("id", .text), Column("holder", .text, nullable: true)],
      references: [Reference(column: "holder", table: "person")]),
    Table(
      "person", primaryKey: ["id"], columns: [Column("id", .text), Column("desk", .text, nullable: true)],
      references: [Reference(column: "desk", table: "desk")]),
  ])

  /// A row that names one of those that have their scope from it.
  static let leads = Schema(
    parameters: [Schema.Parameter(name: "region", type: .text)],
    tables: [
      Table(
        "project", primaryKey: ["id"],
        columns: [Column("id", .text), Column("region", .text), Column("lead", .text, nullable: true)],
        references: [Reference(column: "lead", table: "task", soft: true)],
        scope: [ScopeColumn(column: "region", source: .parameter("region"))]),
      Table(
        "task", primaryKey: ["id"],
        columns: [Column("id", .text), Column("project_id", .text), Column("label", .text, nullable: true)],
        references: [Reference(column: "project_id", table: "project", inheritsScope: true)]),
    ])
}
