#if PostgreSQL
  /// A statement with SQLite's parameters (`?`, `?3`) in PostgreSQL's (`$3`). A plain `?` is the one after the highest so far.
  struct ParameterSlots {
    let sql: String
    /// The highest number.
    let count: Int

    init(_ text: String) {
      var out: [UInt8] = []
      let bytes = Array(text.utf8)
      out.reserveCapacity(bytes.count + 16)
      var highest = 0
      var place = 0
      func byte(_ offset: Int) -> UInt8? { place + offset < bytes.count ? bytes[place + offset] : nil }
      /// Copies up to and with the end of what began here.
      func copy(through end: (Int) -> Bool) {
        while place < bytes.count {
          out.append(bytes[place])
          place += 1
          if end(place) { return }
        }
      }
      while place < bytes.count {
        switch bytes[place] {
        case UInt8(ascii: "'"), UInt8(ascii: "\""):
          // A doubled quote ends one and begins the next.
          let quote = bytes[place]
          out.append(quote)
          place += 1
          copy { bytes[$0 - 1] == quote }
        case UInt8(ascii: "-") where byte(1) == UInt8(ascii: "-"):
          copy { bytes[$0 - 1] == 0x0A }
        case UInt8(ascii: "?"):
          place += 1
          var number = 0
          while let digit = byte(0), (0x30...0x39).contains(digit), number < 100_000 {
            number = number * 10 + Int(digit - 0x30)
            place += 1
          }
          if number == 0 { number = highest + 1 }
          highest = max(highest, number)
          out += "$\(number)".utf8
        default:
          out.append(bytes[place])
          place += 1
        }
      }
      sql = String(decoding: out, as: UTF8.self)
      count = highest
    }
  }
#endif
