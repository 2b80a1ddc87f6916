import SalvorModel

extension ContractSchemas {
  /// `notes` under other names: the table, and its column `title`.
  static var memos: Schema {
    Schema(
      version: 2,
      tables: [
        Table(
          "memo", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("heading", .text, renamedFrom: ["title"]),
            Column("body", .text, nullable: true),
          ], renamedFrom: ["note"])
      ])
  }

  /// `notes` with one thing more in the table, and a table more: a later version of an application.
  static var laterNotes: Schema {
    var schema = notes()
    schema.version = 2
    schema.tables[0].columns.append(Column("stars", .integer, defaultValue: 0))
    schema.tables.append(
      Table(
        "extra", primaryKey: ["id"], columns: [Column("id", .text), Column("note_id", .text, nullable: true)],
        references: [Reference(column: "note_id", table: "note")]))
    return schema
  }

  /// `notes` without the column `body`, on purpose.
  static var shortNotes: Schema {
    var schema = notes()
    schema.version = 2
    schema.tables[0].columns.removeLast()
    schema.tables[0].dropped = ["body"]
    return schema
  }

  /// Two tables, one of which references the other.
  static let shelves = Schema(tables: [
    Table("shelf", primaryKey: ["id"], columns: [Column("id", .text), Column("place", .text)]),
    Table(
      "book", primaryKey: ["id"],
      columns: [Column("id", .text), Column("name", .text), Column("shelf_id", .text, nullable: true)],
      references: [Reference(column: "shelf_id", table: "shelf")]),
  ])

  /// `shelves` without the shelves.
  static var books: Schema {
    var schema = shelves
    schema.version = 2
    schema.tables.removeFirst()
    schema.tables[0].references = []
    schema.dropped = ["shelf"]
    return schema
  }
}
