import SalvorModel
import SalvorStorage
import SalvorWire

/// Whose offer it is, and what he may write, as a text in the database.
extension Principal {
  var stored: String {
    let parameters = parameters.sorted { $0.key < $1.key }.map { name, values in
      JSONValue.Member(name, .array(values.map { JSONValue($0) }))
    }
    return JSONValue.object([.init("name", .string(name)), .init("parameters", .object(parameters))]).text
  }

  init?(stored text: String) {
    guard let json = try? JSONValue(parsing: Array(text.utf8)), let name = json["name"]?.string else { return nil }
    var parameters: [String: [Value]] = [:]
    for member in json["parameters"]?.members ?? [] {
      parameters[member.key] = (member.value.array ?? []).compactMap(\.rowValue)
    }
    self.init(name: name, parameters: parameters)
  }
}

extension [Value] {
  /// A key, as a text in the database.
  var stored: String { JSONValue.array(map { JSONValue($0) }).text }
}
