import Foundation

/// A JSON value read by another parser than the one under test.
indirect enum JSON: Decodable, Sendable, Hashable {
  case null
  case bool(Bool)
  case integer(Int64)
  case real(Double)
  case string(String)
  case array([JSON])
  case object([String: JSON])

  init(from decoder: any Decoder) throws {
    let container = try decoder.singleValueContainer()
    if container.decodeNil() {
      self = .null
    } else if let value = try? container.decode(Bool.self) {
      self = .bool(value)
    } else if let value = try? container.decode(Int64.self) {
      self = .integer(value)
    } else if let value = try? container.decode(Double.self) {
      self = .real(value)
    } else if let value = try? container.decode(String.self) {
      self = .string(value)
    } else if let value = try? container.decode([JSON].self) {
      self = .array(value)
    } else {
      self = .object(try container.decode([String: JSON].self))
    }
  }

  init(parsing text: String) throws {
    do {
      self = try JSONDecoder().decode(JSON.self, from: Data(text.utf8))
    } catch {
      throw Unexpected("this is not one JSON value: \(text)")
    }
  }

  /// Missing members are null, so that a test fails on the value it expected.
  subscript(key: String) -> JSON { if case .object(let members) = self { members[key] ?? .null } else { .null } }

  subscript(index: Int) -> JSON {
    if case .array(let items) = self, items.indices.contains(index) { items[index] } else { .null }
  }

  var keys: Set<String> { if case .object(let members) = self { Set(members.keys) } else { [] } }
  var items: [JSON] { if case .array(let items) = self { items } else { [] } }
  var string: String? { if case .string(let text) = self { text } else { nil } }
  var integer: Int64? { if case .integer(let number) = self { number } else { nil } }
}

extension JSON: ExpressibleByStringLiteral, ExpressibleByIntegerLiteral, ExpressibleByBooleanLiteral,
  ExpressibleByNilLiteral
{
  init(stringLiteral value: String) { self = .string(value) }
  init(integerLiteral value: Int64) { self = .integer(value) }
  init(booleanLiteral value: Bool) { self = .bool(value) }
  init(nilLiteral: ()) { self = .null }
}
