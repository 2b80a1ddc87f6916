import SalvorModel
import SalvorStorage
import SalvorWire

/// What a session is about: its begin, and what the device compares.
struct SessionSubject: ConversationSubject {
  var begin: SessionBegin
  var compared: ComparedTables?

  init(begin: SessionBegin, compared: ComparedTables? = nil) {
    self.begin = begin
    self.compared = compared
  }

  /// Of a session that this process began, or another one.
  init(_ subject: any ConversationSubject) throws {
    if let own = subject as? SessionSubject {
      self = own
      return
    }
    let json = try JSONValue(parsing: subject.bytes)
    begin = SessionBegin(message: try BeginMessage(json))
    begin.answersAgain = json["answersAgain"]?.bool ?? false
    begin.sendsConfig = json["sendsConfig"]?.bool ?? false
    begin.incarnations = try json.optionalArray("incarnations").map { try $0.map { try Incarnation($0) } } ?? []
    begin.heal = try json["heal"].map { terms in
      HealTerms(
        incarnation: try terms.identifier("incarnation"), floor: terms["floor"]?.integer,
        waiting: try terms.integer("waiting"), settlings: try terms.integer("settlings"),
        deletes: terms["deletes"]?.integer)
    }
    compared = try json["tables"].map { tables in
      ComparedTables(
        head: try Commit(tables["head"] ?? .null), fed: Set(try tables.array("fed").compactMap(\.string)),
        whole: Set(try tables.array("whole").compactMap(\.string)), ownUpTo: tables["ownUpTo"]?.integer)
    }
  }

  var bytes: [UInt8] {
    var members = begin.message.json.members ?? []
    if begin.answersAgain { members.append(.init("answersAgain", .bool(true))) }
    if begin.sendsConfig { members.append(.init("sendsConfig", .bool(true))) }
    if !begin.incarnations.isEmpty {
      members.append(.init("incarnations", .array(begin.incarnations.map(\.json))))
    }
    if let heal = begin.heal {
      var terms: [JSONValue.Member] = [
        .init("incarnation", .string(heal.incarnation.text)), .init("waiting", .integer(heal.waiting)),
        .init("settlings", .integer(heal.settlings)),
      ]
      if let deletes = heal.deletes { terms.append(.init("deletes", .integer(deletes))) }
      if let floor = heal.floor { terms.append(.init("floor", .integer(floor))) }
      members.append(.init("heal", .object(terms)))
    }
    if let compared {
      var tables: [JSONValue.Member] = [
        .init("head", compared.head.json), .init("fed", .array(compared.fed.sorted().map(JSONValue.string))),
        .init("whole", .array(compared.whole.sorted().map(JSONValue.string))),
      ]
      if let own = compared.ownUpTo { tables.append(.init("ownUpTo", .integer(own))) }
      members.append(.init("tables", .object(tables)))
    }
    return JSONValue.object(members).bytes
  }
}

/// What a recovery is about: the scopes that its rows are compared in.
struct RecoverySubject: ConversationSubject {
  var scopes: GroupScopes

  init(scopes: GroupScopes) { self.scopes = scopes }

  init(_ subject: any ConversationSubject, in schema: Schema) throws {
    if let own = subject as? RecoverySubject {
      self = own
      return
    }
    var subscriptions: [String: ResolvedSubscriptions] = [:]
    for member in try JSONValue(parsing: subject.bytes).members ?? [] {
      subscriptions[member.key] = try ResolvedSubscriptions(member.value)
    }
    scopes = GroupScopes(subscriptions, in: schema)
  }

  var bytes: [UInt8] {
    JSONValue.object(
      scopes.subscriptions.sorted { $0.key < $1.key }.map { JSONValue.Member($0.key, $0.value.json) }
    ).bytes
  }
}
