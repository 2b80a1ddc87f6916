#if PostgreSQL
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
    /// Of `xid8`: eight bytes.
    static let xid8: UInt32 = 5069

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

  func bigEndianBytes(_ value: some FixedWidthInteger) -> [UInt8] {
    withUnsafeBytes(of: value.bigEndian) { Array($0) }
  }
#endif
