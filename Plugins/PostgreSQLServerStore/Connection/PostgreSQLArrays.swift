#if PostgreSQL
  import SalvorModel
  import SalvorStorage
  import SalvorWire

  extension PostgreSQLType {
    /// An array in the binary protocol: dimensions, whether it has NULL, the elements' type, how many, the first's place, and then
    /// each with its length.
    static func array(of element: UInt32, count: Int, _ value: (Int) -> PayloadReader.Item) throws -> [UInt8] {
      var bytes: [UInt8] = []
      bytes.reserveCapacity(20 + count * 16)
      func add(_ number: some FixedWidthInteger) {
        withUnsafeBytes(of: number.bigEndian) { bytes.append(contentsOf: $0) }
      }
      func add(_ content: UnsafeBufferPointer<UInt8>) {
        add(Int32(content.count))
        bytes.append(contentsOf: content)
      }
      for head in [1, 1, Int32(bitPattern: element), Int32(count), 1] as [Int32] { add(head) }
      for place in 0..<count {
        switch (value(place), element) {
        case (.null, _): add(Int32(-1))
        case (.integer(let x), Self.int8):
          add(Int32(8))
          add(x)
        case (.integer(let x), Self.boolean):
          add(Int32(1))
          bytes.append(x == 0 ? 0 : 1)
        case (.real(let x), Self.float8):
          add(Int32(8))
          add(x.bitPattern)
        case (.text(let x), Self.float8) where x.elementsEqual(Self.notANumber):
          add(Int32(8))
          add(Double.nan.bitPattern)
        case (.text(let x), Self.text), (.blob(let x), Self.bytea): add(x)
        case (.real(let x), Self.text):
          let words = Array(Self.text(x).utf8)
          words.withUnsafeBufferPointer { add($0) }
        default:
          throw SalvorError(
            .storage, "PostgreSQL: a value is not one of its column's type.",
            context: ["sqlstate": "22000", "detail": "a value is not one of its column's type"])
        }
      }
      return bytes
    }
  }
#endif
