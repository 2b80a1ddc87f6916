#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The environment of this process, for `${NAME}` in a file and for programs that are started.
public func processEnvironment() -> [String: String] {
  var out: [String: String] = [:]
  var next = environ
  while let entry = next.pointee {
    let text = String(cString: entry)
    if let mark = text.firstIndex(of: "=") {
      out[String(text[..<mark])] = String(text[text.index(after: mark)...])
    }
    next += 1
  }
  return out
}
