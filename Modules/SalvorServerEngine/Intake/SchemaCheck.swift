import SalvorModel
import SalvorStorage

/// How a device's synchronized tables differ from this server's.
struct SchemaDifferences: Sendable, Hashable {
  /// What a device cannot live with (semantics 6, *destructive difference*), each named. Empty: it follows.
  var destructive: [String] = []
  /// What the device has under names that it gave itself, or has dropped, and that this server still has: it waits until the server has
  /// the schema that says so (decision 187). Nothing else can be judged before.
  var ahead: [String] = []
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
        // By its former name this server has it, whatever the versions say.
        if let known = old.renamedFrom.last(where: { name in server.contains { $0.name == name } }) {
          ahead.append("the table \(known) is \(old.name)")
          continue
        }
        if dropped.contains(old.name) || deviceIsNewer {
          needsAdoption = true
        } else {
          destructive.append("table \(old.name): dropped or renamed")
        }
        continue
      }
      if new.name != old.name { needsAdoption = true }
      compare(old, new, deviceIsNewer)
    }
  }

  private mutating func compare(_ old: Table, _ new: Table, _ deviceIsNewer: Bool) {
    let key = old.primaryKey.map { new.column(formerly: $0)?.name ?? $0 }
    // A key column that the device has renamed is named below.
    let origins = old.primaryKey.map { old.column(formerly: $0)?.renamedFrom ?? [] }
    let isRenamed =
      key.count == new.primaryKey.count
      && zip(zip(key, origins), new.primaryKey).allSatisfy { $0.0 == $1 || $0.1.contains($1) }
    if key != new.primaryKey, !isRenamed {
      destructive.append("table \(old.name): the primary key is \(new.primaryKey.joined(separator: ", ")) now")
    }
    let travelling = Set(new.travelling.map(\.name))
    var kept: Set<String> = []
    for column in old.travelling {
      guard let other = new.column(formerly: column.name), travelling.contains(other.name) else {
        if let known = column.renamedFrom.last(where: travelling.contains) {
          kept.insert(known)
          ahead.append("the column \(new.name).\(known) is \(old.name).\(column.name)")
          continue
        }
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
        if old.hasDropped(column.name) {
          ahead.append("the column \(new.name).\(column.name) is dropped")
          continue
        }
        destructive.append("table \(old.name), column \(column.name): new, not nullable and without a default")
      }
    }
  }
}
