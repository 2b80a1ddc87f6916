import SQLiteSupport
import SalvorModel
import SalvorStorage
import Testing

@testable import SQLiteServerStore
@testable import ServerStoreSupport

/// What changed subscriptions add and drop is found by index: the cost is that of the rows that come and go
/// (docs/architecture/feed.md).
@Suite struct DifferencePlanTests {
  private static let schema = Schema(
    parameters: [Schema.Parameter(name: "region", type: .text), Schema.Parameter(name: "size", type: .integer)],
    tables: [
      Table(
        "site", primaryKey: ["id"], columns: [Column("id", .text), Column("region", .text), Column("size", .integer)],
        scope: [
          ScopeColumn(column: "region", source: .parameter("region")),
          ScopeColumn(column: "size", source: .parameter("size")),
        ]),
      Table(
        "visit", primaryKey: ["id"], columns: [Column("id", .text), Column("site_id", .text)],
        references: [Reference(column: "site_id", table: "site", inheritsScope: true)]),
      Table(
        "photo", primaryKey: ["id"], columns: [Column("id", .text), Column("visit_id", .text)],
        references: [Reference(column: "visit_id", table: "visit", inheritsScope: true)]),
      Table(
        "pass", primaryKey: ["id"], columns: [Column("id", .text), Column("area_id", .text), Column("person", .text)],
        scope: [ScopeColumn(column: "person", source: .principal)]),
      Table(
        "area", primaryKey: ["id"],
        columns: [Column("id", .text), Column("region", .text), Column("open", .boolean, defaultValue: 0)],
        scopeAlternatives: [
          [ScopeColumn(column: "open", source: .value(1))],
          [ScopeColumn(column: "id", source: .via(table: "pass", column: "area_id"))],
          [ScopeColumn(column: "region", source: .parameter("region"))],
        ]),
      Table(
        "plan", primaryKey: ["id"],
        columns: [Column("id", .text), Column("area_id", .text), Column("sheet_id", .text, nullable: true)],
        references: [Reference(column: "area_id", table: "area", inheritsScope: true)]),
      Table(
        "sheet", primaryKey: ["id"], columns: [Column("id", .text)],
        scope: [ScopeColumn(column: "id", source: .via(table: "plan", column: "sheet_id"))]),
    ])

  private let connection: SQLiteConnection
  private let catalog: Catalog

  init() throws {
    connection = try SQLiteConnection(try freshDatabase())
    var installation = Installation(
      connection, ServerSetup(schema: Self.schema), random: SystemRandom(), clock: SystemClock())
    catalog = try installation.run()
  }

  private func plan(
    _ table: String, _ wanted: Set<[String: Value]>?, _ had: Set<[String: Value]>?, of target: String = "site",
    after: Key = [], parameters: [String: [Value]] = [:]
  ) throws -> [String]? {
    let place = try #require(catalog.place(of: table))
    func filter(_ alternatives: Set<[String: Value]>?) -> ScopeFilter? {
      let subscriptions = ResolvedSubscriptions(alternatives.map { [target: $0] } ?? [:])
      return ScopeFilter(
        catalog.tables[place], ReadScope(Principal(name: "anna", parameters: parameters), subscriptions), catalog)
    }
    guard
      let difference = FeedPageMaker.Difference(catalog.tables[place], filter(wanted), without: filter(had))
    else { return nil }
    return try connection.rows(
      "EXPLAIN QUERY PLAN " + difference.sql(after: after, keysOnly: false), after + difference.values
    ).compactMap { $0[3].string }
  }

  @Test(
    "Rows of the table itself, of its children and of theirs are looked up, not looked for", arguments: [[], ["s9"]])
  func lookedUp(_ after: Key) throws {
    let cases: [(Set<[String: Value]>, Set<[String: Value]>?)] = [
      ([["region": "EU"], ["region": "US"]], [["region": "EU"]]), ([["region": "EU"]], [["region": "US"]]),
      ([["region": "EU", "size": 1]], [["region": "US"]]), ([["region": "EU"], ["size": 1]], [["region": "EU"]]),
    ]
    for (wanted, had) in cases {
      for parameters: [String: [Value]] in [[:], ["region": ["EU", "US"]]] {
        for table in ["site", "visit", "photo"] {
          let steps = try #require(try plan(table, wanted, had, after: after, parameters: parameters))
          #expect(
            steps.contains { $0.contains("USING INDEX salvor_scope_") || $0.contains("COVERING INDEX salvor_scope_") },
            "\(steps)")
          #expect(!steps.contains { $0.hasPrefix("SCAN") }, "\(table): \(steps)")
        }
      }
    }
  }

  @Test(
    "So are rows that are seen by several ways, and through a join table",
    arguments: [[:], ["region": ["EU", "US", "CA"]]] as [[String: [Value]]])
  func severalWays(_ parameters: [String: [Value]]) throws {
    let cases: [(Set<[String: Value]>, Set<[String: Value]>)] = [
      ([["region": "EU"], ["region": "US"]], [["region": "EU"]]), ([["region": "EU"]], [["region": "US"]]),
    ]
    for (wanted, had) in cases {
      for table in ["area", "plan", "sheet"] {
        let steps = try #require(try plan(table, wanted, had, of: "area", parameters: parameters))
        #expect(steps.contains { $0.contains("INDEX salvor_scope_") }, "\(table): \(steps)")
        #expect(!steps.contains { $0.hasPrefix("SCAN") }, "\(table): \(steps)")
      }
    }
  }

  @Test("Nothing is asked where nothing can come")
  func nothing() throws {
    #expect(try plan("site", [["region": "EU"]], nil) == nil)
    #expect(try plan("visit", [["region": "EU"]], [["region": "EU"], ["region": "US"]]) == nil)
    #expect(try plan("site", [], [["region": "EU"]]) == nil)
    // Everything, where there was a part: that is most of the table.
    #expect(try plan("site", nil, [["region": "EU"]]) != nil)
  }
}
