import SalvorModel
import SalvorWire
import Testing

struct ProblemTests {
  @Test("A problem has nothing of the statement that failed in the server's database")
  func statements() {
    let long = "INSERT INTO secret " + String(repeating: "x", count: 900)
    for sql in ["INSERT INTO secret (a) VALUES ($1)", long] {
      let shown = sql.utf8.count > 600 ? String(sql.prefix(600)) + "…" : sql
      let error = SalvorError(
        .storage, "PostgreSQL: a value is not one of its column's type (22P02) in: \(shown). Try again.",
        context: ["sql": sql, "sqlstate": "22P02"])
      let text = Problem.json(error).text
      #expect(!text.contains("secret") && text.contains("22P02) in:") == false, "\(text)")
      #expect(text.contains("column's type (22P02). Try again.") && text.contains("sqlstate"), "\(text)")
    }
  }
}
