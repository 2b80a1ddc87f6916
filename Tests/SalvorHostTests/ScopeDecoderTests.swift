import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire
import Testing

@Suite("scopes over join tables, alternatives and fixed values")
struct ScopeDecoderTests {
  private static let member = """
    member: {maintained: 'server', primaryKey: 'id', columns: {id: 'text', project: 'text', rank: 'integer', person: 'text', gone: 'boolean'},
      scope: {person: 'principal', gone: {value: false}}}
    """

  private func decode(_ tables: String) -> (schema: Schema?, diagnostics: [Diagnostic]) {
    let result = SchemaDecoder(file: "s", registry: nil).decode(Array("{tables: {\(tables)}}".utf8))
    return (result.schema, result.diagnostics)
  }

  private func messages(_ tables: String) -> [String] {
    decode(tables).diagnostics.map {
      ($0.severity == .warning ? "warning: " : "") + "\($0.path): \($0.message)"
    }
  }

  @Test("a list is read as alternatives, each whole; via and fixed values are read")
  func alternatives() throws {
    let (schema, diagnostics) = decode(
      """
      \(Self.member),
      project: {primaryKey: 'id', columns: {id: 'text', open: 'boolean', kind: 'text', share: 'real', region: 'text'},
        scope: [{open: {value: 1}, kind: {value: 'site'}}, {id: 'via:member.project'}, {share: {value: 0.5}}]},
      task: {primaryKey: 'id', columns: {id: 'text', project: 'text', owner: 'text'}, scope: {owner: 'principal'},
        references: {project: {table: 'project', scope: 'inherit'}}}
      """)
    #expect(diagnostics.map(\.message) == [])
    let project = try #require(schema?.table("project"))
    #expect(project.scope == [])
    #expect(
      project.scopeAlternatives == [
        [
          ScopeColumn(column: "open", source: .value(1)), ScopeColumn(column: "kind", source: .value("site")),
        ],
        [ScopeColumn(column: "id", source: .via(table: "member", column: "project"))],
        [ScopeColumn(column: "share", source: .value(.real(0.5)))],
      ])
    let task = try #require(schema?.table("task"))
    let ways = try #require(schema).scopeAlternatives(of: task)
    #expect(ways.map(\.dimensions) == [[.principal], [.principal, .principal], [.principal]])
    #expect(ways.map { $0.joins.map(\.table) } == [["project"], ["project"], ["project"]])
    #expect(ways[1].joins[0].scope.joins.map(\.table) == ["member"])
    #expect(try TableDefinition.table(TableDefinition.json(project)) == project)
  }

  @Test("a reference is safe where it is the way into its parent's scope, and nowhere else")
  func referenceThatBringsItsParent() {
    func found(_ scope: String, _ more: String = "") -> [String] {
      messages(
        """
        form: {primaryKey: 'id', columns: {id: 'text', open: 'boolean', who: 'text'}, scope: \(scope)\(more)},
        use: {membership: 'devices', primaryKey: 'id', columns: {id: 'text', form: 'text', other: 'text?', who: 'text'}, scope: {who: 'principal'},
          references: {form: 'form'}}
        """)
    }
    #expect(found("[{open: {value: 1}}, {id: 'via:use.form'}]") == [])
    #expect(found("{id: 'via:use.form'}") == [])
    for scope in [
      "[{open: {value: 1}}, {id: 'via:use.other'}]", "{who: 'principal'}", "{id: 'via:use.form', open: {value: 1}}",
    ] {
      #expect(
        found(scope).contains { $0.contains("tables.use.references.form: refers to \"form\", whose scope") }, "\(scope)"
      )
    }
  }

  @Test("ways that multiply through parents beyond what one statement holds are refused by name")
  func tooManyWays() {
    func chain(_ count: Int) -> [String] {
      let ways = ["a", "b", "c", "d"].map { "{\($0): 'principal'}" }.joined(separator: ", ")
      return messages(
        (1...count).map { number in
          "t\(number): {primaryKey: 'id', columns: {id: 'text', up: 'text', a: 'text', b: 'text', c: 'text', d: 'text'}, scope: [\(ways)]"
            + (number == 1 ? "}" : ", references: {up: {table: 't\(number - 1)', scope: 'inherit'}}}")
        }.joined(separator: ", "))
    }
    #expect(chain(3) == [])
    #expect(chain(4).count == 1)
    #expect(chain(4).first?.contains("tables.t4.scope: lets a row be seen by 256 ways, at most 64") == true)
    #expect(chain(30).last?.contains("very many ways") == true)
  }

  @Test(
    "mistakes are named",
    arguments: [
      ("scope: []", "scope: has no alternative; without a scope the rows are everyone's"),
      ("scope: [{}, {t: 'principal'}]", "scope[0]: names no column: by it the rows are everyone's"),
      ("scope: [{t: 'principal'}, 'x']", "scope[1]: must be an object { … }, found a string"),
      (
        "scope: [{t: 'nobody'}]",
        "scope[0].t: is \"nobody\"; allowed: principal, parameter:NAME, via:TABLE.COLUMN, { value: … }"
      ),
      (
        "scope: [{u: 'principal'}]", "scope: names the column \"u\", which the table does not have; did you mean \"t\"?"
      ),
      ("scope: {t: {}}", "scope.t.value: is missing; give the value that the column must have"),
      ("scope: {t: {value: null}}", "scope.t.value: must be a number, a text, true or false"),
      ("scope: {t: {value: 'x', of: 1}}", "scope.t.of: is not a key here; allowed: value"),
      ("scope: {t: {value: 1}}", "scope.t: is text, which does not store the value 1"),
      ("scope: {t: 'via:member'}", "scope.t: is \"via:member\"; name a table and its column: via:TABLE.COLUMN"),
      (
        "scope: {t: 'via:membr.project'}",
        "scope.t: goes via the table \"membr\", which is not in the schema; did you mean \"member\"?"
      ),
      (
        "scope: {t: 'via:member.projct'}",
        "scope.t: goes via the column \"projct\", which \"member\" does not have; did you mean \"project\"?"
      ),
      ("scope: {t: 'via:member.rank'}", "scope.t: is text, but \"member.rank\" is integer"),
      (
        "scope: {t: 'via:local.id'}",
        "scope.t: goes via \"local\", which is client-only: the server does not have its rows"
      ),
      (
        "scope: {t: 'via:open.id'}",
        "warning: scope.t: goes via \"open\", which has no scope: whatever row of it names a value shows it to everyone"
      ),
      ("scope: {t: 'via:a.t'}", "scope.t: has its scope in a circle: a → a"),
    ])
  func mistakes(keys: String, expected: String) {
    let found = messages(
      """
      a: {primaryKey: 'id', columns: {id: 'text', t: 'text'}, \(keys)}, \(Self.member),
      local: {maintained: 'client', primaryKey: 'id', columns: {id: 'text'}},
      open: {maintained: 'server', primaryKey: 'id', columns: {id: 'text'}}
      """)
    let isWarning = expected.hasPrefix("warning: ")
    let text = isWarning ? String(expected.dropFirst("warning: ".count)) : expected
    #expect(found == [(isWarning ? "warning: " : "") + "tables.a.\(text)"])
  }

  @Test("a table that scopes go through is the server's, unless the schema says otherwise in so many words")
  func membership() {
    func found(_ member: String, scope: String = "{id: 'via:member.project'}") -> [String] {
      messages(
        """
        member: {\(member) primaryKey: 'id', columns: {id: 'text', project: 'text', person: 'text'},
          scope: {person: 'principal'}},
        project: {primaryKey: 'id', columns: {id: 'text'}, scope: \(scope)}
        """)
    }
    let refusal =
      "decides who sees rows (the scope of project.id goes via it), and devices write it. Say maintained: \"server\"; or "
      + "membership: \"devices\", if devices are meant to let others in"
    #expect(found("") == ["tables.member: \(refusal)"])
    #expect(found("maintained: 'dual',") == ["tables.member.maintained: \(refusal)"])
    #expect(found("membership: 'server',") == ["tables.member: \(refusal)"])
    #expect(found("membership: 'devices',") == [])
    #expect(found("maintained: 'server',") == [])
    #expect(
      found("maintained: 'server', membership: 'devices',") == [
        "warning: tables.member.membership: has no effect: devices do not write member"
      ])
    #expect(
      found("membership: 'devices',", scope: "{id: 'principal'}") == [
        "warning: tables.member.membership: has no effect: no scope goes via member"
      ])
    #expect(found("membership: 'anybody',")[0].hasPrefix("tables.member.membership: is \"anybody\""))
  }

  @Test("a circle over join tables and references is named once")
  func circle() {
    let found = messages(
      """
      a: {primaryKey: 'id', columns: {id: 'text', b: 'text'}, references: {b: {table: 'b', scope: 'inherit'}}},
      b: {primaryKey: 'id', columns: {id: 'text'}, scope: [{id: 'principal'}, {id: 'via:c.b'}]},
      c: {membership: 'devices', primaryKey: 'id', columns: {id: 'text', b: 'text', a: 'text'}, references: {a: {table: 'a', scope: 'inherit'}}}
      """)
    #expect(found == ["tables.c.references.a: inherits its scope in a circle: a → b → c → a"])
  }

  @Test("definitions written before there were alternatives are read")
  func olderDefinition() throws {
    let json = try JSONValue(
      parsing: Array(
        #"""
        {"name":"t","maintained":"dual","group":"g","download":"cursor","primaryKey":["id"],
        "columns":[{"name":"id","type":"text"},{"name":"r","type":"text"}],
        "scope":[{"column":"id","principal":true},{"column":"r","parameter":"region"}],"conflicts":"client-wins"}
        """#.utf8))
    let table = try TableDefinition.table(json)
    #expect(
      table.scope == [
        ScopeColumn(column: "id", source: .principal), ScopeColumn(column: "r", source: .parameter("region")),
      ])
    #expect(table.scopeAlternatives == [])
  }

  @Test("another scope is another digest, a plain one's stays what it was")
  func digests() {
    let columns = [Column("id", .text), Column("a", .text)]
    func digest(_ scope: [ScopeColumn], _ alternatives: [[ScopeColumn]] = []) -> String {
      let table = Table("t", primaryKey: ["id"], columns: columns, scope: scope, scopeAlternatives: alternatives)
      let member = Table(
        "m", primaryKey: ["id"], columns: columns, scope: [ScopeColumn(column: "a", source: .principal)])
      let schema = Schema(tables: [table, member])
      return Principal(name: "anna").scopeDigest(of: [schema.scopeAlternatives(of: table)])
    }
    let own = ScopeColumn(column: "a", source: .principal)
    let fixed = ScopeColumn(column: "a", source: .value("anna"))
    let via = ScopeColumn(column: "id", source: .via(table: "m", column: "id"))
    let other = ScopeColumn(column: "id", source: .via(table: "m", column: "a"))
    let digests = [
      digest([own]), digest([fixed]), digest([via]), digest([other]), digest([], [[own], [via]]),
      digest([], [[via], [own]]), digest([own, via]), digest([]),
    ]
    #expect(Set(digests).count == digests.count)
    #expect(digest([own]) == digest([], [[own]]))
    #expect(digest([own]) == SalvorStorage.digest(Array(##""a""\"anna\"""##.utf8)))
  }
}
