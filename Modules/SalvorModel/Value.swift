/// A value as SQLite stores it: a storage class and its bytes.
///
/// Text is kept as bytes, not as `String`: two strings that Unicode calls equal can be different values in a
/// database, and a database may hold text that is not valid UTF-8. Equality is identity of storage class and
/// bytes (semantics 3, *changed*); reals compare by bit pattern.
public enum Value: Sendable, Hashable {
  case null
  case integer(Int64)
  case real(Double)
  case text([UInt8])
  case blob([UInt8])

  public static func text(_ string: String) -> Value { .text(Array(string.utf8)) }

  public static func == (a: Value, b: Value) -> Bool {
    switch (a, b) {
    case (.null, .null): true
    case (.integer(let x), .integer(let y)): x == y
    case (.real(let x), .real(let y)): x.bitPattern == y.bitPattern
    case (.text(let x), .text(let y)): x == y
    case (.blob(let x), .blob(let y)): x == y
    default: false
    }
  }

  public func hash(into hasher: inout Hasher) {
    switch self {
    case .null: hasher.combine(0)
    case .integer(let x): hasher.combine(1); hasher.combine(x)
    case .real(let x): hasher.combine(2); hasher.combine(x.bitPattern)
    case .text(let x): hasher.combine(3); hasher.combine(x)
    case .blob(let x): hasher.combine(4); hasher.combine(x)
    }
  }

  public var isNull: Bool { self == .null }

  public var integer: Int64? { if case .integer(let x) = self { x } else { nil } }

  /// The text, where it is text and valid UTF-8.
  public var string: String? {
    if case .text(let bytes) = self { String(validating: bytes, as: UTF8.self) } else { nil }
  }
}

extension Value: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
  ExpressibleByNilLiteral
{
  public init(stringLiteral value: String) { self = .text(value) }
  public init(integerLiteral value: Int64) { self = .integer(value) }
  public init(floatLiteral value: Double) { self = .real(value) }
  public init(nilLiteral: ()) { self = .null }
}

/// For people and test failures; never for logs, which show no value of a user.
extension Value: CustomStringConvertible {
  public var description: String {
    switch self {
    case .null: "null"
    case .integer(let x): "\(x)"
    case .real(let x): "\(x)"
    case .text(let x): String(decoding: x, as: UTF8.self)
    case .blob(let x): "x'" + hexadecimal(x.prefix(16)) + (x.count > 16 ? "… (\(x.count) bytes)'" : "'")
    }
  }
}

/// A row's key: the values of the primary key columns, in the order of `Table.primaryKey`.
public typealias Key = [Value]

/// A row: the values of the columns, in the order of `Table.columns`.
public typealias Row = [Value]

public func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
  let digits = Array("0123456789abcdef".utf8)
  var out: [UInt8] = []
  for byte in bytes {
    out.append(digits[Int(byte >> 4)])
    out.append(digits[Int(byte & 15)])
  }
  return String(decoding: out, as: UTF8.self)
}
