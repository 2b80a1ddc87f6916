import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// A subscription, and whether its rows are on the device.
public struct SubscriptionStatus: Sendable, Hashable {
  /// What is subscribed to.
  public var subscription: Subscription
  /// The last synchronization of its group was made with it, and with the values that its personalization keys have now.
  public var isSynchronized: Bool
  /// No table of the target is chosen by one of its parameters (any more): it chooses no rows.
  public var isOutdated = false
}

/// Subscriptions: a table or a group with parameter values (docs/guides/subscriptions.md). All of this is the device's own
/// and needs no server; the next sync fetches what is new, and drops what no other subscription covers.
extension SalvorClient {
  /// In the order of their targets.
  public var subscriptions: [SubscriptionStatus] {
    get async throws {
      let store = try await openStore()
      let settings = try await store.deviceSettings()
      let groups = try await store.status().state.groups
      let choosable = try await choosableTables()
      return settings.sortedSubscriptions.map { subscription in
        let one = DeviceSettings(settings: settings.settings, subscriptions: [subscription])
        let values = one.resolved(configuration.schema.parameters).subscriptions.targets[subscription.target] ?? []
        let group = choosable.groups[subscription.target]
        let had = groups.first { $0.name == group && $0.isSynchronized }?.subscriptions.targets[subscription.target]
        let usable = choosable.parameters(of: subscription.target)
        return SubscriptionStatus(
          subscription: subscription, isSynchronized: !values.isEmpty && had.map(values.isSubset) ?? false,
          isOutdated: !choosable.groups.isEmpty && !usable.isSuperset(of: subscription.parameters.keys))
      }
    }
  }

  /// Targets that were subscribed to once and are not any more, in order: they bring nothing. One of whose tables none is chosen by a
  /// parameter any more brings all that the credential allows, and is not among them.
  public var emptyTargets: [String] {
    get async throws {
      let settings = try await openStore().deviceSettings()
      let choosable = try await choosableTables()
      return settings.subscribed.subtracting(settings.subscriptions.map(\.target)).filter {
        choosable.groups[$0] == nil || !choosable.parameters(of: $0).isEmpty
      }.sorted()
    }
  }

  /// Adds a subscription. The first one of a target narrows what it brings: before, that is all that the principal may see.
  ///
  /// - Parameters:
  ///   - target: a table or a group.
  ///   - parameters: what the rows are chosen by; empty: everything that the principal may see.
  /// - Returns: false: it was there already.
  /// - Throws: `usage` where the target or a parameter is not known, where no table of the target is chosen by the
  ///   parameter, or where the value is not of its type; `too-large` where the device has as many as a server takes.
  @discardableResult
  public func subscribe(_ target: String, _ parameters: [String: Subscription.Choice] = [:]) async throws -> Bool {
    if !isOpen { try await open(reattaching: true) }
    let subscription = Subscription(target: target, parameters: parameters)
    try await check(subscription)
    let isNew = try await change { settings -> Bool? in
      if settings.subscriptions.contains(subscription) { return false }
      // A server counts targets and subscriptions.
      let count = settings.subscribed.union([target]).count + settings.subscriptions.count + 1
      guard count <= ResolvedSubscriptions.countMax else { return nil }
      settings.subscribed.insert(target)
      settings.subscriptions.insert(subscription)
      return true
    }
    guard let isNew else {
      throw SalvorError(
        .tooLarge,
        "This device has as many subscriptions as a server takes (\(ResolvedSubscriptions.countMax), with their targets): \(subscription.text) was not added. Take others back (salvor unsubscribe), or subscribe to \(target) without a value.",
        context: ["target": target])
    }
    return isNew
  }

  /// Removes a subscription. A target whose last one is removed brings nothing, until it is subscribed to again. Throws
  /// `not-found` where there is none like it.
  public func unsubscribe(_ target: String, _ parameters: [String: Subscription.Choice] = [:]) async throws {
    let subscription = Subscription(target: target, parameters: parameters)
    guard try await change({ $0.subscriptions.remove(subscription) != nil }) else {
      throw SalvorError(
        .notFound,
        "There is no subscription \(subscription.text). salvor subscriptions lists them.", context: ["target": target])
    }
  }

  /// Removes every subscription of a target, which brings nothing from then on, also where it was never subscribed to.
  ///
  /// - Returns: what was removed.
  @discardableResult
  public func unsubscribe(allOf target: String) async throws -> [Subscription] {
    let store = try await openStore()
    if try await !store.deviceSettings().subscribed.contains(target) {
      try await check(Subscription(target: target))
    }
    return try await change { settings in
      let removed = settings.sortedSubscriptions.filter { $0.target == target }
      settings.subscriptions.subtract(removed)
      settings.subscribed.insert(target)
      return removed
    }
  }

  /// The type of a parameter's values; nil: nothing is chosen by such a parameter.
  public func parameterType(_ name: String) async throws -> ColumnType? {
    if let declared = configuration.schema.parameters.first(where: { $0.name == name }) { return declared.type }
    // A server that is ahead of the configuration file has delivered tables that are chosen by others.
    for table in try await choosableTables().tables {
      for scope in table.scopeColumns where scope.source == .parameter(name) {
        return table.columns.first { $0.name == scope.column }?.type
      }
    }
    return nil
  }

  private func change<Answer: Sendable>(
    _ body: @Sendable (inout DeviceSettings) -> Answer
  ) async throws -> Answer { try await openStore().changeDeviceSettings(body) }

  // MARK: What can be subscribed to

  private struct Choosable {
    /// Those with a condition of their own on a parameter.
    var tables: [Table] = []
    /// By table and by group, its group.
    var groups: [String: String] = [:]

    func parameters(of target: String) -> Set<String> { Schema(tables: tables).parameters(ofTarget: target) }
  }

  /// Of the device's tables, which a server may have delivered.
  private func choosableTables() async throws -> Choosable {
    var choosable = Choosable()
    for table in try await openStore().history().tables {
      choosable.groups[table.group] = table.group
      choosable.groups[table.name] = table.group
      if !table.scopeParameters.isEmpty { choosable.tables.append(table) }
    }
    return choosable
  }

  private func check(_ subscription: Subscription) async throws {
    let choosable = try await choosableTables()
    let target = subscription.target
    guard choosable.groups[target] != nil else {
      let names = choosable.groups.keys.sorted()
      throw SalvorError(
        .usage,
        "There is no table or group \"\(target)\"\(suggestion(target, among: names)). Known: \(names.joined(separator: ", "))."
      )
    }
    let usable = choosable.parameters(of: target)
    guard !usable.isEmpty else {
      let names = choosable.tables.map(\.name).sorted()
      throw SalvorError(
        .usage,
        "The rows of \(target) are not chosen by a parameter of its own, so there is nothing to subscribe to. "
          + (names.isEmpty
            ? "No table of the schema has one." : "Tables that have one: \(names.joined(separator: ", "))."))
    }
    for (name, choice) in subscription.parameters.sorted(by: { $0.key < $1.key }) {
      guard usable.contains(name) else { throw unusable(name, target, choosable, usable) }
      if case .value(let value) = choice, let type = try await parameterType(name), !type.stores(value) || value.isNull
      {
        throw SalvorError(.usage, "The value of \(name) is not of the parameter's type, \(type.rawValue).")
      }
    }
  }

  private func unusable(_ name: String, _ target: String, _ choosable: Choosable, _ usable: Set<String>) -> SalvorError
  {
    let owners = choosable.tables.filter { $0.scopeParameters.contains(name) }.map(\.name).sorted()
    if owners.isEmpty {
      return SalvorError(
        .usage,
        "There is no parameter \"\(name)\"\(suggestion(name, among: usable.sorted())). Those of \(target): \(usable.sorted().joined(separator: ", "))."
      )
    }
    return SalvorError(
      .usage,
      "The rows of \(target) are not chosen by \(name), but those of \(owners.joined(separator: ", ")): subscribe to that. "
        + "Tables that inherit its scope follow.")
  }
}

extension Subscription {
  /// `site region=EU`
  public var text: String { parameters.isEmpty ? target : "\(target) \(parameterText)" }
}
