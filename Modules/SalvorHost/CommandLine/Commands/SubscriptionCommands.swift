import SalvorClientEngine
import SalvorModel
import SalvorStorage
import SalvorWire

/// What this device subscribes to (semantics 1). The commands need no server: the next sync acts.
extension Command {
  static let subscribe = Command(
    "subscribe", "fetches only rows with these parameter values from now on",
    discussion: """
      TARGET is a table or a group. Several subscriptions of one target are alternatives: what any of them covers is fetched.
      Tables that inherit their scope follow their parents. Without values it covers all that the credential allows.
      A target that was never subscribed to brings all that the credential allows; once it was, it brings what is subscribed
      to, and after the last unsubscribe nothing. A value that the credential does not allow brings nothing, and the sync says
      so: a subscription is a choice, no protection.

        salvor subscribe site region=EU                  text, numbers, 0 and 1: by the parameter's type
        salvor subscribe site region=setting:home        the value that the row 'home' of salvor_setting has at each sync

      Needs no server. The next sync fetches what is new; rows on the device that no subscription covers go, those with
      changes that wait only after these are sent.
      """,
    arguments: ["TARGET", "[NAME=VALUE …]"]
  ) { invocation in
    let client = try await invocation.makeClient()
    try await client.open(reattaching: true)
    let subscription = try await subscription(invocation.arguments, client)
    let isNew = try await client.subscribe(subscription.target, subscription.parameters)
    await client.close()
    let terminal = invocation.terminal
    terminal.json(["subscription": subscription.json(isSynchronized: nil), "added": .bool(isNew)])
    terminal.say(
      isNew
        ? "subscribed to \(subscription.text) (\(subscription.id)); the next sync fetches it"
        : "\(subscription.text) (\(subscription.id)) was subscribed to already")
    return 0
  }

  static let unsubscribe = Command(
    "unsubscribe", "takes a subscription back: what no other one covers goes with the next sync",
    discussion: """
      Name it as it was made, by target and values, or by its ID. After the last one of a target, or with --all, the target
      brings NOTHING until it is subscribed to again. Rows with changes that wait stay until these are sent. Needs no server.
      """,
    arguments: ["TARGET", "[NAME=VALUE …]"], options: [Option("all", "all subscriptions of the target")]
  ) { invocation in
    let client = try await invocation.makeClient()
    var removed: [Subscription] = []
    if invocation.flags.contains("all") {
      guard invocation.arguments.count == 1 else {
        throw SalvorError(.usage, "--all takes every subscription of the target: give no values with it.")
      }
      removed = try await client.unsubscribe(allOf: invocation.arguments[0])
    } else {
      let named = try await named(invocation.arguments, client)
      try await client.unsubscribe(named.target, named.parameters)
      removed = [named]
    }
    let target = removed.first?.target ?? invocation.arguments[0]
    let isLast = try await !client.subscriptions.contains { $0.subscription.target == target }
    let isEmpty = try await client.emptyTargets.contains(target)
    await client.close()
    let terminal = invocation.terminal
    terminal.json([
      "removed": .array(removed.map { $0.json(isSynchronized: nil) }), "target": .string(target),
      "bringsNothing": .bool(isEmpty),
    ])
    for subscription in removed { terminal.say("unsubscribed from \(subscription.text) (\(subscription.id))") }
    if isEmpty {
      terminal.say("\(target) brings nothing now, until it is subscribed to again")
    } else if isLast {
      terminal.say("\(target) brings every row that the credential allows: no table of it is chosen by a parameter")
    }
    return 0
  }

  static let subscriptions = Command(
    "subscriptions", "what this device subscribes to",
    discussion: """
      Reads the device's database only. A target that was never subscribed to brings all that the credential allows; one whose
      last subscription was taken back brings nothing, and is named.
      """
  ) { invocation in
    let client = try await invocation.makeClient()
    let found = try await client.subscriptions
    let empty = try await client.emptyTargets
    await client.close()
    let terminal = invocation.terminal
    terminal.json([
      "subscriptions": .array(found.map { $0.subscription.json(isSynchronized: $0.isSynchronized) }),
      "empty": .array(empty.map(JSONValue.string)),
    ])
    if found.isEmpty {
      terminal.say("nothing is subscribed to")
    } else {
      terminal.table(
        ["id", "target", "parameters", "synchronized"],
        found.map { status in
          let subscription = status.subscription
          return [
            subscription.id, subscription.target, subscription.parameterText,
            status.isOutdated ? "outdated" : status.isSynchronized ? "yes" : "not yet",
          ]
        })
    }
    for status in found where status.isOutdated {
      terminal.say(
        "\(status.subscription.text) chooses no rows: no table of \(status.subscription.target) is chosen by it in the server's schema (any more). Take it back (salvor unsubscribe)"
      )
    }
    for target in empty { terminal.say("\(target) brings nothing: its last subscription was taken back") }
    return 0
  }
}

extension Subscription {
  fileprivate func json(isSynchronized: Bool?) -> JSONValue {
    var members: [JSONValue.Member] = [
      .init("id", .string(id)), .init("target", .string(target)), .init("parameters", parametersJSON),
    ]
    if let isSynchronized { members.append(.init("synchronized", .bool(isSynchronized))) }
    return .object(members)
  }
}

/// The one that an ID names, or target and values.
private func named(_ arguments: [String], _ client: SalvorClient) async throws -> Subscription {
  let known = try await client.subscriptions.map(\.subscription)
  if arguments.count == 1 {
    if let found = known.first(where: { $0.id == arguments[0] }) { return found }
    let others = known.filter { $0.target == arguments[0] }
    if !others.isEmpty, !others.contains(where: \.parameters.isEmpty) {
      throw SalvorError(
        .usage,
        "Which one of \(arguments[0])? \(others.map(\.parameterText).joined(separator: "; ")). Name its values, or give --all."
      )
    }
  }
  return try await subscription(arguments, client)
}

/// `TARGET NAME=VALUE …`, the values by the parameters' types.
private func subscription(_ arguments: [String], _ client: SalvorClient) async throws -> Subscription {
  var subscription = Subscription(target: arguments[0])
  for argument in arguments.dropFirst() {
    guard let mark = argument.firstIndex(of: "="), mark > argument.startIndex else {
      throw SalvorError(.usage, "\"\(argument)\" is no NAME=VALUE.")
    }
    let name = String(argument[..<mark]), text = String(argument[argument.index(after: mark)...])
    guard subscription.parameters[name] == nil else {
      throw SalvorError(.usage, "\(name) is given twice. Alternatives are subscriptions of their own.")
    }
    subscription.parameters[name] = try choice(text, name, try await client.parameterType(name))
  }
  return subscription
}

private func choice(_ text: String, _ name: String, _ type: ColumnType?) throws -> Subscription.Choice {
  let prefix = "setting:"
  if text.hasPrefix(prefix) {
    let key = String(text.dropFirst(prefix.count))
    guard !key.isEmpty else { throw SalvorError(.usage, "\(name)=setting: names no personalization key.") }
    return .setting(key)
  }
  // What is chosen by nothing is refused by name, with what is near.
  let type = type ?? .text
  guard let value = type.value(ofText: text) else {
    throw SalvorError(.usage, "The value of \(name) is not of the parameter's type, \(type.rawValue).")
  }
  return .value(value)
}
