import SalvorModel
import SalvorStorage

/// The conditions that `CheckExpression` does not understand.
func problemsOfChecks(in tables: [Table]) -> [SchemaProblem] {
  tables.flatMap { table in
    table.check.enumerated().compactMap { index, text in
      guard (try? CheckExpression(text, table: table)) == nil else { return nil }
      return SchemaProblem(
        table: table.name, check: index,
        message: "is not a condition that the memory store understands: it knows comparisons of columns and constants")
    }
  }
}

extension MemoryClientStore: SchemaExamining {
  /// Of all tables, the client's own too: the CHECK expressions that this store cannot evaluate.
  public nonisolated func problems(in schema: Schema) -> [SchemaProblem] { problemsOfChecks(in: schema.tables) }
}

extension MemoryServerStore: SchemaExamining {
  /// Of the synchronized tables: the CHECK expressions that this store cannot evaluate.
  public nonisolated func problems(in schema: Schema) -> [SchemaProblem] { problemsOfChecks(in: schema.synchronized) }
}
