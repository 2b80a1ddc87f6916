import SalvorModel

/// Reads the members of one object of a configuration file, remembers which keys were asked for, and collects
/// everything that is wrong: missing, wrong type, out of range, unknown, duplicate.
public struct OptionReader: Sendable {
  public let file: String
  /// Key path of the object, e.g. `server.storage`; empty for the file itself.
  public let path: String
  public let line: Int
  public private(set) var diagnostics: [Diagnostic] = []
  let members: [ConfigurationValue.Member]
  private var known: [String] = []

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
    var seen: Set<String> = []
    for member in members where !seen.insert(member.key).inserted {
      report(path: join(member.key), line: member.keyLine, "stands here twice; keep one")
    }
  }

  public func join(_ key: String) -> String { path.isEmpty ? key : path + "." + key }

  public mutating func report(path: String, line: Int, _ message: String) {
    diagnostics.append(Diagnostic(file: file, line: line, path: path, message: message))
  }

  public mutating func report(_ key: String, _ message: String) {
    report(path: join(key), line: members.first { $0.key == key }?.keyLine ?? line, message)
  }

  public mutating func warn(_ key: String, _ message: String) {
    diagnostics.append(
      Diagnostic(
        severity: .warning, file: file, line: members.first { $0.key == key }?.keyLine ?? line, path: join(key),
        message: message))
  }

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

  public mutating func optionalString(_ key: String) -> String? {
    guard let value = value(key), value.content != .null else { return nil }
    return string(value, key)
  }

  public mutating func string(_ key: String, default fallback: String) -> String {
    optionalString(key) ?? fallback
  }

  public mutating func boolean(_ key: String, default fallback: Bool) -> Bool {
    guard let value = value(key) else { return fallback }
    if case .bool(let bool) = value.content { return bool }
    report(key, "must be true or false, found \(value.kindName)")
    return fallback
  }

  public mutating func integer(_ key: String, in range: ClosedRange<Int64>, default fallback: Int64) -> Int64 {
    guard let value = value(key) else { return fallback }
    guard case .integer(let integer) = value.content, range.contains(integer) else {
      report(key, "must be a whole number from \(range.lowerBound) to \(range.upperBound), found \(value.kindName)")
      return fallback
    }
    return integer
  }

  public mutating func strings(_ key: String, default fallback: [String]) -> [String] {
    guard let value = value(key) else { return fallback }
    guard case .array(let items) = value.content else {
      report(key, "must be a list of strings, found \(value.kindName)")
      return fallback
    }
    var out: [String] = []
    for item in items {
      if case .string(let text) = item.content {
        out.append(text)
      } else {
        report(key, "must hold strings only, found \(item.kindName)")
      }
    }
    return out
  }

  /// One of the raw values of an enumeration.
  public mutating func choice<Choice: RawRepresentable & CaseIterable>(
    _ key: String, default fallback: Choice
  ) -> Choice where Choice.RawValue == String {
    guard let text = optionalString(key) else { return fallback }
    if let choice = Choice(rawValue: text) { return choice }
    let allowed = Choice.allCases.map(\.rawValue)
    report(key, "is \"\(text)\"; allowed: \(allowed.joined(separator: ", "))\(suggestion(text, among: allowed))")
    return fallback
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

  /// Reports the keys that nobody asked for. Call it last.
  public mutating func reportUnknownKeys() {
    for member in members where !known.contains(member.key) {
      report(
        path: join(member.key), line: member.keyLine,
        "is not a key here; allowed: \(known.joined(separator: ", "))\(suggestion(member.key, among: known))")
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
    case .integer, .number: "a number"
    case .string: "a string"
    case .array: "a list"
    case .object: "an object"
    }
  }
}

/// `; did you mean "x"?` where one of `names` is near, else an empty string.
public func suggestion(_ name: String, among names: [String]) -> String {
  let near = names.map { ($0, editDistance(name.lowercased(), $0.lowercased())) }
    .filter { $0.1 <= max(1, name.count / 3) }.min { $0.1 < $1.1 }
  return near.map { "; did you mean \"\($0.0)\"?" } ?? ""
}

/// Insertions, deletions, substitutions and swaps of neighbours.
func editDistance(_ a: String, _ b: String) -> Int {
  let a = Array(a), b = Array(b)
  var rows = [Array(0...b.count)]
  for i in 0..<a.count {
    var row = [i + 1]
    for j in 0..<b.count {
      var best = min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (a[i] == b[j] ? 0 : 1))
      if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { best = min(best, rows[i - 1][j - 1] + 1) }
      row.append(best)
    }
    rows.append(row)
  }
  return rows[a.count][b.count]
}
