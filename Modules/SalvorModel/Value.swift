/// A value as SQLite stores it: a storage class and its bytes.
///
/// Text is kept as bytes, not as `String`: two strings that Unicode calls equal can be different values in a
/// database, and a database may hold text that is not valid UTF-8. Equality is identity of storage class and
/// bytes (semantics 3, *changed*); reals compare by bit pattern.
public enum Value: Sendable, Hashable {
  /// NULL.
  case null
  /// A signed 64-bit whole number.
  case integer(Int64)
  /// A 64-bit floating point number.
  case real(Double)
  /// The bytes as the database has them, UTF-8 where they are valid.
  case text([UInt8])
  /// Bytes without a meaning of their own.
  case blob([UInt8])

  /// The text's UTF-8, without any normalization.
  public static func text(_ string: String) -> Value { .text(Array(string.utf8)) }

  /// The same storage class and the same bytes: 1 and 1.0 differ, so do 0.0 and -0.0; a NaN is equal to one of the
  /// same bits.
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

  /// Fits `==`: by storage class and bytes.
  public func hash(into hasher: inout Hasher) {
    switch self {
    case .null: hasher.combine(0)
    case .integer(let x): hasher.combine(1); hasher.combine(x)
    case .real(let x): hasher.combine(2); hasher.combine(x.bitPattern)
    case .text(let x): hasher.combine(3); hasher.combine(x)
    case .blob(let x): hasher.combine(4); hasher.combine(x)
    }
  }

  /// Whether it is NULL.
  public var isNull: Bool { self == .null }

  /// The number, where the storage class is integer; nil for every other, reals and text included.
  public var integer: Int64? { if case .integer(let x) = self { x } else { nil } }

  /// The text, where it is text and valid UTF-8.
  public var string: String? {
    if case .text(let bytes) = self { String(validating: bytes, as: UTF8.self) } else { nil }
  }
}

extension Value: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByFloatLiteral,
  ExpressibleByNilLiteral
{
  /// Text.
  public init(stringLiteral value: String) { self = .text(value) }
  /// An integer.
  public init(integerLiteral value: Int64) { self = .integer(value) }
  /// A real, also where the literal has no fraction (`1.0`).
  public init(floatLiteral value: Double) { self = .real(value) }
  /// NULL.
  public init(nilLiteral: ()) { self = .null }
}

/// For people and test failures; never for logs, which show no value of a user.
extension Value: CustomStringConvertible {
  /// Numbers and text as they are, NULL as `null`. Of a blob the first 16 bytes in hexadecimal, and of a longer one its
  /// length.
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

extension Value {
  /// As a person gives it back to a command: a blob whole, everything else as `description` says it.
  public var word: String { if case .blob(let x) = self { "x'\(hexadecimal(x))'" } else { description } }
}

/// A row's key: the values of the primary key columns, in the order of `Table.primaryKey`.
public typealias Key = [Value]

/// A row: the values of the columns, in the order of `Table.columns`.
public typealias Row = [Value]

/// Two lower-case digits for each byte, in order, without a prefix.
public func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
  let digits = Array("0123456789abcdef".utf8)
  var out: [UInt8] = []
  for byte in bytes {
    out.append(digits[Int(byte >> 4)])
    out.append(digits[Int(byte & 15)])
  }
  return String(decoding: out, as: UTF8.self)
}
