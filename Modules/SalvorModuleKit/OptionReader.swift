import SalvorModel

/// Reads the members of one object of a configuration file, remembers which keys were asked for, and collects
/// everything that is wrong: missing, wrong type, out of range, unknown, duplicate.
public struct OptionReader: Sendable {
  /// As diagnostics name it.
  public let file: String
  /// Key path of the object, e.g. `server.storage`; empty for the file itself.
  public let path: String
  /// 1-based, where the object begins; 0 for one that no file holds.
  public let line: Int
  /// What is wrong so far, in the order in which it was found. `finish(child:)` and `reportUnknownKeys()` add the
  /// unknown keys.
  public private(set) var diagnostics: [Diagnostic] = []
  let members: [ConfigurationValue.Member]
  private var known: [String] = []

  /// Reads `value`, an object at `path` of the file. Anything else is reported and read as an empty object; a key
  /// that stands twice is reported, and the first counts.
  public init(_ value: ConfigurationValue, file: String, path: String) {
    self.file = file
    self.path = path
    self.line = value.line
    if case .object(let members) = value.content {
      self.members = members
    } else {
      self.members = []
      report(path: path, line: value.line, "must be an object { … }, found \(value.kindName)")
    }
    var lines: [String: Int] = [:]
    for member in members {
      if let first = lines[member.key] {
        report(
          path: join(member.key), line: member.keyLine, "stands here again, first in line \(first); keep one of them")
      } else {
        lines[member.key] = member.keyLine
      }
    }
  }

  /// The key path of a member: `path.key`, or `path["key"]` where the key is no plain word.
  public func join(_ key: String) -> String { keyPath(path, key) }

  /// The keys in the order of the file, each once, for objects whose keys are names: tables, columns. They count as read.
  public mutating func names() -> [String] {
    var names: [String] = []
    for member in members where !names.contains(member.key) { names.append(member.key) }
    for name in names where !known.contains(name) { known.append(name) }
    return names
  }

  /// The keys that were asked for, in order: the options that a module has.
  public var keysRead: [String] { known }

  /// Whether the key stands there; it does not count as read.
  public func has(_ key: String) -> Bool { members.contains { $0.key == key } }

  /// Adds an error about any key path and line.
  public mutating func report(path: String, line: Int, _ message: String) {
    diagnostics.append(Diagnostic(file: file, line: line, path: path, message: message))
  }

  /// Adds an error about a key: at its line, or at the object's where the key is missing. The key does not count as
  /// read.
  public mutating func report(_ key: String, _ message: String) {
    report(path: join(key), line: members.first { $0.key == key }?.keyLine ?? line, message)
  }

  /// Adds a warning about a key, with the place as `report(_:_:)`.
  public mutating func warn(_ key: String, _ message: String) {
    diagnostics.append(
      Diagnostic(
        severity: .warning, file: file, line: members.first { $0.key == key }?.keyLine ?? line, path: join(key),
        message: message))
  }

  /// Adds what another reader has found, as it is.
  public mutating func adopt(_ other: [Diagnostic]) { diagnostics += other }

  /// The raw member, marked as read.
  public mutating func value(_ key: String) -> ConfigurationValue? {
    if !known.contains(key) { known.append(key) }
    return members.first { $0.key == key }?.value
  }

  /// Nil and reported where the key is missing or not a string.
  public mutating func string(_ key: String) -> String? {
    guard let value = value(key) else {
      report(key, "is missing; give a string")
      return nil
    }
    return string(value, key)
  }

  /// Nil where the key is missing or null, and where it is not a string, which is reported.
  public mutating func optionalString(_ key: String) -> String? {
    guard let value = value(key), value.content != .null else { return nil }
    return string(value, key)
  }

  /// As `optionalString(_:)`, with `fallback` in the place of nil.
  public mutating func string(_ key: String, default fallback: String) -> String {
    optionalString(key) ?? fallback
  }

  /// The path of a file. Nil and reported where it is missing, not a string, empty, or holds U+0000, which no path can.
  public mutating func path(_ key: String) -> String? {
    guard let path = string(key) else { return nil }
    if path.isEmpty {
      report(key, "is empty; name a file")
      return nil
    }
    if path.unicodeScalars.contains("\0") {
      report(key, "has the character U+0000 in it, which no path can have")
      return nil
    }
    return path
  }

  /// `fallback` where the key is missing, and where it is not `true` or `false`, which is reported.
  public mutating func boolean(_ key: String, default fallback: Bool) -> Bool {
    guard let value = value(key) else { return fallback }
    if case .bool(let bool) = value.content { return bool }
    report(key, "must be true or false, found \(value.kindName)")
    return fallback
  }

  /// `fallback` where the key is missing, and where it is not a whole number within the range, which is reported.
  /// An upper bound of `Int64.max` reads as none in the message.
  public mutating func integer(_ key: String, in range: ClosedRange<Int64>, default fallback: Int64) -> Int64 {
    guard let value = value(key) else { return fallback }
    // The number itself is not shown: it may come from the environment.
    var found = value.kindName
    if case .integer(let integer) = value.content {
      if range.contains(integer) { return integer }
      found = integer < range.lowerBound ? "a smaller one" : "a larger one"
    }
    let bounds =
      range.upperBound == .max ? "of at least \(range.lowerBound)" : "from \(range.lowerBound) to \(range.upperBound)"
    report(key, "must be a whole number \(bounds), found \(found)")
    return fallback
  }

  /// `fallback` where the key is missing, and where it is not a list, which is reported. Elements that are not
  /// strings are reported and left out.
  public mutating func strings(_ key: String, default fallback: [String]) -> [String] {
    guard let value = value(key) else { return fallback }
    guard case .array(let items) = value.content else {
      report(key, "must be a list of strings, found \(value.kindName)")
      return fallback
    }
    var out: [String] = []
    for (index, item) in items.enumerated() {
      if case .string(let text) = item.content {
        out.append(text)
      } else {
        report(path: join(key) + "[\(index)]", line: item.line, "must be a string, found \(item.kindName)")
      }
    }
    return out
  }

  /// One of the raw values of an enumeration.
  public mutating func choice<Choice: RawRepresentable & CaseIterable>(
    _ key: String, default fallback: Choice
  ) -> Choice where Choice.RawValue == String {
    choice(key, among: Choice.allCases.map(\.rawValue), default: fallback.rawValue).flatMap(Choice.init) ?? fallback
  }

  /// One of `allowed`, or `fallback` where the key is missing. Anything else is reported with the nearest of them.
  public mutating func choice(_ key: String, among allowed: [String], default fallback: String?) -> String? {
    guard let value = value(key), value.content != .null else { return fallback }
    guard let text = string(value, key) else { return fallback }
    if allowed.contains(text) { return text }
    reportUnknown(value, path: join(key), among: allowed)
    return fallback
  }

  /// `value` is a name that is not among those allowed.
  public mutating func reportUnknown(_ value: ConfigurationValue, path: String, among allowed: [String]) {
    guard case .string(let text) = value.content else { return }
    let near = value.isFromEnvironment ? "" : suggestion(text, among: allowed)
    report(
      path: path, line: value.line,
      "is \(value.shown ?? "no name"); allowed: \(allowed.joined(separator: ", "))\(near)")
  }

  /// A reader for the object under `key`; nil where there is none. Give its diagnostics back with `finish(child:)`.
  public mutating func object(_ key: String) -> OptionReader? {
    guard let value = value(key) else { return nil }
    return OptionReader(value, file: file, path: join(key))
  }

  /// Ends a child: its unknown keys and diagnostics become this reader's.
  public mutating func finish(child: OptionReader) {
    var child = child
    child.reportUnknownKeys()
    diagnostics += child.diagnostics
  }

  /// Reports the keys that nobody asked for, each once. Call it last.
  public mutating func reportUnknownKeys() {
    var reported: Set<String> = []
    for member in members where !known.contains(member.key) && reported.insert(member.key).inserted {
      let allowed = known.isEmpty ? "none is allowed" : "allowed: \(known.joined(separator: ", "))"
      report(
        path: join(member.key), line: member.keyLine,
        "is not a key here; \(allowed)\(suggestion(member.key, among: known))")
    }
  }

  private mutating func string(_ value: ConfigurationValue, _ key: String) -> String? {
    if case .string(let text) = value.content { return text }
    report(key, "must be a string, found \(value.kindName)")
    return nil
  }
}

extension ConfigurationValue {
  /// For messages: never the value itself, which may be a secret.
  public var kindName: String {
    switch content {
    case .null: "null"
    case .bool: "true or false"
    case .integer: "a whole number"
    case .number: "a number with a fraction or an exponent"
    case .string: "a string"
    case .array: "a list"
    case .object: "an object"
    }
  }
}
