import SalvorModel
import SalvorModuleKit

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// One line of the token file.
struct TokenEntry: Sendable, Hashable {
  var hash: [UInt8]
  var principal: Principal
}

/// The entries of a token file, read again when the file is another one or was written to. A file that cannot be read
/// or is wrong leaves the entries of before, and is reported once.
final class TokenFile: Sendable {
  private struct Stamp: Sendable, Equatable {
    var device: UInt64
    var inode: UInt64
    var size: Int64
    var seconds: Int
    var nanoseconds: Int
  }

  private struct State {
    var stamp: Stamp?
    var entries: [TokenEntry]
  }

  private let path: String
  private let log: Log
  private let state: Mutex<State>

  init(_ path: String, log: Log) throws {
    self.path = path
    self.log = log
    // The stamp is older than what is read: a write in between is seen at the next look.
    let stamp = Self.stamp(path)
    state = Mutex(State(stamp: stamp, entries: try Self.read(path)))
  }

  func entries() -> [TokenEntry] {
    let stamp = Self.stamp(path)
    return state.withLock { state in
      guard stamp != state.stamp else { return state.entries }
      state.stamp = stamp
      do {
        state.entries = try Self.read(path)
        log("The token file was read again: \(state.entries.count) tokens.")
      } catch {
        log("The token file changed and cannot be used; the tokens of before still count. \(error)")
      }
      return state.entries
    }
  }

  private static func stamp(_ path: String) -> Stamp? {
    var status = stat()
    guard stat(path, &status) == 0 else { return nil }
    #if canImport(Darwin)
      let time = status.st_mtimespec
    #else
      let time = status.st_mtim
    #endif
    return Stamp(
      device: UInt64(truncatingIfNeeded: status.st_dev), inode: UInt64(status.st_ino), size: Int64(status.st_size),
      seconds: Int(time.tv_sec), nanoseconds: Int(time.tv_nsec))
  }

  private static func read(_ path: String) throws -> [TokenEntry] {
    func refuse(_ why: String) -> SalvorError {
      SalvorError(.configuration, why, context: ["file": path])
    }
    guard let file = fopen(path, "r") else {
      throw refuse("The token file \(path) cannot be read: \(String(cString: strerror(errno))).")
    }
    defer { fclose(file) }
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 64 << 10)
    while bytes.count <= JSON5Reader.fileBytesMax {
      let count = fread(&buffer, 1, buffer.count, file)
      if count == 0 { break }
      bytes += buffer[0..<count]
    }
    guard ferror(file) == 0 else { throw refuse("The token file \(path) cannot be read to its end.") }
    let (entries, diagnostics) = parse(bytes, file: path)
    guard diagnostics.isEmpty else {
      throw refuse("The token file is wrong; correct it:\n\(render(diagnostics))")
    }
    return entries
  }

  /// Everything that is wrong at once, without a value in it.
  static func parse(_ bytes: [UInt8], file: String) -> ([TokenEntry], [Diagnostic]) {
    let value: ConfigurationValue
    do {
      value = try JSON5Reader.read(bytes, file: file)
    } catch {
      return ([], [error])
    }
    var root = OptionReader(value, file: file, path: "")
    var entries: [TokenEntry] = []
    var hashes: Set<[UInt8]> = []
    if let tokens = root.value("tokens") {
      if case .array(let items) = tokens.content {
        for (index, item) in items.enumerated() {
          var reader = OptionReader(item, file: file, path: "tokens[\(index)]")
          if case .object = item.content, let entry = entry(&reader) {
            if !hashes.insert(entry.hash).inserted {
              reader.report("sha256", "stands in this file twice; keep one")
            }
            entries.append(entry)
          }
          root.finish(child: reader)
        }
      } else {
        root.report("tokens", "must be a list of { sha256, principal, … }, found \(tokens.kindName)")
      }
    } else {
      root.report("tokens", "is missing; give a list, perhaps an empty one")
    }
    root.reportUnknownKeys()
    return (entries, root.diagnostics)
  }

  private static func entry(_ reader: inout OptionReader) -> TokenEntry? {
    let hash = reader.string("sha256").flatMap { text -> [UInt8]? in
      guard let bytes = bytes(hexadecimal: text), bytes.count == 32 else {
        reader.report("sha256", "must be 64 hexadecimal digits; `salvor token` writes them")
        return nil
      }
      return bytes
    }
    let name = reader.string("principal")
    if name?.isEmpty == true { reader.report("principal", "must not be empty") }
    let isAdministrator = reader.boolean("administrator", default: false)
    let role = role(&reader)
    let synchronizes = reader.boolean("sync", default: true)
    if !synchronizes, role == nil, !isAdministrator {
      reader.report("sync", "is false, and the token has no role: it may do nothing. Give it a role, or leave sync out")
    }
    var parameters: [String: [Value]] = [:]
    if var lists = reader.object("parameters") {
      for name in lists.names() { parameters[name] = values(name, &lists) }
      reader.finish(child: lists)
    }
    guard let hash, let name, !name.isEmpty else { return nil }
    return TokenEntry(
      hash: hash,
      principal: Principal(
        name: name, parameters: parameters, isAdministrator: isAdministrator, role: role, synchronizes: synchronizes))
  }

  private static func role(_ reader: inout OptionReader) -> AdministrationRole? {
    guard let text = reader.optionalString("role") else { return nil }
    if let role = AdministrationRole(rawValue: text) { return role }
    let known = AdministrationRole.allCases.map(\.rawValue)
    reader.report("role", "must be one of \(known.joined(separator: ", "))\(suggestion(text, among: known))")
    return nil
  }

  private static func values(_ name: String, _ reader: inout OptionReader) -> [Value] {
    guard let value = reader.value(name) else { return [] }
    guard case .array(let items) = value.content else {
      reader.report(name, "must be a list of values, found \(value.kindName)")
      return []
    }
    return items.compactMap { item in
      switch item.content {
      case .string(let text): return .text(text)
      case .integer(let number): return .integer(number)
      case .number(let number) where number.isFinite: return .real(number)
      case .bool(let bool): return .integer(bool ? 1 : 0)
      default:
        reader.report(path: reader.join(name), line: item.line, "must hold texts and numbers, found \(item.kindName)")
        return nil
      }
    }
  }

  private static func bytes(hexadecimal text: String) -> [UInt8]? {
    let digits = Array(text.utf8)
    guard digits.count.isMultiple(of: 2) else { return nil }
    var out: [UInt8] = []
    for index in stride(from: 0, to: digits.count, by: 2) {
      guard let high = digit(digits[index]), let low = digit(digits[index + 1]) else { return nil }
      out.append(high << 4 | low)
    }
    return out
  }

  private static func digit(_ c: UInt8) -> UInt8? {
    switch c {
    case UInt8(ascii: "0")...UInt8(ascii: "9"): c - UInt8(ascii: "0")
    case UInt8(ascii: "a")...UInt8(ascii: "f"): c - UInt8(ascii: "a") + 10
    case UInt8(ascii: "A")...UInt8(ascii: "F"): c - UInt8(ascii: "A") + 10
    default: nil
    }
  }
}
