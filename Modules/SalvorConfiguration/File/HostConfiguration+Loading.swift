import SalvorModel
import SalvorModuleKit

extension HostConfiguration {
  /// Reads the file and the schema that it names, and prepares every module that it names. Nothing but these two files
  /// is opened. The stores are made, not opened, and asked what they would refuse of the schema (`SchemaExamining`) and
  /// where their databases are (`FileDatabase`); the other modules are not made.
  ///
  /// - Parameters:
  ///   - path: of `salvor.json5`.
  ///   - registry: the modules of this host.
  ///   - environment: for `${NAME}`.
  ///   - sections: those that will be used. An unset `${NAME}` in another one is a warning: a server need not know a
  ///     device's token.
  ///   - template: clock, randomness and log for the modules; directory, environment and limits are the file's.
  public static func load(
    path: String, registry: ModuleRegistry, environment: [String: String],
    sections: Set<HostSection> = Set(HostSection.allCases), template: ModuleContext = ModuleContext()
  ) -> ConfigurationResult {
    let root: ConfigurationValue
    switch readRoot(path) {
    case .success(let value): root = value
    case .failure(let diagnostic): return ConfigurationResult(configuration: nil, diagnostics: [diagnostic])
    }
    var decoder = HostConfigurationDecoder(
      file: path, registry: registry, environment: environment, sections: sections, template: template)
    return decoder.decode(root)
  }

  /// The same of a configuration that is in no file.
  ///
  /// - Parameters:
  ///   - text: as it would stand in the file.
  ///   - name: what messages call it; relative paths are relative to the directory that it would be in.
  public static func load(
    text: [UInt8], named name: String, registry: ModuleRegistry, environment: [String: String],
    sections: Set<HostSection> = Set(HostSection.allCases), template: ModuleContext = ModuleContext()
  ) -> ConfigurationResult {
    do throws(Diagnostic) {
      var decoder = HostConfigurationDecoder(
        file: name, registry: registry, environment: environment, sections: sections, template: template)
      return decoder.decode(try JSON5Reader.read(text, file: name))
    } catch {
      return ConfigurationResult(configuration: nil, diagnostics: [error])
    }
  }

  /// The modules of a host with those of the libraries that a file names. Nothing else of the file is looked at.
  ///
  /// - Throws: `configuration` where the file cannot be read, or a library cannot be loaded.
  public static func modules(
    ofFile path: String, registry: ModuleRegistry, environment: [String: String]
  ) throws -> ModuleRegistry {
    let root = try readRoot(path).mapError { ConfigurationResult(configuration: nil, diagnostics: [$0]).refusal }.get()
    var decoder = HostConfigurationDecoder(
      file: path, registry: registry, environment: environment, sections: [], template: ModuleContext())
    let problems = decoder.loadPlugins(of: root)
    guard problems.isEmpty else { throw ConfigurationResult(configuration: nil, diagnostics: problems).refusal }
    return decoder.registry
  }

  private static func readRoot(_ path: String) -> Result<ConfigurationValue, Diagnostic> {
    do {
      return .success(try JSON5Reader.read(try ConfigurationFile.read(path), file: path))
    } catch let diagnostic as Diagnostic {
      return .failure(diagnostic)
    } catch {
      let reason = (error as? ConfigurationFile.Failure)?.reason ?? "\(error)"
      return .failure(
        Diagnostic(
          file: path, line: 0, path: "",
          message: "cannot be read: \(reason). Name another file with --config, or make one with salvor init"))
    }
  }
}
