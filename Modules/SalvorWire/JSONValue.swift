import SalvorModel

/// A small JSON tree for the control messages and for `--json`. Rows never pass through it.
public indirect enum JSONValue: Sendable, Hashable {
  case null
  case bool(Bool)
  case integer(Int64)
  case real(Double)
  case string(String)
  case array([JSONValue])
  case object([Member])

  /// One member of an object: a key and its value.
  public struct Member: Sendable, Hashable {
    /// The key, without quotation marks and escapes.
    public var key: String
    /// The value under the key.
    public var value: JSONValue
    /// Takes both as they are.
    public init(_ key: String, _ value: JSONValue) {
      self.key = key
      self.value = value
    }
  }

  /// Parses one value and nothing after it. Throws `malformed`.
  ///
  /// - Parameter valuesMax: members and items, at every depth; more throw `too-large`: each takes some 60 bytes, however
  ///   short it is written.
  public init(
    parsing bytes: [UInt8], depthMax: Int = Limits().depthMax, valuesMax: Int = .max
  ) throws(SalvorError) {
    var left = valuesMax
    try self.init(parsing: bytes, depthMax: depthMax, valuesLeft: &left)
  }

  /// The same for one of several values that have one limit together.
  public init(parsing bytes: [UInt8], depthMax: Int, valuesLeft: inout Int) throws(SalvorError) {
    var left = valuesLeft
    let result = bytes.withUnsafeBufferPointer { buffer in
      Result { () throws(SalvorError) in
        var reader = PayloadReader(buffer)
        let value = try JSONValue(reading: &reader, depth: depthMax, left: &left)
        guard reader.atEnd() else { throw reader.malformed("something follows the value") }
        return value
      }
    }
    valuesLeft = left
    self = try result.get()
  }

  /// Reads the value that comes next, and leaves the reader after it. Throws `malformed`, also where arrays and objects
  /// are nested deeper than `depth`, and where a key has more than `Limits.nameBytesMax` bytes. The number of values
  /// has no limit.
  public init(reading reader: inout PayloadReader, depth: Int = Limits().depthMax) throws(SalvorError) {
    var left = Int.max
    try self.init(reading: &reader, depth: depth, left: &left)
  }

  private init(reading reader: inout PayloadReader, depth: Int, left: inout Int) throws(SalvorError) {
    guard depth > 0 else { throw reader.malformed("nested too deeply") }
    left -= 1
    guard left >= 0 else {
      throw SalvorError(.tooLarge, "A message has too many values (valuesMax). Send it in smaller parts.")
    }
    switch try reader.peekByte() {
    case 0x7B:
      try reader.beginObject()
      var members: [Member] = []
      var isFirst = true
      while let key = try reader.nextKey(&isFirst) {
        guard key.utf8.count <= Limits.nameBytesMax else { throw reader.malformed("a name is too long") }
        members.append(Member(key, try JSONValue(reading: &reader, depth: depth - 1, left: &left)))
      }
      self = .object(members)
    case 0x5B:
      try reader.beginArray()
      var items: [JSONValue] = []
      var isFirst = true
      while try reader.nextElement(&isFirst) {
        items.append(try JSONValue(reading: &reader, depth: depth - 1, left: &left))
      }
      self = .array(items)
    case 0x74, 0x66: self = .bool(try reader.boolean())
    default:
      switch try reader.item() {
      case .null: self = .null
      case .integer(let x): self = .integer(x)
      case .real(let x): self = .real(x)
      case .text(let x): self = .string(String(decoding: x, as: UTF8.self))
      case .blob: throw reader.malformed("a blob cannot stand here")
      }
    }
  }

  /// The value as JSON text in UTF-8, without spaces. An object's members keep their order.
  public var bytes: [UInt8] {
    var writer = PayloadWriter()
    write(to: &writer)
    return writer.bytes
  }

  /// `bytes` as a string.
  public var text: String { String(decoding: bytes, as: UTF8.self) }

  /// Appends the value's JSON text to a payload. An integer is a bare number at every size; an infinity or a NaN is
  /// written as `PayloadWriter.real` writes it.
  public func write(to writer: inout PayloadWriter) {
    switch self {
    case .null: writer.null()
    case .bool(let x): x ? writer.raw("true") : writer.raw("false")
    case .integer(let x): writer.number(x)
    case .real(let x): writer.real(x)
    case .string(let x): writer.text(x)
    case .array(let items):
      writer.raw("[")
      for (index, item) in items.enumerated() {
        if index > 0 { writer.comma() }
        item.write(to: &writer)
      }
      writer.raw("]")
    case .object(let members):
      writer.raw("{")
      for (index, member) in members.enumerated() {
        if index > 0 { writer.comma() }
        writer.text(member.key)
        writer.raw(":")
        member.value.write(to: &writer)
      }
      writer.raw("}")
    }
  }

  /// A row's value, in the payload's own way of writing (`PayloadWriter`).
  public init(_ value: SalvorModel.Value) {
    var writer = PayloadWriter()
    writer.value(value)
    self = (try? JSONValue(parsing: writer.bytes)) ?? .null
  }

  /// Back from `init(_: Value)`; nil where this is no row's value.
  public var rowValue: SalvorModel.Value? {
    let bytes = bytes
    return bytes.withUnsafeBufferPointer { buffer in
      var reader = PayloadReader(buffer)
      return try? reader.item().value
    }
  }

  // Reading a message: each throws `malformed` and names the key.

  /// The value of the first member with this key; nil where there is none, or where this is no object.
  public subscript(key: String) -> JSONValue? {
    if case .object(let members) = self { members.first { $0.key == key }?.value } else { nil }
  }

  /// The text of a string; nil of every other value.
  public var string: String? { if case .string(let x) = self { x } else { nil } }
  /// The number of an integer; nil of every other value, also of a real.
  public var integer: Int64? { if case .integer(let x) = self { x } else { nil } }
  /// The value of `true` or `false`; nil of every other value.
  public var bool: Bool? { if case .bool(let x) = self { x } else { nil } }
  /// The items of an array; nil of every other value.
  public var array: [JSONValue]? { if case .array(let x) = self { x } else { nil } }
  /// The members of an object, in the order in which they stand; nil of every other value.
  public var members: [Member]? { if case .object(let x) = self { x } else { nil } }
  /// Whether this is JSON's `null`.
  public var isNull: Bool { self == .null }

  /// The string under the key. Throws `malformed` where the key is missing, or has another kind.
  public func string(_ key: String) throws(SalvorError) -> String { try need(key, self[key]?.string, "a string") }
  /// The integer under the key. Throws `malformed` where the key is missing, or has another kind, such as a real.
  public func integer(_ key: String) throws(SalvorError) -> Int64 {
    try need(key, self[key]?.integer, "a whole number")
  }
  /// The largest number of rows, bytes or requests that a message may name: thousands of them together are a number still.
  public static let countMax: Int64 = 1 << 50
  /// A number of rows, bytes or requests. Throws `malformed` where the key is missing, or has another kind, and unless the number is
  /// from 0 to `countMax`.
  public func count(_ key: String) throws(SalvorError) -> Int64 {
    try need(
      key, self[key]?.integer.flatMap { (0...Self.countMax).contains($0) ? $0 : nil },
      "a whole number from 0 to \(Self.countMax)")
  }
  /// Nil where the key is missing or null; else as `count`.
  public func optionalCount(_ key: String) throws(SalvorError) -> Int64? {
    guard let value = self[key], !value.isNull else { return nil }
    return try count(key)
  }
  /// The items of the array under the key. Throws `malformed` where the key is missing, or has another kind.
  public func array(_ key: String) throws(SalvorError) -> [JSONValue] { try need(key, self[key]?.array, "a list") }
  /// The `true` or `false` under the key. Throws `malformed` where the key is missing, or has another kind.
  public func bool(_ key: String) throws(SalvorError) -> Bool { try need(key, self[key]?.bool, "true or false") }

  /// A string that names something: of at most `Limits.nameBytesMax` bytes.
  public func name(_ key: String) throws(SalvorError) -> String {
    let text = try string(key)
    return try need(
      key, text.utf8.count <= Limits.nameBytesMax ? text : nil, "at most \(Limits.nameBytesMax) bytes long")
  }

  /// Nil where the key is missing or null; throws where it is something else than a string.
  public func optionalString(_ key: String) throws(SalvorError) -> String? {
    guard let value = self[key], !value.isNull else { return nil }
    return try need(key, value.string, "a string")
  }

  /// Nil where the key is missing or null; throws `malformed` where it is something else than an integer.
  public func optionalInteger(_ key: String) throws(SalvorError) -> Int64? {
    guard let value = self[key], !value.isNull else { return nil }
    return try need(key, value.integer, "a whole number")
  }

  /// Nil where the key is missing or null; throws `malformed` where it is something else than an array.
  public func optionalArray(_ key: String) throws(SalvorError) -> [JSONValue]? {
    guard let value = self[key], !value.isNull else { return nil }
    return try need(key, value.array, "a list")
  }

  /// An identifier of 32 hexadecimal digits.
  public func identifier<ID: RandomIdentifier>(_ key: String, as type: ID.Type = ID.self) throws(SalvorError) -> ID {
    try need(key, ID(try string(key)), "32 hexadecimal digits")
  }

  /// Nil where the key is missing or null; throws `malformed` where it is something else than 32 hexadecimal digits.
  public func optionalIdentifier<ID: RandomIdentifier>(
    _ key: String, as type: ID.Type = ID.self
  ) throws(SalvorError) -> ID? {
    guard let value = self[key], !value.isNull else { return nil }
    return try need(key, value.string.flatMap { ID($0) }, "32 hexadecimal digits")
  }

  private func need<T>(_ key: String, _ value: T?, _ what: String) throws(SalvorError) -> T {
    guard let value else { throw SalvorError(.malformed, "The message's \"\(key)\" must be \(what).") }
    return value
  }
}

extension JSONValue: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral,
  ExpressibleByArrayLiteral, ExpressibleByNilLiteral, ExpressibleByDictionaryLiteral
{
  /// A string, written in Swift as `"text"`.
  public init(stringLiteral value: String) { self = .string(value) }
  /// An integer, written in Swift as `1`.
  public init(integerLiteral value: Int64) { self = .integer(value) }
  /// A Boolean, written in Swift as `true` or `false`.
  public init(booleanLiteral value: Bool) { self = .bool(value) }
  /// An array, written in Swift as `[a, b]`.
  public init(arrayLiteral elements: JSONValue...) { self = .array(elements) }
  /// JSON's `null`, written in Swift as `nil`.
  public init(nilLiteral: ()) { self = .null }
  /// An object, written in Swift as `["key": value]`. The members keep their order; a key may stand twice.
  public init(dictionaryLiteral elements: (String, JSONValue)...) {
    self = .object(elements.map { Member($0.0, $0.1) })
  }
}
