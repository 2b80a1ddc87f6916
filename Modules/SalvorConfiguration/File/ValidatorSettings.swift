import SalvorModel
import SalvorModuleKit
import SalvorStorage

/// One element of `server.validators`: `{ module: "webhook", tables: ["visit"], onFailure: "retry-later", … }`.
public struct ValidatorSettings: Sendable {
  /// The validator that is asked, with its own options.
  public var module: PreparedModule<any RequestValidator>
  /// Nil: every table that devices write.
  public var tables: [String]?
  /// What becomes of an upload that the validator cannot judge.
  public var onFailure = ConfiguredValidator.OnFailure.retryLater
  /// How many requests it is asked about at a time, 1 to 10,000.
  public var batchRequestsMax = ConfiguredValidator.batchRequestsDefault
  /// Where each name of `tables` stands.
  private var places: [(path: String, line: Int)] = []

  private init(_ module: PreparedModule<any RequestValidator>) { self.module = module }

  static func decode(
    _ section: inout OptionReader, registry: ModuleRegistry, context: ModuleContext
  ) -> [ValidatorSettings] {
    guard let list = section.value("validators") else { return [] }
    guard case .array(let items) = list.content else {
      section.report(
        "validators", "must be a list of modules, like [{ module: \"webhook\", … }]; found \(list.kindName)")
      return []
    }
    return items.enumerated().compactMap { index, item in
      var reader = OptionReader(item, file: section.file, path: section.join("validators") + "[\(index)]")
      let tables = reader.value("tables").map { value in (value, reader.strings("tables", default: [])) }
      let onFailure: ConfiguredValidator.OnFailure = reader.choice("onFailure", default: .retryLater)
      let batch = reader.integer(
        "batchRequestsMax", in: 1...10_000, default: Int64(ConfiguredValidator.batchRequestsDefault))
      if let tables, tables.1.isEmpty, case .array = tables.0.content {
        reader.report("tables", "is empty; name tables, or leave it out for all that devices write")
      }
      let module = registry.prepare(
        .validator, item, &reader, of: &section, context, as: (any RequestValidator).self)
      return module.map { module in
        var settings = ValidatorSettings(module)
        settings.tables = tables?.1
        settings.onFailure = onFailure
        settings.batchRequestsMax = Int(batch)
        if case .array(let names)? = tables?.0.content {
          let path = keyPath("server.validators[\(index)]", "tables")
          settings.places = names.enumerated().map { ("\(path)[\($0)]", $1.line) }
        }
        return settings
      }
    }
  }

  /// The names that are no tables which devices write.
  func problems(in schema: Schema, _ file: String) -> [Diagnostic] {
    let written = schema.tables.filter { $0.maintained == .dual }.map(\.name)
    return zip(tables ?? [], places).compactMap { name, place in
      guard !written.contains(name) else { return nil }
      let what =
        schema.table(name) == nil
        ? "names the table \"\(name)\", which is not in the schema\(suggestion(name, among: written))"
        : "names \(name), which no device writes on the server; name tables that are maintained \"dual\""
      return Diagnostic(file: file, line: place.line, path: place.path, message: what)
    }
  }

  /// Made, for the engine.
  package func configured(_ schema: Schema) throws -> ConfiguredValidator {
    ConfiguredValidator(
      name: module.descriptor.name, validator: try module.make(),
      tables: Set(tables ?? schema.tables.filter { $0.maintained == .dual }.map(\.name)), onFailure: onFailure,
      batchRequestsMax: batchRequestsMax)
  }
}
