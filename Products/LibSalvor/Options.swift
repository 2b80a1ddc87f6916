import SalvorClient
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorWire

/// The object of options that a call has; what it does not know is refused by name.
struct Options: Sendable {
  private let value: JSONValue

  init(_ pointer: UnsafePointer<CChar>?, knows names: [String]) throws {
    guard let text = try validText(pointer, "The object of options") else {
      value = .object([])
      return
    }
    do throws(SalvorError) {
      value = try JSONValue(parsing: Array(text.utf8))
    } catch {
      throw SalvorError(.usage, "The options are not JSON: \(error.message)")
    }
    guard let members = value.members else {
      throw SalvorError(.usage, "The options are not one JSON object.")
    }
    for member in members where !names.contains(member.key) {
      let known = names.isEmpty ? "This call has none." : "Known: \(names.joined(separator: ", "))."
      throw SalvorError(.usage, "There is no option \"\(member.key)\". \(known)")
    }
  }

  private func present(_ name: String) -> JSONValue? { value[name].flatMap { $0.isNull ? nil : $0 } }

  private func read<Found>(_ name: String, _ kind: String, _ find: (JSONValue) -> Found?) throws -> Found? {
    guard let value = present(name) else { return nil }
    guard let found = find(value) else { throw SalvorError(.usage, "The option \"\(name)\" takes \(kind).") }
    return found
  }

  func string(_ name: String) throws -> String? { try read(name, "a string") { $0.string } }

  func bool(_ name: String) throws -> Bool { try read(name, "true or false") { $0.bool } ?? false }

  /// A whole number of 1 or more.
  func number(_ name: String) throws -> Int64? {
    try read(name, "a whole number above 0") { value in value.integer.flatMap { $0 > 0 ? $0 : nil } }
  }

  func strings(_ name: String) throws -> Set<String>? {
    try read(name, "a list of strings") { value in
      let found = value.array?.compactMap(\.string)
      return found?.count == value.array?.count ? found.map { Set($0) } : nil
    }
  }

  func requestID(_ name: String) throws -> RequestID? {
    try read(name, "a request's ID") { $0.string.flatMap { RequestID($0) } }
  }

  /// Text as it stands, or an object as its text.
  func text(_ name: String) throws -> String? {
    try read(name, "an object or a text") { value in value.string ?? (value.members == nil ? nil : value.text) }
  }
}

extension SalvorError {
  /// What a call gives in the place of its result.
  func reply(report: SyncReport? = nil) -> JSONValue {
    var members = json.members ?? []
    members.append(.init("wayOn", .string(wayOn)))
    members.append(.init("retryable", .bool(isRetryable)))
    if let report { members.append(.init("report", report.json)) }
    return .object(members)
  }
}
