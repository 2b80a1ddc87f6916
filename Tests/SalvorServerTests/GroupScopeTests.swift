import SalvorModel
import SalvorStorage
import SalvorWire
import Testing

@testable import SalvorServerEngine

@Suite("In which scopes rows are compared (docs/decisions/0009-subscriptions.md)")
struct GroupScopeTests {
  private let principal = Principal(name: "anna")

  private func schema(_ name: String, renamedFrom: [String] = []) -> Schema {
    Schema(
      parameters: [Schema.Parameter(name: "region", type: .text)],
      groups: [Schema.Group(name: "places"), Schema.Group(name: "words")],
      tables: [
        Table(
          name, group: "places", primaryKey: ["id"], columns: [Column("id", .text), Column("region", .text)],
          scope: [ScopeColumn(column: "region", source: .parameter("region"))], renamedFrom: renamedFrom),
        Table("word", group: "words", primaryKey: ["id"], columns: [Column("id", .text)]),
      ])
  }

  private func message(cursor: Commit?) -> BeginMessage {
    var message = BeginMessage(
      remote: RemoteID(from: SystemRandom()), server: nil, previous: nil, current: nil, schemaVersion: 1,
      schemaDigest: "",
      groups: [
        BeginMessage.Group(
          name: "places", cursor: cursor, scope: "x", subscriptions: ResolvedSubscriptions(["site": [["region": "EU"]]])
        )
      ], upload: .none, position: nil, history: nil)
    message.subscriptions = ResolvedSubscriptions(["site": [["region": "US"]], "word": []])
    return message
  }

  @Test("a group is compared by what its cursor was made with; without a cursor, by what it is to be")
  func byCursor() {
    let schema = schema("site")
    let cursor = Commit(number: 1, id: CommitID(from: SystemRandom()))
    let known = GroupScopes(message(cursor: cursor), in: schema), new = GroupScopes(message(cursor: nil), in: schema)
    #expect(
      known.scope(ofTable: "site", for: principal)
        == ReadScope(principal, ResolvedSubscriptions(["site": [["region": "EU"]]])))
    #expect(
      new.scope(ofTable: "site", for: principal)
        == ReadScope(principal, ResolvedSubscriptions(["site": [["region": "US"]]])), "what matters for the group alone"
    )
    #expect(new.scope(ofTable: "nobody's", for: principal) == ReadScope(principal))
  }

  @Test("a device that knows a table by a former name means the same rows, and its cursor stands")
  func formerNames() {
    let before = schema("site"), now = schema("place", renamedFrom: ["site"])
    let message = message(cursor: nil).following(now)
    #expect(message.subscriptions?.targets.keys.sorted() == ["place", "word"])
    #expect(message.groups[0].subscriptions == ResolvedSubscriptions(["place": [["region": "EU"]]]))
    let old = ReadScope(principal, self.message(cursor: nil).groups[0].subscriptions)
    let new = ReadScope(principal, message.groups[0].subscriptions)
    #expect(
      old.subscriptionDigest(ofGroup: "places", in: before) == new.subscriptionDigest(ofGroup: "places", in: now))
    #expect(old.subscriptionDigest(ofGroup: "words", in: before) == "")
  }

  @Test("a subscription by a parameter that the schema has no more brings nothing, not everything")
  func goneParameter() {
    let gone = ResolvedSubscriptions([
      "site": [["area": "EU"]], "places": [["region": "EU"], [:]], "word": [["region": "EU"]],
    ])
    #expect(
      gone.following(schema("site"))
        == ResolvedSubscriptions(["site": [], "places": [["region": "EU"], [:]], "word": []]))
  }
}
