import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport

/// Reads a parsed `salvor.json5`. One use.
struct HostConfigurationDecoder {
  let file: String
  /// With the modules of the file's own libraries, once they are loaded.
  private(set) var registry: ModuleRegistry
  let environment: [String: String]
  let sections: Set<HostSection>
  let template: ModuleContext

  private var directory: String { ConfigurationFile.directory(of: file) }

  init(
    file: String, registry: ModuleRegistry, environment: [String: String], sections: Set<HostSection>,
    template: ModuleContext
  ) {
    self.file = file
    self.registry = registry
    self.environment = environment
    self.sections = sections
    self.template = template
  }

  mutating func decode(_ written: ConfigurationValue) -> ConfigurationResult {
    var substitution = EnvironmentSubstitution(environment: environment, file: file)
    let root = substituted(written, &substitution)
    var reader = OptionReader(root, file: file, path: "")
    reader.adopt(substitution.diagnostics)
    guard case .object = root.content else {
      return ConfigurationResult(configuration: nil, diagnostics: reader.diagnostics)
    }
    loadPlugins(&reader)
    var schemaLimits = Limits()
    let schemaValue = reader.value("schema")
    let server = isBuilt(.server, &reader) ? decodeServer(&reader, &schemaLimits) : nil
    let client = isBuilt(.client, &reader) ? decodeClient(&reader, &schemaLimits) : nil
    if !reader.has("server"), !reader.has("client") {
      reader.report(path: "", line: root.line, "has neither a server nor a client section; give one of them, or both")
    }
    reader.reportUnknownKeys()

    var diagnostics = reader.diagnostics
    // Conflicts are settled by the server; a device's file may name policies that the device does not have.
    let result = decodeSchema(
      schemaValue, schemaLimits, root.line, hasServer: server != nil || reader.has("server") && hasModules(.server))
    diagnostics += result.diagnostics
    if let schema = result.schema { diagnostics += server?.validators.flatMap { $0.problems(in: schema, file) } ?? [] }
    diagnostics += StorageCheck(file: file, sections: sections, server: server, client: client).problems(result)
    diagnostics = diagnostics.inOrderOfPlace()
    guard diagnostics.errors.isEmpty, let schema = result.schema, let places = result.places,
      server != nil || client != nil
    else {
      return ConfigurationResult(configuration: nil, diagnostics: diagnostics)
    }
    let configuration = HostConfiguration(
      file: file, directory: directory, schema: schema, conflictPolicies: result.conflictPolicies,
      schemaPlaces: places, server: server, client: client, description: ConfigurationDescription.json(root),
      diagnostics: diagnostics)
    return ConfigurationResult(configuration: configuration, diagnostics: diagnostics)
  }

  /// One file serves every build: a section whose storage this program has no module for is another program's. It is
  /// passed over, unless the file has nothing else.
  private func isBuilt(_ section: HostSection, _ reader: inout OptionReader) -> Bool {
    if hasModules(section) { return true }
    let others = HostSection.allCases.filter { $0 != section }
    if let value = reader.value(section.rawValue), !others.contains(where: { reader.has($0.rawValue) }) {
      reader.report(
        path: section.rawValue, line: value.line,
        "is the only section, and this program has no \(section.rawValue) in it: give it a file with "
          + "\(others.map { "\"\($0.rawValue)\"" }.joined(separator: " or ")), or run a program that has one (salvor has both)"
      )
    }
    return false
  }

  private func hasModules(_ section: HostSection) -> Bool {
    !registry.names(of: section == .server ? .serverStorage : .clientStorage).isEmpty
  }

  /// `${NAME}` replaced everywhere but in an inline schema, which reads like one in a file of its own.
  private func substituted(
    _ root: ConfigurationValue, _ substitution: inout EnvironmentSubstitution
  ) -> ConfigurationValue {
    guard case .object(let members) = root.content else { return root }
    var root = root
    var replaced: [ConfigurationValue.Member] = []
    for var member in members {
      if case .object = member.value.content, member.key == "schema" {
        replaced.append(member)
        continue
      }
      let isUsed = HostSection(rawValue: member.key).map(sections.contains) ?? true
      member.value = substitution.replace(
        in: member.value, path: keyPath("", member.key), severity: isUsed ? .error : .warning)
      replaced.append(member)
    }
    root.content = .object(replaced)
    return root
  }

  /// The libraries alone: what was wrong with them.
  mutating func loadPlugins(of written: ConfigurationValue) -> [Diagnostic] {
    var substitution = EnvironmentSubstitution(environment: environment, file: file)
    var reader = OptionReader(substituted(written, &substitution), file: file, path: "")
    loadPlugins(&reader)
    return reader.diagnostics.errors
  }

  /// The modules of the libraries that the file names are there for the rest of it.
  private mutating func loadPlugins(_ reader: inout OptionReader) {
    let line = reader.value("plugins")?.line ?? reader.line
    for (index, plugin) in reader.strings("plugins", default: []).enumerated() {
      do throws(SalvorError) {
        registry = try registry.adding(try PluginLibrary.load(ConfigurationFile.resolve(plugin, in: directory)))
      } catch {
        reader.report(path: "plugins[\(index)]", line: line, error.message)
      }
    }
  }

  // MARK: Schema

  private func decodeSchema(
    _ value: ConfigurationValue?, _ limits: Limits, _ rootLine: Int, hasServer: Bool
  ) -> SchemaResult {
    func failed(_ line: Int, _ message: String) -> SchemaResult {
      SchemaResult(
        schema: nil, diagnostics: [Diagnostic(file: file, line: line, path: "schema", message: message)])
    }
    guard let value else {
      return failed(rootLine, "is missing; name the schema's file (\"schema.json5\"), or give the schema here")
    }
    var decoder = SchemaDecoder(
      file: file, limits: limits, registry: hasServer ? registry : nil, context: context(limits))
    switch value.content {
    case .string(let name):
      let path = ConfigurationFile.resolve(name, in: directory)
      decoder.file = value.isFromEnvironment ? "schema" : path
      do throws(ConfigurationFile.Failure) {
        return decoder.decode(try ConfigurationFile.read(path))
      } catch {
        return failed(value.line, "names a file that cannot be read: \(error.reason)")
      }
    case .object:
      return decoder.decode(value, path: "schema")
    default:
      return failed(value.line, "must be a file's name or the schema itself, found \(value.kindName)")
    }
  }

  // MARK: Server

  private func context(_ limits: Limits) -> ModuleContext {
    var context = template
    context.directory = directory
    context.environment = environment
    context.limits = limits
    context.modules = registry
    return context
  }

  /// Reads a section's limits, and leaves the stricter number of columns for the schema.
  private func limits(_ section: inout OptionReader, _ schemaLimits: inout Limits) -> Limits {
    let limits = LimitSetting.decode(&section)
    schemaLimits.columnsMax = min(schemaLimits.columnsMax, limits.columnsMax)
    return limits
  }

  private func decodeServer(_ reader: inout OptionReader, _ schemaLimits: inout Limits) -> ServerSection? {
    guard var section = reader.object("server") else { return nil }
    guard isObject(reader.value("server")) else {
      reader.adopt(section.diagnostics)
      return nil
    }
    let limits = limits(&section, &schemaLimits)
    let context = context(limits)
    let storage = registry.prepare(
      .serverStorage, under: "storage", of: &section, context, as: (any ServerStore).self)
    let listen = registry.prepare(
      .serverTransport, under: "listen", of: &section, context, as: (any ServerTransport).self)
    let monitoring =
      section.object("monitoring") != nil
      ? registry.prepare(.serverTransport, under: "monitoring", of: &section, context, as: (any ServerTransport).self)
      : nil
    let storageLine = section.value("storage")?.line ?? section.line
    let monitoringLine = section.value("monitoring")?.line ?? section.line
    let listenLine = section.value("listen")?.line ?? section.line
    let compressions = decodeCompressions(&section, context)
    let authenticationLine = section.value("authentication")?.line ?? section.line
    let authentication = registry.prepare(
      .authentication, under: "authentication", of: &section, context, as: (any Authentication).self)
    let validators = ValidatorSettings.decode(&section, registry: registry, context: context)

    var recovery = section.object("recovery")
    let clientRecoveryEnabled = recovery?.boolean("clientRecoveryEnabled", default: true) ?? true
    let selfServiceRemoteDeletion = recovery?.boolean("selfServiceRemoteDeletion", default: false) ?? false
    let healing = recovery?.choice("heal", default: OfferConsent.accept) ?? .accept
    let historyCheck = recovery?.boolean("historyCheck", default: true) ?? true
    if let recovery { section.finish(child: recovery) }

    var tombstones = HostConfiguration.tombstoneRetentionDefault
    var conflicts = HostConfiguration.conflictRetentionDefault
    var staging = HostConfiguration.stagingRetentionDefault
    if var retention = section.object("retention") {
      tombstones = TimeSpan.decode(&retention, "tombstones", default: tombstones)
      conflicts = TimeSpan.decode(&retention, "conflicts", default: conflicts)
      staging = TimeSpan.decode(&retention, "staging", default: staging)
      section.finish(child: retention)
    }
    let withholdsMessages = section.choice("messages", among: ["pass", "withhold"], default: "pass") == "withhold"
    var token: String?
    var monitoringNeedsCredential = false
    if var administration = section.object("administration") {
      token = administration.optionalString("token")
      if token?.isEmpty == true { administration.report("token", "is empty; give a token, or leave it out") }
      monitoringNeedsCredential = administration.boolean("monitoringNeedsCredential", default: false)
      section.finish(child: administration)
    }
    let log = LogSettings.decode(&section, default: LogSettings())
    let traces =
      section.object("traces") != nil
      ? registry.prepare(.clientTransport, under: "traces", of: &section, context, as: (any ClientTransport).self) : nil
    let backups = decodeBackups(&section)
    let snapshots = SnapshotOptions.decode(&section, directory: directory, registry: registry, context: context)
    reader.finish(child: section)
    guard let storage, let listen, let authentication else { return nil }
    return ServerSection(
      storage: storage, storageLine: storageLine, listen: listen, listenLine: listenLine, compressions: compressions,
      authentication: authentication, authenticationLine: authenticationLine, validators: validators,
      clientRecoveryEnabled: clientRecoveryEnabled,
      selfServiceRemoteDeletion: selfServiceRemoteDeletion, reviewsOffers: healing == .review,
      historyCheck: historyCheck, tombstoneRetentionMilliseconds: tombstones,
      conflictRetentionMilliseconds: conflicts, withholdsMessages: withholdsMessages,
      stagingRetentionMilliseconds: staging, administrationToken: token,
      monitoringNeedsCredential: monitoringNeedsCredential, monitoring: monitoring, monitoringLine: monitoringLine,
      log: log, traces: traces, backups: backups, snapshots: snapshots, limits: limits)
  }

  private func decodeBackups(_ section: inout OptionReader) -> BackupSettings? {
    guard var reader = section.object("backups") else { return nil }
    let path = reader.string("directory")
    let keep = reader.integer("keep", in: 1...10_000, default: 14)
    section.finish(child: reader)
    return path.map { BackupSettings(directory: ConfigurationFile.resolve($0, in: directory), keep: Int(keep)) }
  }

  /// A list of names; zstd and gzip where the file has none, those of them that the host has.
  private func decodeCompressions(
    _ section: inout OptionReader, _ context: ModuleContext
  ) -> [PreparedModule<any Compression>] {
    let path = section.join("compression")
    let written = section.value("compression")
    let names: [ConfigurationValue]
    switch written?.content {
    case nil:
      let line = section.line
      names = SnapshotOptions.known(registry).filter { $0 != "identity" }.map {
        ConfigurationValue(.string($0), line: line)
      }
    case .array(let items): names = items
    default:
      section.report(
        "compression", "must be a list of names, best first, like [\"gzip\"]; found \(written?.kindName ?? "nothing")")
      names = []
    }
    var compressions: [PreparedModule<any Compression>] = []
    var seen: Set<ConfigurationValue.Content> = []
    for (index, name) in names.enumerated() {
      let place = path + "[\(index)]"
      if !seen.insert(name.content).inserted {
        section.report(path: place, line: name.line, "is named before; keep one")
        continue
      }
      let module = registry.prepare(
        .compression, named: name, path: place, &section, context, as: (any Compression).self)
      if let module { compressions.append(module) }
    }
    return compressions
  }

  // MARK: Client

  private func decodeClient(_ reader: inout OptionReader, _ schemaLimits: inout Limits) -> ClientSection? {
    guard var section = reader.object("client") else { return nil }
    guard isObject(reader.value("client")) else {
      reader.adopt(section.diagnostics)
      return nil
    }
    let limits = limits(&section, &schemaLimits)
    let context = context(limits)
    let storage = registry.prepare(
      .clientStorage, under: "storage", of: &section, context, as: (any ClientStore).self)
    let transport = registry.prepare(
      .clientTransport, under: "transport", of: &section, context, as: (any ClientTransport).self)
    let storageLine = section.value("storage")?.line ?? section.line
    let compression = decodeClientCompression(&section, context)
    let credentials = decodeCredentials(&section)
    let recovery = RecoverySettings.decode(
      &section, directory: directory, registry: registry, context: context)
    var individualDeletion = false
    if var archive = section.object("errorArchive") {
      individualDeletion = archive.boolean("individualDeletion", default: false)
      section.finish(child: archive)
    }
    var optimisesQueue = false
    if var queue = section.object("queue") {
      optimisesQueue = queue.boolean("optimise", default: false)
      section.finish(child: queue)
    }
    let log = section.object("log") != nil ? LogSettings.decode(&section, default: LogSettings()) : nil
    let seed = section.optionalString("seed").map { ConfigurationFile.resolve($0, in: directory) }
    let snapshotCompressions = SnapshotOptions.compressions(&section, registry, context)
    reader.finish(child: section)
    guard let storage, let transport else { return nil }
    return ClientSection(
      storage: storage, storageAt: storageAt(section.value("storage"), context), storageLine: storageLine,
      transport: transport, compression: compression?.module, isCompressionWritten: compression?.isWritten ?? true,
      seed: seed,
      snapshotCompressions: snapshotCompressions,
      credentials: credentials,
      recovery: recovery, individualDeletion: individualDeletion, optimisesQueue: optimisesQueue, log: log,
      limits: limits)
  }

  /// The storage as it is written, with another `path`.
  private func storageAt(
    _ written: ConfigurationValue?, _ context: ModuleContext
  ) -> @Sendable (String) throws -> any ClientStore {
    { [registry, file] path in
      var members: [ConfigurationValue.Member] = []
      if case .object(let all)? = written?.content { members = all.filter { $0.key != "path" } }
      let line = written?.line ?? 0
      members.append(.init(key: "path", keyLine: line, value: ConfigurationValue(.string(path), line: line)))
      let storage = ConfigurationValue(.object(members), line: line)
      var section = OptionReader(
        ConfigurationValue(.object([.init(key: "storage", keyLine: line, value: storage)]), line: line), file: file,
        path: "client")
      let prepared = registry.prepare(
        .clientStorage, under: "storage", of: &section, context, as: (any ClientStore).self)
      guard let prepared else {
        throw ConfigurationResult(configuration: nil, diagnostics: section.diagnostics).refusal
      }
      return try prepared.make()
    }
  }

  /// The transport reads `compression` as one of its options; whether there is such a module is checked here. A
  /// transport without the option reports the key itself. Without the key, the transport's own default counts, where
  /// this host has the module.
  private func decodeClientCompression(
    _ section: inout OptionReader, _ context: ModuleContext
  ) -> (module: PreparedModule<any Compression>, isWritten: Bool)? {
    guard case .object(let members) = section.value("transport")?.content,
      case .string(let transport) = members.first(where: { $0.key == "module" })?.value.content,
      let factory = try? registry.factory(.clientTransport, transport),
      let option = factory.descriptor.options.first(where: { $0.name == "compression" })
    else { return nil }
    let name: ConfigurationValue
    let written = members.first(where: { $0.key == "compression" })?.value
    if let written {
      guard case .string = written.content else { return nil }
      name = written
    } else {
      guard let text = option.defaultText,
        let value = try? JSON5Reader.read(Array(text.utf8), file: option.name), case .string(let known) = value.content,
        registry.names(of: .compression).contains(known)
      else { return nil }
      name = value
    }
    return registry.prepare(
      .compression, named: name, path: section.join("transport") + ".compression", &section, context,
      as: (any Compression).self
    ).map { ($0, written != nil) }
  }

  /// The keys that some authentication module of this host makes headers from.
  private func decodeCredentials(_ section: inout OptionReader) -> [String: String] {
    guard var reader = section.object("credentials") else { return [:] }
    let declared = registry.descriptors.filter { $0.kind == .authentication }.flatMap(\.credentialKeys)
    var credentials: [String: String] = [:]
    for key in ["token", "principal"] + declared.filter({ $0 != "token" && $0 != "principal" }) {
      guard let text = reader.optionalString(key) else { continue }
      if text.isEmpty { reader.report(key, "is empty; give a value, or leave it out") }
      credentials[key] = text
    }
    section.finish(child: reader)
    return credentials
  }

  private func isObject(_ value: ConfigurationValue?) -> Bool {
    if case .object = value?.content { true } else { false }
  }
}
