import SalvorModel

/// A CHECK constraint, as far as this store understands SQL: columns, numbers, texts, NULL, `+ - * /`, comparisons,
/// IS [NOT] NULL, [NOT] IN (…), [NOT] BETWEEN, AND, OR, NOT, length(…) and brackets. Anything else is refused when the
/// database is opened.
indirect enum CheckExpression: Sendable {
  case literal(Value)
  case column(Int)
  case unary(String, CheckExpression)
  case binary(String, CheckExpression, CheckExpression)
  case list(CheckExpression, [CheckExpression])

  init(_ text: String, table: Table) throws {
    var parser = CheckParser(text, table: table)
    self = try parser.whole()
  }

  /// NULL is neither true nor false.
  func value(of row: Row) -> Value {
    switch self {
    case .literal(let value): value
    case .column(let index): row[index]
    case .unary(let name, let operand): Self.unary(name, operand.value(of: row))
    case .binary(let name, let left, let right): Self.binary(name, left.value(of: row), right.value(of: row))
    case .list(let operand, let items): Self.isIn(operand.value(of: row), items.map { $0.value(of: row) })
    }
  }

  private static func unary(_ name: String, _ value: Value) -> Value {
    switch name {
    case "isnull": .integer(value.isNull ? 1 : 0)
    case "not": value.isNull ? .null : .integer(value.isFalse ? 1 : 0)
    case "-": binary("-", .integer(0), value)
    default: length(value)
    }
  }

  private static func length(_ value: Value) -> Value {
    switch value {
    case .null: .null
    case .text(let bytes): .integer(Int64(String(decoding: bytes, as: UTF8.self).unicodeScalars.count))
    case .blob(let bytes): .integer(Int64(bytes.count))
    case .integer(let number): .integer(Int64(number.description.utf8.count))
    case .real(let number): .integer(Int64(number.description.utf8.count))
    }
  }

  private static func isIn(_ value: Value, _ items: [Value]) -> Value {
    if value.isNull { return .null }
    if items.contains(where: { binary("=", value, $0) == .integer(1) }) { return .integer(1) }
    return items.contains(.null) ? .null : .integer(0)
  }

  private static func binary(_ name: String, _ left: Value, _ right: Value) -> Value {
    switch name {
    case "and":
      if left.isFalse || right.isFalse { return .integer(0) }
      return left.isNull || right.isNull ? .null : .integer(1)
    case "or":
      if left.isTrue || right.isTrue { return .integer(1) }
      return left.isNull || right.isNull ? .null : .integer(0)
    default: break
    }
    if left.isNull || right.isNull { return .null }
    switch name {
    case "<": return .integer(valuePrecedes(left, right) ? 1 : 0)
    case ">": return .integer(valuePrecedes(right, left) ? 1 : 0)
    case "<=": return .integer(valuePrecedes(right, left) ? 0 : 1)
    case ">=": return .integer(valuePrecedes(left, right) ? 0 : 1)
    case "=": return .integer(valuePrecedes(left, right) || valuePrecedes(right, left) ? 0 : 1)
    case "<>": return .integer(valuePrecedes(left, right) || valuePrecedes(right, left) ? 1 : 0)
    default: return arithmetic(name, left, right)
    }
  }

  private static func arithmetic(_ name: String, _ left: Value, _ right: Value) -> Value {
    if case .integer(let x) = left, case .integer(let y) = right {
      switch name {
      case "+": return .integer(x &+ y)
      case "-": return .integer(x &- y)
      case "*": return .integer(x &* y)
      default: return y == 0 ? .null : .integer(y == -1 ? 0 &- x : x / y)
      }
    }
    guard let x = left.double, let y = right.double else { return .null }
    switch name {
    case "+": return .real(x + y)
    case "-": return .real(x - y)
    case "*": return .real(x * y)
    default: return y == 0 ? .null : .real(x / y)
    }
  }
}

extension Value {
  var double: Double? {
    switch self {
    case .integer(let x): Double(x)
    case .real(let x): x
    default: nil
    }
  }

  var isTrue: Bool { !isNull && (double ?? 0) != 0 }
  var isFalse: Bool { !isNull && (double ?? 0) == 0 }
}

/// Recursive descent over the words of a check.
private struct CheckParser {
  private let text: String
  private let table: Table
  private var words: [String] = []
  private var place = 0

  init(_ text: String, table: Table) {
    self.text = text
    self.table = table
    words = Self.split(text)
  }

  mutating func whole() throws -> CheckExpression {
    let expression = try disjunction()
    guard place == words.count else { throw unsupported() }
    return expression
  }

  private func unsupported() -> SalvorError {
    SalvorError(
      .schemaRefused,
      "The memory store cannot evaluate a check of the table \(table.name): \(text). Use a comparison of columns and "
        + "constants, or another storage module.", context: ["table": table.name])
  }

  private static func split(_ text: String) -> [String] {
    var words: [String] = []
    var rest = text[...]
    while let first = rest.first {
      if first.isWhitespace {
        rest.removeFirst()
      } else if first == "'" || first == "\"" {
        var end = rest.index(after: rest.startIndex)
        while end < rest.endIndex {
          let next = rest.index(after: end)
          if rest[end] == first {
            guard next < rest.endIndex, rest[next] == first else { break }
            end = rest.index(after: next)
          } else {
            end = next
          }
        }
        let stop = end < rest.endIndex ? rest.index(after: end) : rest.endIndex
        words.append(String(rest[..<stop]))
        rest = rest[stop...]
      } else if first.isLetter || first.isNumber || first == "_" {
        let word = rest.prefix { $0.isLetter || $0.isNumber || $0 == "_" || $0 == "." }
        words.append(String(word))
        rest = rest.dropFirst(word.count)
      } else if ["<=", ">=", "<>", "!=", "=="].contains(String(rest.prefix(2))) {
        words.append(String(rest.prefix(2)))
        rest = rest.dropFirst(2)
      } else {
        words.append(String(first))
        rest.removeFirst()
      }
    }
    return words
  }

  private mutating func take(_ word: String) -> Bool {
    guard place < words.count, words[place].lowercased() == word else { return false }
    place += 1
    return true
  }

  private mutating func need(_ word: String) throws { if !take(word) { throw unsupported() } }

  private mutating func disjunction() throws -> CheckExpression {
    var left = try conjunction()
    while take("or") { left = .binary("or", left, try conjunction()) }
    return left
  }

  private mutating func conjunction() throws -> CheckExpression {
    var left = try negation()
    while take("and") { left = .binary("and", left, try negation()) }
    return left
  }

  private mutating func negation() throws -> CheckExpression {
    take("not") ? .unary("not", try negation()) : try comparison()
  }

  private mutating func comparison() throws -> CheckExpression {
    let left = try sum()
    for name in ["<=", ">=", "<>", "<", ">", "="] where take(name) { return .binary(name, left, try sum()) }
    if take("!=") { return .binary("<>", left, try sum()) }
    if take("==") { return .binary("=", left, try sum()) }
    if take("is") {
      let negated = take("not")
      try need("null")
      return negated ? .unary("not", .unary("isnull", left)) : .unary("isnull", left)
    }
    let negated = take("not")
    var found: CheckExpression?
    if take("between") {
      let low = try sum()
      try need("and")
      found = .binary("and", .binary(">=", left, low), .binary("<=", left, try sum()))
    } else if take("in") {
      try need("(")
      var items = [try sum()]
      while take(",") { items.append(try sum()) }
      try need(")")
      found = .list(left, items)
    }
    guard let found else {
      if negated { throw unsupported() }
      return left
    }
    return negated ? .unary("not", found) : found
  }

  private mutating func sum() throws -> CheckExpression {
    var left = try product()
    while true {
      if take("+") {
        left = .binary("+", left, try product())
      } else if take("-") {
        left = .binary("-", left, try product())
      } else {
        return left
      }
    }
  }

  private mutating func product() throws -> CheckExpression {
    var left = try primary()
    while true {
      if take("*") {
        left = .binary("*", left, try primary())
      } else if take("/") {
        left = .binary("/", left, try primary())
      } else {
        return left
      }
    }
  }

  private mutating func primary() throws -> CheckExpression {
    if take("(") {
      let inner = try disjunction()
      try need(")")
      return inner
    }
    if take("-") { return .unary("-", try primary()) }
    if take("null") { return .literal(.null) }
    guard place < words.count else { throw unsupported() }
    let word = words[place]
    place += 1
    if word.lowercased() == "length", take("(") {
      let inner = try disjunction()
      try need(")")
      return .unary("length", inner)
    }
    if word.hasPrefix("'") {
      return .literal(
        .text(
          word.dropFirst().dropLast().split(separator: "''", omittingEmptySubsequences: false)
            .joined(separator: "'")))
    }
    if let number = Int64(word) { return .literal(.integer(number)) }
    if let number = Double(word), word.first?.isNumber == true { return .literal(.real(number)) }
    let name = word.hasPrefix("\"") ? String(word.dropFirst().dropLast()) : word
    guard let index = table.columns.firstIndex(where: { $0.name.folded == name.folded }) else {
      throw unsupported()
    }
    return .column(index)
  }
}
