import SalvorModuleKit

/// Finds the line of a thing in the file it was read from.
package struct SourcePlaces: Sendable {
  var root: ConfigurationValue
  var file: String
  var path: String

  /// The line of the member that the keys lead to, or of the last one on the way that is there.
  func line(_ keys: [String]) -> Int {
    var value = root
    var line = root.line
    for key in keys {
      guard case .object(let members) = value.content, let member = members.first(where: { $0.key == key }) else {
        break
      }
      line = member.keyLine
      value = member.value
    }
    return line
  }

  /// What stands there, sound or not.
  func value(_ keys: [String]) -> ConfigurationValue? {
    var value = root
    for key in keys {
      guard case .object(let members) = value.content, let member = members.first(where: { $0.key == key }) else {
        return nil
      }
      value = member.value
    }
    return value
  }

  /// The element of a list.
  func item(_ index: Int, of keys: [String]) -> ConfigurationValue? {
    guard case .array(let items)? = value(keys)?.content, items.indices.contains(index) else { return nil }
    return items[index]
  }

  func has(_ keys: [String]) -> Bool { value(keys) != nil }

  func path(_ keys: [String]) -> String { keys.reduce(path, keyPath) }
}
