import SalvorModel

/// The differences between a device's synchronized tables and this server's that a device cannot live with (semantics
/// 6, *destructive difference*), each named. Empty: additive, or none.
///
/// A table or column that only the device has is one that the server dropped or renamed, unless the device's schema
/// version is the newer one: then it is an addition that has not reached the server yet.
func destructiveDifferences(
  device: [Table], deviceVersion: Int64, server: [Table], serverVersion: Int64
) -> [String] {
  let deviceIsNewer = deviceVersion > serverVersion
  var out: [String] = []
  for old in device {
    guard let new = server.first(where: { $0.name == old.name }) else {
      if !deviceIsNewer { out.append("table \(old.name): dropped or renamed") }
      continue
    }
    if old.primaryKey != new.primaryKey {
      out.append("table \(old.name): the primary key is \(new.primaryKey.joined(separator: ", ")) now")
    }
    for column in old.travelling {
      guard let other = new.travelling.first(where: { $0.name == column.name }) else {
        if !deviceIsNewer { out.append("table \(old.name), column \(column.name): dropped or renamed") }
        continue
      }
      if other.type != column.type {
        out.append("table \(old.name), column \(column.name): was \(column.type.rawValue), is \(other.type.rawValue)")
      }
      if column.nullable && !other.nullable {
        out.append("table \(old.name), column \(column.name): NULL is no longer allowed")
      }
    }
    for column in new.travelling where !old.columns.contains(where: { $0.name == column.name }) {
      if !column.nullable && column.defaultValue == nil {
        out.append("table \(old.name), column \(column.name): new, not nullable and without a default")
      }
    }
  }
  return out
}
