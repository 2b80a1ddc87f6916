import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// What came of reading a schema.
public struct SchemaResult: Sendable {
  /// Nil where a diagnostic is an error.
  public var schema: Schema?
  /// How conflicts are settled, by table, where the decoder has a registry.
  public var conflictPolicies: [String: PreparedModule<any ConflictPolicy>] = [:]
  /// Everything found, in the order of the file.
  public var diagnostics: [Diagnostic]
  /// Where things stand, for what is found later; nil where there is no schema.
  var places: SourcePlaces?
}

/// Reads `schema.json5` (interfaces.md) into a checked `Schema`. Everything wrong is found in one go, except that a file
/// which is not JSON5 has one diagnostic, and that the relations between tables are checked among what could be read.
public struct SchemaDecoder: Sendable {
  /// As named in diagnostics.
  public var file: String
  /// What a schema may have at most, such as `columnsMax`.
  public var limits: Limits
  /// Where the conflict policies are looked for. Nil on a device, which needs to know none: then any name will do.
  public var registry: ModuleRegistry?
  /// What the policies are made with.
  public var context: ModuleContext

  /// By default any name of a conflict policy will do, and the limits are the defaults.
  public init(
    file: String = "schema.json5", limits: Limits = Limits(), registry: ModuleRegistry? = nil,
    context: ModuleContext = ModuleContext()
  ) {
    self.file = file
    self.limits = limits
    self.registry = registry
    self.context = context
  }

  /// - Parameter bytes: a file's content.
  public func decode(_ bytes: [UInt8]) -> SchemaResult {
    do throws(Diagnostic) {
      return decode(try JSON5Reader.read(bytes, file: file))
    } catch {
      return SchemaResult(schema: nil, diagnostics: [error])
    }
  }

  /// - Parameter path: key path of a schema that stands inline; empty for a file of its own.
  public func decode(_ value: ConfigurationValue, path: String = "") -> SchemaResult {
    var reader = OptionReader(value, file: file, path: path)
    guard case .object = value.content else { return SchemaResult(schema: nil, diagnostics: reader.diagnostics) }
    let version = reader.integer("version", in: 1...Int64.max, default: 1)
    let parameters = decodeParameters(&reader)
    let groups = decodeGroups(&reader)
    var tables: [Table] = []
    var policies: [String: PreparedModule<any ConflictPolicy>] = [:]
    if var list = reader.object("tables") {
      for name in list.names() {
        guard let value = list.value(name) else { continue }
        var table = OptionReader(value, file: file, path: list.join(name))
        if case .object = value.content {
          let decoded = TableDecoder(name: name, registry: registry, context: context).decode(&table)
          tables.append(decoded.table)
          if decoded.table.maintained == .dual { policies[name] = decoded.conflictPolicy }
        }
        list.finish(child: table)
      }
      if tables.isEmpty, !list.diagnostics.contains(where: { $0.severity == .error }) {
        list.report(path: list.path, line: list.line, "has no table")
      }
      reader.finish(child: list)
    } else {
      reader.report("tables", "is missing; give an object of tables: { NAME: { primaryKey: …, columns: { … } } }")
    }
    let dropped = reader.strings("dropped", default: [])
    let hasGroups = reader.has("groups")
    reader.reportUnknownKeys()

    let schema = Schema(version: version, parameters: parameters, groups: groups, tables: tables, dropped: dropped)
    let places = SourcePlaces(root: value, file: file, path: path)
    var check = SchemaCheck(
      schema: schema, declaredGroups: hasGroups ? groups.map(\.name) : nil, limits: limits, source: places)
    check.run()
    let diagnostics = (reader.diagnostics + check.diagnostics).inOrderOfPlace()
    return SchemaResult(
      schema: diagnostics.errors.isEmpty ? schema : nil, conflictPolicies: policies, diagnostics: diagnostics,
      places: places)
  }

  private func decodeParameters(_ reader: inout OptionReader) -> [Schema.Parameter] {
    guard var list = reader.object("parameters") else { return [] }
    var parameters: [Schema.Parameter] = []
    for name in list.names() {
      guard let text = list.string(name) else { continue }
      do throws(ColumnDeclaration.Failure) {
        parameters.append(Schema.Parameter(name: name, type: try ColumnDeclaration.type(text)))
      } catch {
        list.report(name, error.message)
      }
    }
    reader.finish(child: list)
    return parameters
  }

  private func decodeGroups(_ reader: inout OptionReader) -> [Schema.Group] {
    guard var list = reader.object("groups") else { return [] }
    var groups: [Schema.Group] = []
    for name in list.names() {
      guard var group = list.object(name) else { continue }
      groups.append(
        Schema.Group(name: name, serverInitiated: group.boolean("serverInitiated", default: false)))
      list.finish(child: group)
    }
    reader.finish(child: list)
    return groups
  }
}
