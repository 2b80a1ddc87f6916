import SalvorModel
import SalvorWire

/// What somebody chose on a device: personalization keys and subscriptions (semantics 1). A recovery keeps or loses them as
/// its strategy declares (`RecoveryGuarantees.settings`).
public struct DeviceSettings: Sendable, Hashable {
  /// The table `salvor_setting`: personalization keys by name.
  public var settings: [String: Value]
  /// The table `salvor_subscription`.
  public var subscriptions: Set<Subscription>
  /// The table `salvor_subscribed`: the targets, tables and groups, that were subscribed to once. One without subscriptions
  /// brings nothing; what is none brings everything.
  public var subscribed: Set<String>

  /// By default nobody has chosen anything. The targets of `subscriptions` are in `subscribed`, too.
  public init(
    settings: [String: Value] = [:], subscriptions: Set<Subscription> = [], subscribed: Set<String> = []
  ) {
    self.settings = settings
    self.subscriptions = subscriptions
    self.subscribed = subscribed.union(subscriptions.map(\.target))
  }

  /// In a fixed order, as people see them.
  public var sortedSubscriptions: [Subscription] {
    subscriptions.sorted { ($0.target, $0.parameterText) < ($1.target, $1.parameterText) }
  }

  /// The subscriptions with the values that the personalization keys have now.
  ///
  /// - Parameter parameters: those of the schema: a setting of another type is taken where its text is a value of the
  ///   parameter's.
  /// - Returns: also what brings nothing for want of a value, for the person.
  public func resolved(_ parameters: [Schema.Parameter]) -> (
    subscriptions: ResolvedSubscriptions, notices: [String]
  ) {
    var resolved = ResolvedSubscriptions(Dictionary(subscribed.map { ($0, []) }) { first, _ in first })
    var notices: [String] = []
    for subscription in sortedSubscriptions {
      var values: [String: Value] = [:]
      var missing: [String] = []
      var empty: [String] = []
      for (name, choice) in subscription.parameters.sorted(by: { $0.key < $1.key }) {
        switch choice {
        case .value(.null): empty.append(name)
        case .value(let value): values[name] = value
        case .setting(let key):
          let type = parameters.first { $0.name == name }?.type
          if let value = settings[key].flatMap({ Self.value($0, as: type) }) {
            values[name] = value
          } else {
            missing.append(key)
          }
        }
      }
      if !empty.isEmpty {
        notices.append(
          "The subscription \(subscription.target) \(subscription.parameterText) has neither a value nor a personalization key for \(empty.joined(separator: ", ")): it brings nothing. Give it one in salvor_subscription, or take it back."
        )
      } else if missing.isEmpty {
        resolved.targets[subscription.target, default: []].insert(values)
      } else {
        notices.append(
          "The personalization key \(missing.joined(separator: ", ")) has no value that fits: the subscription \(subscription.target) \(subscription.parameterText) brings nothing."
        )
      }
    }
    return (resolved, notices)
  }

  private static func value(_ value: Value, as type: ColumnType?) -> Value? {
    guard !value.isNull else { return nil }
    guard let type, !type.stores(value) else { return value }
    return value.string.flatMap { type.value(ofText: $0) }
  }
}

/// A table or a group, and the values that its rows are chosen by.
public struct Subscription: Sendable, Hashable {
  /// Where a parameter's value comes from.
  public enum Choice: Sendable, Hashable {
    /// It was given with the subscription.
    case value(Value)
    /// The value that the personalization key of this name has at each synchronization.
    case setting(String)
  }

  /// The name of a table or a group.
  public var target: String
  /// By parameter; empty: everything that the principal may see.
  public var parameters: [String: Choice]

  /// By default everything of the target that the principal may see.
  public init(target: String, parameters: [String: Choice] = [:]) {
    self.target = target
    self.parameters = parameters
  }

  /// Names it: 8 hexadecimal digits, the same wherever target and values are.
  public var id: String { String(digest(JSONValue.array([.string(target), parametersJSON]).bytes).suffix(8)) }

  /// `region=EU city=setting:home`
  public var parameterText: String {
    parameters.sorted { $0.key < $1.key }.map { name, choice in
      switch choice {
      case .value(.text(let bytes)): "\(name)=\(String(decoding: bytes, as: UTF8.self))"
      case .value(let value): "\(name)=\(value)"
      case .setting(let key): "\(name)=setting:\(key)"
      }
    }.joined(separator: " ")
  }

  /// `{NAME: VALUE or {"setting":KEY}}`
  public var parametersJSON: JSONValue {
    let values = parameters.sorted { $0.key < $1.key }.map { name, choice in
      switch choice {
      case .value(let value): JSONValue.Member(name, JSONValue(value))
      case .setting(let key): JSONValue.Member(name, ["setting": .string(key)])
      }
    }
    return .object(values)
  }
}

extension ColumnType {
  /// A value of this type from what a person writes; nil: it is none. Of a blob hexadecimal digits.
  public func value(ofText text: String) -> Value? {
    switch self {
    case .text, .timestamp, .json: return .text(text)
    case .integer: return Int64(text).map { .integer($0) }
    case .boolean:
      switch text {
      case "0", "false": return .integer(0)
      case "1", "true": return .integer(1)
      default: return nil
      }
    case .real: return Double(text).flatMap { $0.isFinite ? .real($0) : nil }
    case .blob:
      let digits = Array(text)
      guard digits.count.isMultiple(of: 2), digits.allSatisfy(\.isHexDigit) else { return nil }
      return .blob(
        stride(from: 0, to: digits.count, by: 2).map {
          UInt8((digits[$0].hexDigitValue ?? 0) << 4 | (digits[$0 + 1].hexDigitValue ?? 0))
        })
    }
  }
}
