import SalvorModel
import SalvorModuleKit

/// Replaces `${NAME}` in string values (not in keys) by what the environment holds. `$${` is a `${` of its own.
///
/// What comes from the environment may be a secret: the string is marked (`isFromEnvironment`), and no message shows it.
struct EnvironmentSubstitution {
  let environment: [String: String]
  let file: String
  private(set) var diagnostics: [Diagnostic] = []

  init(environment: [String: String], file: String) {
    self.environment = environment
    self.file = file
  }

  /// - Parameter severity: of an unset name; for a part of the file that is not used now, a warning.
  mutating func replace(
    in value: ConfigurationValue, path: String, severity: Diagnostic.Severity = .error
  ) -> ConfigurationValue {
    var value = value
    switch value.content {
    case .object(let members):
      value.content = .object(
        members.map { member in
          var member = member
          member.value = replace(in: member.value, path: keyPath(path, member.key), severity: severity)
          return member
        })
    case .array(let items):
      value.content = .array(
        items.enumerated().map { replace(in: $1, path: path + "[\($0)]", severity: severity) })
    case .string(let text) where text.utf8.contains(UInt8(ascii: "$")):
      let line = value.line
      let replaced = replaced(text) { message, severity in
        diagnostics.append(Diagnostic(severity: severity, file: file, line: line, path: path, message: message))
      } unset: {
        severity
      }
      value.content = .string(replaced.text)
      value.isFromEnvironment = replaced.isFromEnvironment
    default: break
    }
    return value
  }

  private func replaced(
    _ text: String, report: (String, Diagnostic.Severity) -> Void, unset: () -> Diagnostic.Severity
  ) -> (text: String, isFromEnvironment: Bool) {
    let scalars = Array(text.unicodeScalars)
    var out = String.UnicodeScalarView()
    var isFromEnvironment = false
    var index = 0
    while index < scalars.count {
      if scalars[index...].starts(with: "$${".unicodeScalars) {
        out.append(contentsOf: "${".unicodeScalars)
        index += 3
        continue
      }
      guard scalars[index...].starts(with: "${".unicodeScalars) else {
        out.append(scalars[index])
        index += 1
        continue
      }
      guard let end = scalars[index...].firstIndex(of: "}") else {
        report("has a ${ without }; write ${NAME}, or $${ for the characters themselves", .error)
        return (text, isFromEnvironment)
      }
      let name = String(String.UnicodeScalarView(scalars[(index + 2)..<end]))
      if !Self.isName(name) {
        report("has a ${…} that is no name of letters, digits and _; $${ stands for the characters ${", .error)
        out.append(contentsOf: scalars[index...end])
      } else if let value = environment[name] {
        out.append(contentsOf: value.unicodeScalars)
        isFromEnvironment = true
      } else {
        report("needs the environment variable \(name), which is not set", unset())
        out.append(contentsOf: scalars[index...end])
      }
      index = end + 1
    }
    return (String(out), isFromEnvironment)
  }

  private static func isName(_ name: String) -> Bool {
    guard let first = name.utf8.first, !(48...57).contains(first) else { return false }
    return name.utf8.allSatisfy {
      (48...57).contains($0) || (65...90).contains($0) || (97...122).contains($0) || $0 == UInt8(ascii: "_")
    }
  }
}
