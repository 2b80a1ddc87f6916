/// The query of a request's path: names and values, still percent-encoded, so that lists can be taken apart first.
public func queryParameters(_ path: String) -> [String: String] {
  guard let mark = path.firstIndex(of: "?") else { return [:] }
  var out: [String: String] = [:]
  for pair in path[path.index(after: mark)...].split(separator: "&") {
    let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
    if parts.count == 2 { out[String(parts[0])] = String(parts[1]) }
  }
  return out
}

/// `text` as a part of a URL's query: everything but letters, digits, `-`, `.`, `_` and `~` is encoded.
public func percentEncoded(_ text: String) -> String {
  var out: [UInt8] = []
  for byte in text.utf8 {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: out.append(byte)
    default: out += [0x25, hexadecimalDigits[Int(byte >> 4)], hexadecimalDigits[Int(byte & 15)]]
    }
  }
  return String(decoding: out, as: UTF8.self)
}

private let hexadecimalDigits = Array("0123456789ABCDEF".utf8)

/// A `%` that two hexadecimal digits do not follow stays as it is.
public func percentDecoded(_ text: some StringProtocol) -> String {
  let bytes = Array(text.utf8)
  var out: [UInt8] = []
  var place = 0
  while place < bytes.count {
    if bytes[place] == 0x25, place + 2 < bytes.count,
      let value = UInt8(String(decoding: bytes[(place + 1)...(place + 2)], as: UTF8.self), radix: 16)
    {
      out.append(value)
      place += 3
    } else {
      out.append(bytes[place])
      place += 1
    }
  }
  return String(decoding: out, as: UTF8.self)
}
