import SalvorModuleKit
import SalvorWire

/// A configuration as it was read, for people who may see it: `***` stands for what is secret, and for what came from the
/// environment.
enum ConfigurationDescription {
  /// Keys whose values nobody is shown, in whatever section or module.
  private static let secrets = ["token", "secret", "password", "passphrase", "credentials", "authorization", "apikey"]

  static func json(_ value: ConfigurationValue) -> JSONValue {
    if value.isFromEnvironment { return "***" }
    switch value.content {
    case .object(let members):
      return .object(
        members.map { member in
          JSONValue.Member(member.key, isSecret(member.key) ? masked(member.value) : json(member.value))
        })
    case .array(let items): return .array(items.map(json))
    case .string(let text): return .string(withoutPassword(text))
    case .integer(let number): return .integer(number)
    case .number(let number): return .real(number)
    case .bool(let bool): return .bool(bool)
    case .null: return .null
    }
  }

  private static func isSecret(_ key: String) -> Bool {
    let key = key.lowercased().filter { $0 != "-" && $0 != "_" }
    return key == "key" || secrets.contains { key.hasSuffix($0) }
  }

  private static func masked(_ value: ConfigurationValue) -> JSONValue {
    if case .object(let members) = value.content {
      return .object(members.map { JSONValue.Member($0.key, masked($0.value)) })
    }
    return "***"
  }

  /// `https://name:password@host` without the two, and what `password=` names in an address without its value.
  private static func withoutPassword(_ text: String) -> String {
    withoutUser(text).replacing(/(password\s*=\s*)(?:'(?:[^'\\]|\\.)*'?|[^\s&;]*)/.ignoresCase()) {
      "\($0.output.1)***"
    }
  }

  private static func withoutUser(_ text: String) -> String {
    guard let scheme = text.firstRange(of: "://"), let at = text[scheme.upperBound...].firstIndex(of: "@"),
      !text[scheme.upperBound..<at].contains("/")
    else { return text }
    return text[..<scheme.upperBound] + "***" + text[at...]
  }
}
