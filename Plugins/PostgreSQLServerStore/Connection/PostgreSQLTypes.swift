#if PostgreSQL
  import SalvorModel
  import SalvorWire
  import ServerStoreSupport

  /// The types whose values travel in the binary protocol, by their numbers in `pg_type`, which never change. A value of any
  /// other type travels as PostgreSQL's own text under the settings of `PostgreSQLConnection`.
  enum PostgreSQLType {
    static let boolean: UInt32 = 16
    static let bytea: UInt32 = 17
    static let char: UInt32 = 18
    static let name: UInt32 = 19
    static let int8: UInt32 = 20
    static let int2: UInt32 = 21
    static let int4: UInt32 = 23
    static let text: UInt32 = 25
    static let oid: UInt32 = 26
    static let float4: UInt32 = 700
    static let float8: UInt32 = 701
    static let unknown: UInt32 = 705
    static let bpchar: UInt32 = 1042
    static let varchar: UInt32 = 1043
    static let uuid: UInt32 = 2950
    /// Of `xid8`: eight bytes.
    static let xid8: UInt32 = 5069

    /// The types of arrays, each with that of its elements.
    static let elements: [UInt32: UInt32] = [1000: boolean, 1001: bytea, 1009: text, 1016: int8, 1022: float8]

    /// What a value of the type is for the store; nil: it travels as text.
    static func storageClass(_ type: UInt32) -> StorageClass? {
      switch type {
      case boolean, int2, int4, int8, oid, xid8: .integer
      case float4, float8: .real
      case bytea: .blob
      case text, varchar, bpchar, name, unknown: .text
      default: nil
      }
    }
  }

  /// Types by the names that `format_type` gives them: what of the schema's types each can be, and what its values are.
  extension PostgreSQLType {
    /// The type of a column of a table that is made from the schema: what was sent comes back to the byte.
    static func made(_ type: ColumnType) -> String {
      switch type {
      case .text, .timestamp, .json: "text"
      case .integer: "bigint"
      case .boolean: "smallint"
      case .real: "double precision"
      case .blob: "bytea"
      }
    }

    private static let integers: Set<String> = ["smallint", "integer", "bigint"]
    private static let reals: Set<String> = ["real", "double precision"]
    private static let texts: Set<String> = ["text", "character varying", "citext", "name"]
    /// Types that travel as something else than text, and such as have no text that means the same everywhere.
    private static let notText = integers.union(reals).union(["boolean", "bytea", "\"char\"", "oid", "xml", "money"])

    /// Whether a column of an adopted table can be one of this type in the schema; nil: it can.
    static func problem(_ column: ColumnType, _ type: String) -> String? {
      let fits: Bool
      switch column {
      case .integer: fits = integers.contains(type)
      case .boolean: fits = type == "boolean" || integers.contains(type)
      case .real: fits = reals.contains(type)
      case .blob: fits = type == "bytea"
      case .json: fits = ["json", "jsonb"].contains(type) || texts.contains(type)
      case .timestamp:
        fits =
          texts.contains(type)
          || ["timestamp with time zone", "timestamp without time zone", "date"].contains(type)
      case .text: fits = !notText.contains(type)
      }
      return fits ? nil : "is \(type) in the table, and \(column.rawValue) in the schema, which it cannot travel as"
    }

    /// Types whose equal values are the same bytes, and whose order is that of the devices' keys.
    static func canBeKey(_ type: String) -> Bool {
      integers.contains(type) || ["text", "character varying", "uuid", "bytea"].contains(type)
    }

    /// Types whose equal values are the same bytes, in the table and in the log, which has a value's text: what a scope may go through.
    static func tellsValuesApart(_ type: String) -> Bool {
      integers.contains(type) || reals.contains(type)
        || [
          "boolean", "text", "character varying", "name", "uuid", "bytea", "date", "time without time zone",
          "timestamp without time zone", "timestamp with time zone", "cidr", "macaddr", "macaddr8",
        ].contains(type)
    }

    /// What many values of a column of this type travel as, in an array; nil: as nothing that every value comes through unharmed.
    static func array(_ type: String) -> String? {
      switch type {
      case "smallint", "integer", "bigint": "bigint"
      case "double precision", "boolean", "bytea": type
      case "text", "character varying", "real", "uuid", "numeric", "date", "json", "jsonb", "interval": "text"
      default: type.hasPrefix("time") ? "text" : nil
      }
    }

    /// Whether it has a collation that a key's order must not follow.
    static func isText(_ type: String) -> Bool { texts.contains(type) }

    /// As PostgreSQL writes it. The bytes stay.
    nonisolated(unsafe) static let notANumber: UnsafeRawBufferPointer = {
      let bytes = UnsafeMutableRawBufferPointer.allocate(byteCount: 3, alignment: 1)
      bytes.copyBytes(from: "NaN".utf8)
      return UnsafeRawBufferPointer(bytes)
    }()

    /// A number as PostgreSQL writes it.
    static func text(_ real: Double) -> String {
      if real.isNaN { return "NaN" }
      if real.isInfinite { return real < 0 ? "-Infinity" : "Infinity" }
      let text = "\(real)"
      return text.hasSuffix(".0") ? String(text.dropLast(2)) : text
    }

    /// A value of the log, of a column of this type.
    static func value(_ logged: Value, _ type: String) -> Value {
      guard case .text(let bytes) = logged else { return logged }
      if integers.contains(type) || type == "boolean" {
        return Int64(String(decoding: bytes, as: UTF8.self)).map { .integer($0) } ?? logged
      }
      if reals.contains(type) {
        let text = String(decoding: bytes, as: UTF8.self)
        guard let real = type == "real" ? Float(text).map(Double.init) : Double(text), !real.isNaN else {
          return logged
        }
        return .real(real + 0)
      }
      guard type == "bytea", bytes.starts(with: Array("\\x".utf8)) else { return logged }
      return .blob(
        stride(from: 2, to: bytes.count - 1, by: 2).map {
          hexadecimalValue(bytes[$0]) << 4 | hexadecimalValue(bytes[$0 + 1])
        })
    }

    /// See `Dialect.standIn`. Nil also of types whose values are all in use, or are not known: what is tried then PostgreSQL refuses.
    static func standIn(_ type: String, _ random: Int64) -> Value? {
      let number = Int(random.magnitude >> 1)
      func text(_ text: String) -> Value { .text(Array(text.utf8)) }
      switch type {
      case "smallint": return .integer(Int64(-700 - number % 32_000))
      case "integer": return .integer(Int64(-1_000_000_000 - number % 1_000_000_000))
      case "numeric": return text("\(random)")
      case "uuid":
        // Sixteen digits: it is negative.
        let digits = String(UInt64(bitPattern: random), radix: 16)
        return text("5a4c564f-5200-4000-\(digits.prefix(4))-\(digits.dropFirst(4))")
      case "character varying", "character": return text(String(number, radix: 36))
      case "json", "jsonb": return text("\"salvor \(random)\"")
      // In a year that nobody means, and PostgreSQL has.
      case "date", "timestamp without time zone", "timestamp with time zone":
        return text("\(200_000 + number % 90_000)-0\(1 + number / 90_000 % 9)-1\(number / 810_000 % 10)")
      default: return nil
      }
    }

    /// A value that no column of the type can hold or be compared with.
    ///
    /// - Parameter names: the value is a row's key or the key of another one.
    static func excludes(_ value: PayloadReader.Item, _ type: String, names: Bool) -> Bool {
      switch value {
      case .null, .real, .blob: false
      case .integer(let integer):
        switch type {
        case "smallint": Int16(exactly: integer) == nil
        case "integer": Int32(exactly: integer) == nil
        default: false
        }
      case .text(let bytes):
        isUnstorable(bytes) || (type == "uuid" && !isUUID(bytes, inCapitals: !names))
      }
    }

    /// Whether a value of the type may be written so, as the log and the devices have it; nil: the database knows (`salvor_value`).
    static func isWritten(_ value: Value, _ type: String) -> Bool? {
      let text: [UInt8]? = if case .text(let bytes) = value { bytes } else { nil }
      switch type {
      case "", "text", "character varying", "name":
        return text.map { !$0.withUnsafeBufferPointer(isUnstorable) } ?? true
      case "smallint", "integer", "bigint", "boolean":
        let number: Int64? =
          if case .integer(let number) = value { number } else {
            text.flatMap { Int64(String(decoding: $0, as: UTF8.self)) }
          }
        guard let number, text.map({ $0 == Array("\(number)".utf8) }) ?? true else { return false }
        switch type {
        case "smallint": return Int16(exactly: number) != nil
        case "integer": return Int32(exactly: number) != nil
        case "boolean": return number == 0 || number == 1
        default: return true
        }
      case "real", "double precision":
        guard let text else { return true }
        return Double(String(decoding: text, as: UTF8.self)).map { self.text($0).utf8.elementsEqual(text) } ?? false
      case "uuid": return text?.withUnsafeBufferPointer { isUUID($0, inCapitals: false) } ?? false
      case "bytea": return text == nil
      default: return nil
      }
    }

    /// A text that no value of the parameter's type is equal to.
    static func lacks(_ bytes: UnsafeBufferPointer<UInt8>, _ type: UInt32) -> Bool {
      if isUnstorable(bytes) { return true }
      switch type {
      case int2, int4, int8: return Int64(String(decoding: bytes, as: UTF8.self)) == nil
      case uuid: return !isUUID(bytes, inCapitals: true)
      default: return false
      }
    }

    /// U+0000, or no UTF-8.
    private static func isUnstorable(_ bytes: UnsafeBufferPointer<UInt8>) -> Bool {
      var isPlain = true
      for byte in bytes {
        if byte == 0 { return true }
        if byte >= 0x80 { isPlain = false }
      }
      return !isPlain && String(validating: bytes, as: UTF8.self) == nil
    }

    /// - Parameter inCapitals: they may be, and come back as PostgreSQL writes them. A key must be written so: another spelling would be another
    ///   key on the device.
    private static func isUUID(_ bytes: UnsafeBufferPointer<UInt8>, inCapitals: Bool) -> Bool {
      bytes.count == 36
        && bytes.enumerated().allSatisfy { place, byte in
          [8, 13, 18, 23].contains(place)
            ? byte == UInt8(ascii: "-")
            : (0x30...0x39).contains(byte) || (0x61...0x66).contains(byte) || inCapitals && (0x41...0x46).contains(byte)
        }
    }
  }

  extension UnsafeRawBufferPointer {
    /// A whole number of 1, 2, 4 or 8 bytes, the highest first.
    func bigEndianInteger() -> Int64 {
      switch count {
      case 1: Int64(self[0])
      case 2: Int64(Int16(bigEndian: loadUnaligned(as: Int16.self)))
      case 4: Int64(Int32(bigEndian: loadUnaligned(as: Int32.self)))
      case 8: Int64(bigEndian: loadUnaligned(as: Int64.self))
      default: 0
      }
    }
  }

  /// Of a digit that PostgreSQL wrote.
  func hexadecimalValue(_ digit: UInt8) -> UInt8 { digit <= 0x39 ? digit - 0x30 : digit - 0x61 + 10 }

  /// `bytea_output = escape`, in place: a backslash is two, and other bytes may be one and three octal digits. Answers with how many bytes it is.
  func unescape(_ bytes: UnsafeMutableRawBufferPointer) -> Int {
    var (from, to) = (0, 0)
    while from < bytes.count {
      let backslash = UInt8(ascii: "\\")
      if bytes[from] != backslash {
        bytes[to] = bytes[from]
        from += 1
      } else if from + 1 < bytes.count, bytes[from + 1] == backslash {
        bytes[to] = backslash
        from += 2
      } else {
        let digits = bytes[from...].dropFirst().prefix(3)
        bytes[to] = digits.reduce(0) { $0 << 3 | $1 & 7 }
        from += 1 + digits.count
      }
      to += 1
    }
    return to
  }

  func bigEndianBytes(_ value: some FixedWidthInteger) -> [UInt8] {
    withUnsafeBytes(of: value.bigEndian) { Array($0) }
  }
#endif
