import SalvorModel
import SalvorStorage

/// How a device's synchronized tables differ from this server's.
struct SchemaDifferences: Sendable, Hashable {
  /// What a device cannot live with (semantics 6, *destructive difference*), each named. Empty: it follows.
  var destructive: [String] = []
  /// The device must take the server's SyncConfig before it uploads: a declared rule changes the names and columns of its
  /// requests, or it knows of something that this server does not know yet.
  var needsAdoption = false

  /// None.
  init() {}

  /// A table or column that only the device has is one that the server dropped or renamed, unless the server's schema
  /// declares what became of it, or the device's schema version is the newer one: then it is an addition that has not
  /// reached the server yet.
  init(device: [Table], deviceVersion: Int64, server: [Table], dropped: [String], serverVersion: Int64) {
    let deviceIsNewer = deviceVersion > serverVersion
    for old in device {
      guard let new = server.table(formerly: old.name) else {
        if dropped.contains(old.name) || deviceIsNewer {
          needsAdoption = true
          noteUndeclared(old, server)
        } else {
          destructive.append("table \(old.name): dropped or renamed")
        }
        continue
      }
      if new.name != old.name { needsAdoption = true }
      compare(old, new, deviceIsNewer)
    }
  }

  /// A name that the device gave to a table of this server's, which does not know it yet.
  private mutating func noteUndeclared(_ old: Table, _ server: [Table]) {
    if let known = old.renamedFrom.last(where: { name in server.contains { $0.name == name } }) {
      destructive.append("table \(known): is \(old.name) on the device; give the server the schema that renames it")
    }
  }

  private mutating func compare(_ old: Table, _ new: Table, _ deviceIsNewer: Bool) {
    let key = old.primaryKey.map { new.column(formerly: $0)?.name ?? $0 }
    if key != new.primaryKey {
      destructive.append("table \(old.name): the primary key is \(new.primaryKey.joined(separator: ", ")) now")
    }
    let travelling = Set(new.travelling.map(\.name))
    var kept: Set<String> = []
    for column in old.travelling {
      guard let other = new.column(formerly: column.name), travelling.contains(other.name) else {
        if new.hasDropped(column.name) || deviceIsNewer {
          needsAdoption = true
        } else {
          destructive.append("table \(old.name), column \(column.name): dropped or renamed")
        }
        continue
      }
      kept.insert(other.name)
      if other.name != column.name { needsAdoption = true }
      if other.type != column.type {
        destructive.append(
          "table \(old.name), column \(column.name): was \(column.type.rawValue), is \(other.type.rawValue)")
      }
      // With a default it holds on the device as soon as its rows satisfy it, like any constraint.
      if column.nullable && !other.nullable && other.defaultValue == nil {
        destructive.append("table \(old.name), column \(column.name): NULL is no longer allowed")
      }
    }
    for column in new.travelling where !kept.contains(column.name) && old.columnIndex(column.name) == nil {
      if !column.nullable && column.defaultValue == nil {
        destructive.append("table \(old.name), column \(column.name): new, not nullable and without a default")
      }
    }
  }
}
