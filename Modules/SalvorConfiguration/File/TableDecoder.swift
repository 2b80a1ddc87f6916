import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// Reads one table of the schema. What needs other tables, or the columns as a whole, is `SchemaCheck`'s.
struct TableDecoder {
  var name: String
  /// Where the conflict policies are; nil on a device, which needs to know none.
  var registry: ModuleRegistry?
  var context: ModuleContext

  struct Decoded {
    var table: Table
    /// How its conflicts are settled; nil where this is not known here, or is no module's.
    var conflictPolicy: PreparedModule<any ConflictPolicy>?
  }

  func decode(_ reader: inout OptionReader) -> Decoded {
    let maintained = reader.choice("maintained", default: Maintained.dual)
    let group = reader.string("group", default: Schema.defaultGroup)
    let download = reader.choice("download", default: DownloadMode.cursor)
    let primaryKey = names(&reader, "primaryKey")
    let columns = columns(&reader)
    let references = references(&reader)
    let scope = ScopeDecoder.decode(&reader)
    let unique = unique(&reader)
    let check = reader.strings("check", default: [])
    let (conflicts, policy) = conflicts(&reader)
    let flags = flags(&reader)
    let sameKey = sameKey(&reader)
    // Said in so many words, for `SchemaCheck`: nothing else asks for it.
    _ = reader.choice("membership", among: ["server", "devices"], default: "server")
    let handover = reader.boolean("handover", default: false)
    let applicationTriggers = reader.choice("applicationTriggers", among: ["on", "off"], default: "on") != "off"
    let heal = reader.choice("heal", default: HealMode.all)
    let renamedFrom = formerNames(&reader)
    let dropped = reader.strings("dropped", default: [])
    return Decoded(
      table: Table(
        name, maintained: maintained, group: group, download: download, primaryKey: primaryKey, columns: columns,
        references: references, scope: scope.all, scopeAlternatives: scope.any, unique: unique, check: check,
        conflicts: conflicts, flags: flags,
        sameKey: sameKey, handover: handover, applicationTriggers: applicationTriggers, heal: heal,
        renamedFrom: renamedFrom, dropped: dropped),
      conflictPolicy: policy)
  }

  /// `"NAME"`, or `{ module: "NAME", … }` with the module's options.
  private func conflicts(_ reader: inout OptionReader) -> (String, PreparedModule<any ConflictPolicy>?) {
    let fallback = ConfigurationValue(.string(Table.defaultConflicts), line: reader.line)
    let written = reader.value("conflicts")
    let name: String
    switch (written ?? fallback).content {
    case .string(let text): name = text
    case .object(let members):
      guard case .string(let text)? = members.first(where: { $0.key == "module" })?.value.content else {
        reader.report("conflicts", "names no module; give a policy's name, or { module: \"NAME\", … }")
        return (Table.defaultConflicts, nil)
      }
      name = text
    default:
      reader.report(
        "conflicts",
        "must be a policy's name or an object { module: … }, found \((written ?? fallback).kindName)")
      return (Table.defaultConflicts, nil)
    }
    guard let registry, written != nil || registry.names(of: .conflictPolicy).contains(name) else { return (name, nil) }
    if case .object? = written?.content {
      let module = registry.prepare(
        .conflictPolicy, under: "conflicts", of: &reader, context, as: (any ConflictPolicy).self)
      return (name, module)
    }
    let module = registry.prepare(
      .conflictPolicy, named: written ?? fallback, path: reader.join("conflicts"), &reader, context,
      as: (any ConflictPolicy).self)
    return (name, module)
  }

  /// A name, or a list of names.
  private func names(_ reader: inout OptionReader, _ key: String) -> [String] {
    guard let value = reader.value(key) else {
      reader.report(key, "is missing; give the key column, or a list of them")
      return []
    }
    switch value.content {
    case .string(let name): return [name]
    case .array: return reader.strings(key, default: [])
    default:
      reader.report(key, "must be a column or a list of columns, found \(value.kindName)")
      return []
    }
  }

  private func columns(_ reader: inout OptionReader) -> [Column] {
    guard var list = reader.object("columns") else {
      reader.report("columns", "is missing; give an object of columns: { id: \"text\" }")
      return []
    }
    var columns: [Column] = []
    for name in list.names() {
      guard let value = list.value(name) else { continue }
      switch value.content {
      case .string(let text):
        if let column = column(name, text, reportingTo: &list, name) { columns.append(column) }
      case .object:
        guard var entry = list.object(name) else { continue }
        let former = formerNames(&entry)
        if let text = entry.string("type"), var column = column(name, text, reportingTo: &entry, "type") {
          column.renamedFrom = former
          columns.append(column)
        }
        list.finish(child: entry)
      default:
        list.report(name, "must be a column's type or an object { type: … }, found \(value.kindName)")
      }
    }
    reader.finish(child: list)
    return columns
  }

  private func column(_ name: String, _ text: String, reportingTo reader: inout OptionReader, _ key: String) -> Column?
  {
    do throws(ColumnDeclaration.Failure) {
      let column = try ColumnDeclaration(text)
      return Column(name, column.type, nullable: column.nullable, defaultValue: column.defaultValue)
    } catch {
      reader.report(key, error.message)
      return nil
    }
  }

  /// A name, or a list of names, oldest first.
  private func formerNames(_ reader: inout OptionReader) -> [String] {
    guard let value = reader.value("renamedFrom") else { return [] }
    switch value.content {
    case .string(let name): return [name]
    case .array: return reader.strings("renamedFrom", default: [])
    default:
      reader.report("renamedFrom", "must be a name or a list of names, found \(value.kindName)")
      return []
    }
  }

  private func references(_ reader: inout OptionReader) -> [Reference] {
    guard var list = reader.object("references") else { return [] }
    var references: [Reference] = []
    for column in list.names() {
      guard let value = list.value(column) else { continue }
      switch value.content {
      case .string(let table):
        references.append(Reference(column: column, table: table))
      case .object:
        guard var entry = list.object(column) else { continue }
        let table = entry.string("table")
        let scope = entry.choice("scope", among: ["inherit"], default: nil)
        let onDelete = entry.choice("onDelete", default: OnDelete.noAction)
        let soft = entry.boolean("soft", default: false)
        if let table {
          references.append(
            Reference(
              column: column, table: table, inheritsScope: scope != nil, onDelete: onDelete, soft: soft))
        }
        list.finish(child: entry)
      default:
        list.report(column, "must be a table's name or an object { table: … }, found \(value.kindName)")
      }
    }
    reader.finish(child: list)
    return references
  }

  private func unique(_ reader: inout OptionReader) -> [[String]] {
    guard let value = reader.value("unique") else { return [] }
    guard case .array(let items) = value.content else {
      reader.report("unique", "must be a list of lists of columns, [[\"a\", \"b\"]], found \(value.kindName)")
      return []
    }
    var unique: [[String]] = []
    for (index, item) in items.enumerated() {
      let path = reader.join("unique") + "[\(index)]"
      guard case .array(let names) = item.content else {
        reader.report(path: path, line: item.line, "must be a list of columns, [\"a\", \"b\"], found \(item.kindName)")
        continue
      }
      if names.isEmpty { reader.report(path: path, line: item.line, "names no column") }
      var columns: [String] = []
      for (place, name) in names.enumerated() {
        if case .string(let text) = name.content {
          columns.append(text)
        } else {
          reader.report(path: path + "[\(place)]", line: name.line, "must be a string, found \(name.kindName)")
        }
      }
      unique.append(columns)
    }
    return unique
  }

  private func flags(_ reader: inout OptionReader) -> FlagColumns {
    guard var list = reader.object("flags") else { return FlagColumns() }
    let flags = FlagColumns(dirty: list.optionalString("dirty"), deleted: list.optionalString("deleted"))
    reader.finish(child: list)
    return flags
  }

  /// `"merge"` or true: the same key is the same thing; `"refuse"` or false: it is a collision.
  private func sameKey(_ reader: inout OptionReader) -> SameKey? {
    if let value = reader.value("sameKey"), case .bool(let isSame) = value.content { return isSame ? .merge : .refuse }
    return reader.choice("sameKey", among: SameKey.allCases.map(\.rawValue), default: nil).flatMap(SameKey.init)
  }
}
