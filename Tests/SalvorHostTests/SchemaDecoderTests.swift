import SalvorHost
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import StandardModules
import Testing

@Suite("schema.json5 (interfaces.md)")
struct SchemaDecoderTests {
  private func decode(_ text: String, registry: ModuleRegistry? = policies) -> SchemaResult {
    SchemaDecoder(file: "s", registry: registry).decode(Array(text.utf8))
  }

  /// The built-in policies, and one with an option.
  private static let policies = try? ModuleRegistry(
    StandardModules.all + [
      ModuleFactory(
        ModuleDescriptor(
          kind: .conflictPolicy, name: "higher", summary: "A test's",
          options: [ModuleOption("column", type: "string", default: nil, "a column")]),
        product: (any ConflictPolicy).self
      ) { reader, _ in
        guard let column = reader.string("column") else { return nil }
        return { UniformConflictPolicy(.merged([NamedValue(column, 1)])) }
      }
    ])

  /// A schema of tables only; each begins in the first line.
  private func report(tables: String, _ head: String = "") -> [String] {
    decode("{\(head) tables: {\(tables)}}").diagnostics.map { render([$0]) }
  }

  @Test("the example of interfaces.md is read without a diagnostic, and means what it says")
  func example() throws {
    let result = decode(ExampleFiles.schema)
    #expect(render(result.diagnostics) == "")
    let schema = try #require(result.schema)
    #expect(schema.version == 1)
    #expect(schema.parameters == [.init(name: "region", type: .text)])
    #expect(schema.groups == [.init(name: "reference"), .init(name: "inspections", serverInitiated: true)])
    #expect(schema.tables.map(\.name) == ["severity", "establishment", "inspection", "infraction", "draft"])
    #expect(
      schema.table("severity")
        == Table(
          "severity", maintained: .server, group: "reference", download: .keySet, primaryKey: ["id"],
          columns: [Column("id", .integer), Column("name", .text)]))
    #expect(
      schema.table("establishment")
        == Table(
          "establishment", group: "inspections", primaryKey: ["id"],
          columns: [
            Column("id", .text), Column("name", .text), Column("region", .text, nullable: true),
            Column("min_inspections_per_year", .integer, defaultValue: 1),
          ], scope: [ScopeColumn(column: "region", source: .parameter("region"))]))
    #expect(
      schema.table("inspection")?.references == [
        Reference(column: "establishment_id", table: "establishment", inheritsScope: true, onDelete: .cascade)
      ])
    #expect(schema.table("inspection")?.conflicts == "keep-versions")
    let infraction = try #require(schema.table("infraction"))
    #expect(infraction.primaryKey == ["inspection_id", "line"])
    #expect(infraction.flags == FlagColumns(dirty: "IsDirty", deleted: "IsDeleted"))
    #expect(infraction.travelling.map(\.name) == ["inspection_id", "line", "note"])
    #expect(schema.table("draft")?.maintained == .client)
  }

  @Test("every key of a table is read")
  func everyKey() throws {
    let result = decode(
      """
      { tables: { a: {
        primaryKey: ["x"], columns: { x: "text", y: "integer", z: "text?" }, references: { z: "a" },
        unique: [["y", "z"], ["z"]], check: ["y < 100"], conflicts: "server-wins", sameKey: "refuse", handover: true,
        applicationTriggers: "off", download: "cursor", scope: { }, } } }
      """)
    #expect(result.diagnostics.map(\.path) == ["tables.a.scope"])
    let sound = decode(
      """
      { version: 7, tables: { a: {
        primaryKey: ["x"], columns: { x: "text", y: "integer", z: "text?" },
        references: { z: { table: "a", soft: true, onDelete: "set null" } },
        unique: [["y", "z"], ["z"]], check: ["y < 100"], conflicts: "server-wins", sameKey: "refuse", handover: true,
        applicationTriggers: "off", download: "cursor", scope: { x: "principal" }, } } }
      """)
    #expect(render(sound.diagnostics) == "")
    #expect(sound.schema?.version == 7)
    #expect(sound.schema?.groups == [.init(name: "default")])
    #expect(
      sound.schema?.tables == [
        Table(
          "a", primaryKey: ["x"],
          columns: [Column("x", .text), Column("y", .integer), Column("z", .text, nullable: true)],
          references: [Reference(column: "z", table: "a", onDelete: .setNull, soft: true)],
          scope: [ScopeColumn(column: "x", source: .principal)], unique: [["y", "z"], ["z"]], check: ["y < 100"],
          conflicts: "server-wins", sameKey: .refuse, handover: true, applicationTriggers: false)
      ])
  }

  @Test(
    "sameKey is merge or refuse, or true or false",
    arguments: [("true", SameKey.merge), ("false", .refuse), ("'merge'", .merge)])
  func sameKey(text: String, expected: SameKey) {
    let result = decode("{tables: {a: {primaryKey: 'x', columns: {x: 'integer'}, sameKey: \(text)}}}")
    #expect(result.diagnostics == [])
    #expect(result.schema?.tables[0].sameKeyRule == expected)
  }

  @Test("names with quotes, spaces and Unicode are legal")
  func names() {
    let result = decode(
      #"""
      {tables: {'größe "x"': {primaryKey: 'it\'s', columns: {"it's": 'text', '표': 'text?'}, references: {'표': 'größe "x"'}},
                Größe: {primaryKey: 'a b', columns: {'a b': 'blob', größe: 'real', GRÖßE: 'real'}}}}
      """#)
    #expect(render(result.diagnostics) == "")
    #expect(result.schema?.tables.map(\.name) == ["größe \"x\"", "Größe"])
  }

  @Test(
    "the shape of the file",
    arguments: [
      ("[]", ["s:1: must be an object { … }, found a list"]),
      ("{}", ["s:1: tables: is missing; give an object of tables: { NAME: { primaryKey: …, columns: { … } } }"]),
      ("{tables: {}}", ["s:1: tables: has no table"]),
      ("{tables: {a: 3}}", ["s:1: tables.a: must be an object { … }, found a whole number"]),
      (
        "{tables: {\na: {}}}",
        [
          "s:2: tables.a.primaryKey: is missing; give the key column, or a list of them",
          "s:2: tables.a.columns: is missing; give an object of columns: { id: \"text\" }",
        ]
      ),
      (
        "{vresion: 2, tables: {a: {primaryKey: 'x', columns: {x: 'text'}}}}",
        [
          "s:1: vresion: is not a key here; allowed: version, parameters, groups, tables, dropped; did you mean \"version\"?"
        ]
      ),
      (
        "{version: 0, tables: {a: {primaryKey: 'x', columns: {x: 'text'}}}}",
        ["s:1: version: must be a whole number of at least 1, found a smaller one"]
      ),
      (
        "{parameters: {p: 'text?', 'a=b': 'text', q: 1}, tables: {a: {primaryKey: 'x', columns: {x: 'text'}, scope: {x: 'parameter:p'}}}}",
        [
          "s:1: parameters.p: is the type \"text?\"; allowed: text, integer, real, blob, boolean, timestamp, json; did you mean \"text\"?",
          "s:1: parameters.q: must be a string, found a whole number",
          "s:1: parameters[\"a=b\"]: has = in its name; subscriptions give values as NAME=VALUE",
          "s:1: warning: parameters[\"a=b\"]: is used by no scope",
        ]
      ),
      (
        "{groups: {g: {serverInitated: true}, h: 1}, tables: {a: {group: 'g', primaryKey: 'x', columns: {x: 'text'}}}}",
        [
          "s:1: groups.g.serverInitated: is not a key here; allowed: serverInitiated; did you mean \"serverInitiated\"?",
          "s:1: groups.h: must be an object { … }, found a whole number",
          "s:1: warning: groups.h: is a group without a table",
        ]
      ),
    ] as [(String, [String])])
  func shape(text: String, expected: [String]) {
    #expect(decode(text).diagnostics.map { render([$0]) } == expected)
  }

  @Test("each table that both sides write has the conflict policy that it names, with its options (interfaces.md)")
  func conflictPolicies() throws {
    let text = """
      {tables: {
        plain: {primaryKey: 'x', columns: {x: 'text', n: 'integer'}},
        named: {primaryKey: 'x', columns: {x: 'text', n: 'integer'}, conflicts: 'keep-versions'},
        options: {primaryKey: 'x', columns: {x: 'text', n: 'integer'}, conflicts: {module: 'higher', column: 'n'}},
        read: {maintained: 'server', primaryKey: 'x', columns: {x: 'text'}}}}
      """
    let result = decode(text)
    #expect(render(result.diagnostics) == "")
    #expect(result.schema?.tables.map(\.conflicts) == ["client-wins", "keep-versions", "higher", "client-wins"])
    #expect(
      try result.conflictPolicies.mapValues { try $0.make().uniform }
        == ["plain": .client, "named": .both, "options": .merged([NamedValue("n", 1)])])
  }

  @Test("a device needs to know no conflict policy (semantics 7)")
  func conflictPoliciesOfADevice() {
    for conflicts in ["'keep-version'", "{module: 'keep-version', depth: 3}"] {
      let text = "{tables: {a: {primaryKey: 'x', columns: {x: 'text'}, conflicts: \(conflicts)}}}"
      let result = decode(text, registry: nil)
      #expect(render(result.diagnostics) == "")
      #expect(result.schema?.tables.map(\.conflicts) == ["keep-version"])
      #expect(result.conflictPolicies.isEmpty)
    }
  }

  @Test("a file that is not JSON5 has one diagnostic, with line and column")
  func syntax() {
    #expect(decode("{tables: {\n a: }}").diagnostics.map { render([$0]) } == ["s:2:5: expected a value, found “}”"])
  }

  @Test(
    "one table's mistakes, each with its path",
    arguments: [
      ("maintained: 'sever'", "maintained: is \"sever\"; allowed: server, dual, client; did you mean \"server\"?"),
      ("download: 'keyset'", "download: is \"keyset\"; allowed: cursor, key-set; did you mean \"key-set\"?"),
      (
        "conflicts: 'keep-version'",
        "conflicts: \"keep-version\" is no conflict-policy module here; known: client-wins, higher, keep-versions, program, server-wins; did you mean \"keep-versions\"?"
      ),
      (
        "conflicts: { module: 'keep-version' }",
        "conflicts.module: \"keep-version\" is no conflict-policy module here; known: client-wins, higher, keep-versions, program, server-wins; did you mean \"keep-versions\"?"
      ),
      (
        "conflicts: { module: 'keep-versions', column: 'n' }",
        "conflicts.column: is not a key here; allowed: module"
      ),
      ("conflicts: 'higher'", "conflicts.column: is missing; give a string"),
      ("conflicts: { column: 'n' }", "conflicts: names no module; give a policy's name, or { module: \"NAME\", … }"),
      ("conflicts: 3", "conflicts: must be a policy's name or an object { module: … }, found a whole number"),
      ("sameKey: 'join'", "sameKey: is \"join\"; allowed: merge, refuse"),
      ("applicationTriggers: 'of'", "applicationTriggers: is \"of\"; allowed: on, off; did you mean \"on\"?"),
      ("handover: 'yes'", "handover: must be true or false, found a string"),
      ("group: 3", "group: must be a string, found a whole number"),
      ("group: ''", "group: has no name"),
      ("unique: ['n']", "unique[0]: must be a list of columns, [\"a\", \"b\"], found a string"),
      ("unique: [[1]]", "unique[0][0]: must be a string, found a whole number"),
      ("unique: [[]]", "unique[0]: names no column"),
      ("unique: [['n', 'n']]", "unique: names the column \"n\" twice, at [0]"),
      (
        "unique: [['nn']]", "unique: names the column \"nn\", which the table does not have; did you mean \"n\"?"
      ),
      ("check: 'n > 0'", "check: must be a list of strings, found a string"),
      ("check: ['n > 0', '  ']", "check: has no condition at [1]"),
      ("flags: {dirty: 'n'}", "flags.dirty: names the column \"n\", which is integer, not boolean"),
      (
        "flags: {drity: 'n'}", "flags.drity: is not a key here; allowed: dirty, deleted; did you mean \"dirty\"?"
      ),
      ("flags: {deleted: 'gone'}", "flags.deleted: names the column \"gone\", which the table does not have"),
      ("flags: {dirty: 'f', deleted: 'f'}", "flags: names the column \"f\" for both dirty and deleted"),
      ("flags: {dirty: 'on'}", "columns.on: is a flag; its default can only be 0"),
      (
        "flags: {dirty: 'bare'}",
        "columns.bare: is a flag, which never travels: it needs the default 0 for rows that come from the server: \"boolean = 0\""
      ),
      ("flags: {dirty: 'f'}, unique: [['f']]", "unique: names the flag column \"f\", which never travels"),
      ("flags: {dirty: 'f'}, scope: {f: 'parameter:flag'}", "scope.f: is a flag column, which never travels"),
      (
        "scope: {n: 'everyone'}",
        "scope.n: is \"everyone\"; allowed: principal, parameter:NAME, via:TABLE.COLUMN, { value: … }"
      ),
      (
        "scope: {t: 'inherit'}",
        "scope.t: is \"inherit\"; allowed: principal, parameter:NAME, via:TABLE.COLUMN, { value: … }; a scope is inherited under references: { table: …, scope: \"inherit\" }"
      ),
      (
        "scope: {t: 'pricipal'}",
        "scope.t: is \"pricipal\"; allowed: principal, parameter:NAME, via:TABLE.COLUMN, { value: … }; did you mean \"principal\"?"
      ),
      ("scope: {n: 'principal'}", "scope.n: is compared with the principal, which is text, but is integer"),
      ("scope: {t: 'parameter:number'}", "scope.t: is text, but the parameter \"number\" is integer"),
      (
        "scope: {t: 'parameter:numbr'}",
        "scope.t: names the parameter \"numbr\"; declared under parameters: number, flag; did you mean \"number\"?"
      ),
      (
        "scope: {tt: 'principal'}",
        "scope.tt: names the column \"tt\", which the table does not have; did you mean \"t\"?"
      ),
      ("scope: {}", "scope: names no column; without a scope the rows are everyone's"),
      ("scope: 'principal'", "scope: must be an object { … } or a list of them, found a string"),
      ("references: {t: 3}", "references.t: must be a table's name or an object { table: … }, found a whole number"),
      ("references: {t: {}}", "references.t.table: is missing; give a string"),
      (
        "references: {t: {table: 'other', onDelete: 'delete'}}",
        "references.t.onDelete: is \"delete\"; allowed: no action, restrict, cascade, set null"
      ),
      ("references: {t: {table: 'other', scope: 'own'}}", "references.t.scope: is \"own\"; allowed: inherit"),
      (
        "references: {t: 'othr'}",
        "references.t: names the table \"othr\", which is not in the schema; did you mean \"other\"?"
      ),
      (
        "references: {t: 'Other'}",
        "references.t: names the table \"Other\", which is not in the schema; did you mean \"other\"?"
      ),
      (
        "references: {missing: 'other'}",
        "references.missing: names the column \"missing\", which the table does not have"
      ),
      ("references: {n: 'other'}", "references.n: is integer, but the key \"id\" of \"other\" is text"),
      (
        "references: {t: 'pair'}",
        "references.t: refers to \"pair\", whose primary key has 2 columns; only a key of one column can be referenced"
      ),
      (
        "references: {t: {table: 'other', onDelete: 'set null'}}",
        "references.t: has onDelete: \"set null\", but the column is not nullable; make it \"text?\""
      ),
      (
        "references: {t: 'local'}",
        "references.t: refers to \"local\", which is client-only: the server does not have the row. Make it dual or server-maintained, or this table client-only"
      ),
      (
        "references: {t: {table: 'local', soft: true}}",
        "references.t: refers to \"local\", which is client-only: the server does not have the row. Make it dual or server-maintained, or this table client-only"
      ),
      (
        "references: {t: {table: 'other', scope: 'inherit'}}",
        "references.t: inherits the scope of \"other\", which has none; leave scope out"
      ),
      (
        "references: {t: 'mine'}",
        "references.t: refers to \"mine\", whose scope this row need not be in: whoever gets the row might not get the one it needs. Say scope: \"inherit\", or soft: true (no foreign key on the device)"
      ),
      (
        "scope: {t: 'principal'}, references: {u: 'a'}",
        "references.u: refers to \"a\", whose scope this row need not be in: whoever gets the row might not get the one it needs. Say scope: \"inherit\", or soft: true (no foreign key on the device)"
      ),
      (
        "references: {u: {table: 'mine', scope: 'inherit'}}",
        "warning references.u: inherits a scope through a nullable column: rows where it is NULL are in nobody's scope"
      ),
      ("references: {t: {table: 'a', scope: 'inherit'}}", "references.t: inherits its scope in a circle: a → a"),
      ("maintained: 'client', scope: {t: 'principal'}", "scope: a client-only table never travels"),
      (
        "maintained: 'client', references: {t: {table: 'mine', scope: 'inherit'}}",
        "references.t: inherits a scope, but a client-only table never travels"
      ),
      ("maintained: 'client', group: 'x'", "warning group: has no effect on a client-only table"),
      (
        "maintained: 'server', conflicts: 'client-wins'",
        "warning conflicts: has no effect on a server-maintained table"
      ),
      (
        "conlficts: 'client-wins'",
        "conlficts: is not a key here; allowed: maintained, group, download, primaryKey, columns, references, scope, unique, check, conflicts, flags, sameKey, membership, handover, applicationTriggers, heal, renamedFrom, dropped; did you mean \"conflicts\"?"
      ),
    ])
  func mistakes(keys: String, expected: String) {
    let found = report(
      tables: """
        a: {primaryKey: 'id', columns: {id: 'text', t: 'text', u: 'text?', n: 'integer', f: 'boolean = 0', on: 'boolean = 1', bare: 'boolean'}, \(keys)},
        other: {primaryKey: 'id', columns: {id: 'text'}},
        pair: {primaryKey: ['x', 'y'], columns: {x: 'text', y: 'text'}},
        local: {maintained: 'client', primaryKey: 'id', columns: {id: 'text'}},
        mine: {primaryKey: 'id', columns: {id: 'text', n: 'integer', f: 'boolean'}, scope: {id: 'principal', n: 'parameter:number', f: 'parameter:flag'}}
        """, "parameters: {number: 'integer', flag: 'boolean'},")
    let isWarning = expected.hasPrefix("warning ")
    let text = isWarning ? String(expected.dropFirst("warning ".count)) : expected
    #expect(found == ["s:1: \(isWarning ? "warning: " : "")tables.a.\(text)"])
  }

  @Test(
    "keys and columns",
    arguments: [
      ("primaryKey: []", "x: 'text'", ["primaryKey: names no column"]),
      ("primaryKey: ['x', 'x']", "x: 'text'", ["primaryKey: names the column \"x\" twice"]),
      ("primaryKey: {}", "x: 'text'", ["primaryKey: must be a column or a list of columns, found an object"]),
      (
        "primaryKey: 'y'", "x: 'text'",
        ["primaryKey: names the column \"y\", which the table does not have; did you mean \"x\"?"]
      ),
      (
        "primaryKey: 'x'", "x: 'text?'",
        ["columns.x: is nullable (?) and in the primary key; a key column always has a value"]
      ),
      (
        "primaryKey: 'x'", "x: 'txt'",
        [
          "columns.x: is the type \"txt\"; allowed: text, integer, real, blob, boolean, timestamp, json; did you mean \"text\"?"
        ]
      ),
      (
        "primaryKey: 'x'", "x: 1", ["columns.x: must be a column's type or an object { type: … }, found a whole number"]
      ),
      ("primaryKey: []", "", ["primaryKey: names no column", "columns: has no column"]),
      (
        "primaryKey: 'x'", "x: 'text', X: 'text'",
        ["columns.X: is the same column as \"x\" for SQLite, which does not tell A from a in names"]
      ),
      ("primaryKey: 'x'", "x: 'text', x: 'text'", ["columns.x: stands here again, first in line 1; keep one of them"]),
      ("primaryKey: 'x'", "x: 'text', '': 'text'", ["columns[\"\"]: has no name"]),
      (
        "primaryKey: 'x'", #"x: 'text', 'a\0b': 'text'"#,
        ["columns[\"a\\u{0}b\"]: has the character U+0000 in its name, which SQLite cannot keep"]
      ),
      (
        "primaryKey: 'x', flags: {dirty: 'x'}", "x: 'boolean = 0'",
        [
          "flags.dirty: names the column \"x\", which is in the primary key",
          "warning primaryKey: is an integer key on a table that both sides write: two devices make the same key for different rows, and the second is refused. Use a text key (a UUID), or say sameKey: \"merge\" or \"refuse\"",
        ]
      ),
    ] as [(String, String, [String])])
  func keys(key: String, columns: String, expected: [String]) {
    let found = report(tables: "a: {\(key), columns: {\(columns)}}")
    let wanted = expected.map { text in
      text.hasPrefix("warning ") ? "s:1: warning: tables.a.\(text.dropFirst(8))" : "s:1: tables.a.\(text)"
    }
    #expect(Set(found) == Set(wanted))
    #expect(found.count == wanted.count)
  }

  @Test("semantics 7: integer keys on dual-maintained tables are warned of, not refused, and not where sameKey decides")
  func integerKeys() {
    let result = decode("{tables: {a: {primaryKey: 'x', columns: {x: 'integer'}}}}")
    #expect(result.schema != nil)
    #expect(result.diagnostics.map(\.severity) == [.warning])
    #expect(result.diagnostics.map(\.path) == ["tables.a.primaryKey"])
    for sound in [
      "maintained: 'server', primaryKey: 'x'", "primaryKey: 'x', sameKey: 'refuse'", "primaryKey: ['x', 't']",
      "maintained: 'client', primaryKey: 'x'",
    ] {
      #expect(report(tables: "a: {\(sound), columns: {x: 'integer', t: 'text'}}") == [])
    }
  }

  @Test(
    "names of tables",
    arguments: [
      ("'salvor_x'", "tables.salvor_x: begins with salvor_; such names are not the application's"),
      ("'Salvor_X'", "tables.Salvor_X: begins with salvor_; such names are not the application's"),
      ("'SQLITE_x'", "tables.SQLITE_x: begins with sqlite_; such names are not the application's"),
      ("''", "tables[\"\"]: has no name"),
      ("B", "tables.B: is the same table as \"b\" for SQLite, which does not tell A from a in names"),
      ("b", "tables.b: stands here again, first in line 1; keep one of them"),
    ])
  func tableNames(name: String, expected: String) {
    let body = "{primaryKey: 'x', columns: {x: 'text'}}"
    #expect(report(tables: "b: \(body), \(name): \(body)") == ["s:1: " + expected])
  }

  @Test("a name that no message can hold is refused, a group's, too", arguments: [1024, 1025])
  func longNames(count: Int) {
    let (name, table) = (String(repeating: "g", count: count), "primaryKey: 'x', columns: {x: 'text'}")
    let told = [
      report(tables: "a: {group: '\(name)', \(table)}", "groups: {\(name): {}},"),
      report(tables: "\(name): {\(table)}"),
      report(tables: "a: {primaryKey: 'x', columns: {x: 'text', \(name): 'text?'}}"),
    ]
    for report in told {
      #expect(report.contains { $0.contains("more than 1024 bytes, which no message can hold") } == (count > 1024))
    }
  }

  @Test("a table's group is declared where groups are declared; default always is")
  func groups() {
    let table = "primaryKey: 'x', columns: {x: 'text'}"
    #expect(
      report(
        tables: "a: {group: 'refrence', \(table)}, b: {\(table)}, c: {group: 'default', \(table)}",
        "groups: {reference: {}},")
        == [
          "s:1: warning: groups.reference: is a group without a table",
          "s:1: tables.a.group: is \"refrence\", which is not declared under groups; declared: reference; did you mean \"reference\"?",
        ])
    #expect(report(tables: "a: {group: 'anything', \(table)}") == [])
  }

  @Test("scopes: inherited twice, over several tables and beside an own one, all are kept")
  func inheritedScopes() throws {
    let result = decode(
      """
      {parameters: {region: 'text'}, tables: {
        region: {primaryKey: 'id', columns: {id: 'text'}, scope: {id: 'parameter:region'}},
        owner: {primaryKey: 'id', columns: {id: 'text'}, scope: {id: 'principal'}},
        shop: {primaryKey: 'id', columns: {id: 'text', region: 'text', owner: 'text'},
          references: {region: {table: 'region', scope: 'inherit'}, owner: {table: 'owner', scope: 'inherit'}}},
        visit: {primaryKey: 'id', columns: {id: 'text', shop: 'text', by: 'text', last: 'text?'}, scope: {by: 'principal'},
          references: {shop: {table: 'shop', scope: 'inherit'}, last: {table: 'visit', soft: true}}}}}
      """)
    #expect(render(result.diagnostics) == "")
    let schema = try #require(result.schema)
    let visit = try #require(schema.table("visit"))
    let scope = try #require(schema.scopeAlternatives(of: visit).first)
    #expect(schema.scopeAlternatives(of: visit).count == 1)
    #expect(scope.conditions.map(\.column) == ["by"])
    #expect(scope.dimensions == [.principal, .parameter("region"), .principal])
  }

  @Test("a circle of inherited scopes is named once")
  func circles() {
    func table(_ name: String, _ parent: String) -> String {
      "\(name): {primaryKey: 'id', columns: {id: 'text', p: 'text'}, references: {p: {table: '\(parent)', scope: 'inherit'}}}"
    }
    #expect(
      report(tables: [table("a", "b"), table("b", "c"), table("c", "a")].joined(separator: ",\n"))
        == ["s:3: tables.c.references.p: inherits its scope in a circle: a → b → c → a"])
  }

  @Test("two ways to a parent without a scope are no circle")
  func diamond() {
    let root = "r: {primaryKey: 'id', columns: {id: 'text'}}"
    func child(_ name: String, _ parents: String...) -> String {
      let columns = parents.enumerated().map { "p\($0.offset): 'text'" }.joined(separator: ", ")
      let references = parents.enumerated().map { "p\($0.offset): {table: '\($0.element)', scope: 'inherit'}" }
      return
        "\(name): {primaryKey: 'id', columns: {id: 'text', \(columns)}, references: {\(references.joined(separator: ", "))}}"
    }
    let found = report(tables: [root, child("a", "r"), child("b", "r"), child("c", "a", "b")].joined(separator: ",\n"))
    #expect(
      found == [
        "s:2: tables.a.references.p0: inherits the scope of \"r\", which has none; leave scope out",
        "s:3: tables.b.references.p0: inherits the scope of \"r\", which has none; leave scope out",
        "s:4: tables.c.references.p0: inherits the scope of \"a\", which has none; leave scope out",
        "s:4: tables.c.references.p1: inherits the scope of \"b\", which has none; leave scope out",
      ])
  }

  @Test("limits.columnsMax counts the columns that travel")
  func columnsMax() {
    func table(_ count: Int, _ more: String) -> String {
      let columns = (0..<count).map { "c\($0): 'text'" }.joined(separator: ", ")
      return "{tables: {a: {primaryKey: 'c0', columns: {\(columns), f: 'boolean = 0'}, flags: {dirty: 'f'} \(more)}}}"
    }
    #expect(decode(table(1000, "")).diagnostics == [])
    #expect(
      decode(table(1001, "")).diagnostics.map { render([$0]) }
        == ["s:1: tables.a.columns: has 1001 columns; at most 1000 travel (limits.columnsMax)"])
  }

  @Test("a value that could not be read causes no second diagnostic about its absence")
  func cascades() {
    #expect(
      report(
        tables: """
          a: {primaryKey: 'id', columns: {id: 'text', b: 'tekst'}, references: {b: 'b'}, unique: [['b']], scope: {b: 'parameter:p'}},
          b: {primaryKey: 5, columns: {id: 'text'}}, c: {primaryKey: 'id', columns: 3, unique: [['x']]}
          """, "parameters: {p: 5},"
      ).map { $0.split(separator: ":")[2] } == [
        " parameters.p", " tables.a.columns.b", " tables.b.primaryKey", " tables.c.columns",
      ])
  }

  @Test("renamedFrom and dropped: a name or a list, for tables and columns")
  func evolution() throws {
    let result = decode(
      """
      { tables: { orders: { renamedFrom: ["bill", "order"], primaryKey: "id",
          columns: { id: "text", total: { type: "real? = 0.5", renamedFrom: "sum" } }, dropped: ["note"] } },
        dropped: ["customer"] }
      """)
    #expect(render(result.diagnostics) == "")
    let schema = try #require(result.schema)
    #expect(schema.dropped == ["customer"])
    #expect(schema.tables[0].renamedFrom == ["bill", "order"])
    #expect(schema.tables[0].dropped == ["note"])
    #expect(
      schema.tables[0].columns[1]
        == Column("total", .real, nullable: true, defaultValue: .real(0.5), renamedFrom: ["sum"]))
    let config = SyncConfig(schema)
    #expect(try SyncConfig(config.json) == config)
    #expect(config.digest != SyncConfig(Schema(version: 1, tables: schema.tables)).digest)
  }

  @Test("a former name is no present one, and leads to one thing only")
  func contradictoryEvolution() {
    let found = report(
      tables: """
        a: { renamedFrom: "b", primaryKey: "id", columns: { id: "text", x: { type: "text", renamedFrom: ["id", "y"] } } },
        b: { primaryKey: "id", columns: { id: "text", z: { type: "text", renamedForm: "y" } }, dropped: ["z", "id"] },
        c: { renamedFrom: ["d", "D"], primaryKey: "id", columns: { id: "text", q: 3 } },
        """, #"dropped: ["d", "a", "e", "e"], "#)
    for part in [
      #"tables.a.renamedFrom: names the table "b", which is there"#,
      #"tables.a.columns.x.renamedFrom: names the column "id", which is there"#,
      #"did you mean "renamedFrom"?"#, #"tables.b.dropped: names the column "z", which is there"#,
      #"tables.b.dropped: names the column "id""#, #"tables.c.renamedFrom: holds "D" twice"#,
      "tables.c.columns.q: must be a column's type or an object",
      #"dropped: names "d", which "c" was renamed from"#, #"dropped: names the table "a", which is there"#,
      #"dropped: holds "e" twice"#,
    ] {
      #expect(found.contains { $0.contains(part) }, "\(part) in \(found.joined(separator: "\n"))")
    }
  }
}
