import SalvorModel

/// What a host gives every module it makes.
public struct ModuleContext: Sendable {
  /// Relative paths of the configuration are relative to this directory (the file's own).
  public var directory: String
  /// Variables by name, as the host was given them: of the process, or of a test.
  public var environment: [String: String]
  /// The limits of the configuration's section (`server` or `client`), with the defaults where it sets none.
  public var limits: Limits
  /// Where the module takes random bits from, so that a simulation can be repeated.
  public var random: any RandomSource
  /// What the module takes for the time, and sleeps by.
  public var clock: any Clock
  /// Lines for the operator; no value of a user in them.
  public var log: Log
  /// The host's modules, for one that is made of another one, e.g. a validator that reaches its service by a
  /// transport; nil: there are none to be had.
  public var modules: ModuleRegistry?

  /// The current directory, no environment, the default limits, the system's randomness and clock, no log and no
  /// modules, where nothing else is given.
  public init(
    directory: String = ".", environment: [String: String] = [:], limits: Limits = Limits(),
    random: any RandomSource = SystemRandom(), clock: any Clock = SystemClock(),
    log: Log = .none, modules: ModuleRegistry? = nil
  ) {
    self.modules = modules
    self.directory = directory
    self.environment = environment
    self.limits = limits
    self.random = random
    self.clock = clock
    self.log = log
  }

  /// `path`, made absolute by `directory` where it is relative.
  public func resolve(_ path: String) -> String {
    path.hasPrefix("/") || path.hasPrefix(":") ? path : directory + "/" + path
  }
}

/// One module's entry in the explicit list (architecture, rule 5): what it is, how its options are read, how it is made.
///
/// Decoding and making are two steps, so that a configuration is checked whole without touching anything: `prepare`
/// reads and validates the options and returns a closure that makes the product.
public struct ModuleFactory: Sendable {
  /// What the module says of itself. Its kind and name are unique in a registry.
  public var descriptor: ModuleDescriptor
  let prepareProduct: @Sendable (inout OptionReader, ModuleContext) -> (@Sendable () throws -> any Sendable)?

  /// - Parameter prepare: reads every option through the reader, which collects what is wrong; returns how to make the
  ///   product. It opens and writes nothing. Nil where the options cannot make one: the reader then holds why.
  public init<Product: Sendable>(
    _ descriptor: ModuleDescriptor, product: Product.Type = Product.self,
    prepare: @escaping @Sendable (inout OptionReader, ModuleContext) -> (@Sendable () throws -> Product)?
  ) {
    self.descriptor = descriptor
    self.prepareProduct = { reader, context in
      guard let make = prepare(&reader, context) else { return nil }
      return { try make() }
    }
  }

  /// The product must be of the type of the kind's seam, e.g. `any ClientTransport`.
  public func prepare<Product>(
    _ reader: inout OptionReader, _ context: ModuleContext, as type: Product.Type
  ) -> (@Sendable () throws -> Product)? {
    let descriptor = descriptor
    guard let make = prepareProduct(&reader, context) else { return nil }
    return {
      guard let product = try make() as? Product else {
        throw SalvorError(
          .unknownModule, "The module \(descriptor.name) is not a \(descriptor.kind.rawValue) module.")
      }
      return product
    }
  }
}

/// What has a life: made, started, stopped. `stop` is safe before `start`, twice, and after a failed start.
public protocol ModuleLifecycle: Sendable {
  /// Takes what it needs: files, ports, tasks. Called once. Throws a `SalvorError` where it cannot start; `stop`
  /// then gives back what it took.
  func start() async throws
  /// Gives everything back, and returns when that is done. Does not touch what another product of the same module
  /// has.
  func stop() async
}

/// The modules of a host: an explicit list, given at the start (architecture, rule 5). Nothing registers itself.
public struct ModuleRegistry: Sendable {
  private let factories: [ModuleKind: [String: ModuleFactory]]

  /// - Throws: `configuration`, where two modules have the same kind and name, or a name is not of lower-case words
  ///   with hyphens. All of them are named.
  public init(_ list: [ModuleFactory]) throws(SalvorError) {
    var factories: [ModuleKind: [String: ModuleFactory]] = [:]
    var problems: [String] = []
    for factory in list {
      let kind = factory.descriptor.kind
      let name = factory.descriptor.name
      if !Self.isModuleName(name) {
        problems.append("\(kind.rawValue) module \"\(name)\": a name is of lower-case words with hyphens")
      }
      if factories[kind, default: [:]].updateValue(factory, forKey: name) != nil {
        problems.append("\(kind.rawValue) module \"\(name)\": it is in the list twice; leave one out or rename it")
      }
    }
    guard problems.isEmpty else {
      throw SalvorError(.configuration, "The list of modules is not usable. " + problems.joined(separator: ". ") + ".")
    }
    self.factories = factories
  }

  /// These modules, and `more`. Throws as `init`.
  public func adding(_ more: [ModuleFactory]) throws(SalvorError) -> ModuleRegistry {
    try ModuleRegistry(factories.values.flatMap(\.values) + more)
  }

  /// Lower-case ASCII letters, digits and single hyphens between them.
  public static func isModuleName(_ name: String) -> Bool {
    !name.isEmpty
      && name.split(separator: "-", omittingEmptySubsequences: false).allSatisfy { word in
        !word.isEmpty && word.utf8.allSatisfy { (48...57).contains($0) || (97...122).contains($0) }
      }
  }

  /// The names of a kind, sorted.
  public func names(of kind: ModuleKind) -> [String] { factories[kind, default: [:]].keys.sorted() }

  /// What every module says of itself: by kind in the order of `ModuleKind`, then by name.
  public var descriptors: [ModuleDescriptor] {
    ModuleKind.allCases.flatMap { kind in
      names(of: kind).compactMap { factories[kind]?[$0]?.descriptor }
    }
  }

  /// Throws `unknown-module`, naming the modules of the kind and the nearest name.
  public func factory(_ kind: ModuleKind, _ name: String) throws(SalvorError) -> ModuleFactory {
    if let factory = factories[kind]?[name] { return factory }
    throw SalvorError(
      .unknownModule,
      "There is no \(kind.rawValue) module \"\(name)\". Known: \(known(kind))\(suggestion(name, among: names(of: kind)))",
      context: ["kind": kind.rawValue])
  }

  /// Reads an object such as `storage: { module: "sqlite", path: "x.db" }`: the `module` key here, the rest by the
  /// module's factory. What is wrong, unknown keys included, goes to `parent`. Nothing is opened.
  ///
  /// - Returns: nil where it cannot be made; `parent` then holds why.
  public func prepare<Product>(
    _ kind: ModuleKind, under key: String, of parent: inout OptionReader, _ context: ModuleContext,
    as type: Product.Type
  ) -> PreparedModule<Product>? {
    guard let value = parent.value(key) else {
      parent.report(key, "is missing; give an object with a module: { module: \"…\" }; known: \(known(kind))")
      return nil
    }
    var reader = OptionReader(value, file: parent.file, path: parent.join(key))
    return prepare(kind, value, &reader, of: &parent, context, as: type)
  }

  /// The same of an object that `reader` has begun to read, e.g. an element of a list: keys that it was asked for are the
  /// host's, the others the module's.
  public func prepare<Product>(
    _ kind: ModuleKind, _ value: ConfigurationValue, _ reader: inout OptionReader, of parent: inout OptionReader,
    _ context: ModuleContext, as type: Product.Type
  ) -> PreparedModule<Product>? {
    guard case .object = value.content else {
      parent.adopt(reader.diagnostics)
      return nil
    }
    guard let name = reader.value("module") else {
      reader.report("module", "is missing; known: \(known(kind))")
      // Which keys are allowed is not known without the module.
      parent.adopt(reader.diagnostics)
      return nil
    }
    guard let factory = factory(kind, named: name, &reader, path: reader.join("module")) else {
      parent.adopt(reader.diagnostics)
      return nil
    }
    let make = factory.prepare(&reader, context, as: type)
    if make == nil {
      if reader.diagnostics.errors.isEmpty { reader.report("module", "cannot be made from these options") }
      // It may have given up before it read the rest: that does not make the rest unknown.
      for option in factory.descriptor.options { _ = reader.value(option.name) }
    }
    parent.finish(child: reader)
    return make.map { PreparedModule(descriptor: factory.descriptor, make: $0) }
  }

  /// The module that `name` (a string value of the file) names, with no option but defaults.
  public func prepare<Product>(
    _ kind: ModuleKind, named name: ConfigurationValue, path: String, _ reader: inout OptionReader,
    _ context: ModuleContext, as type: Product.Type
  ) -> PreparedModule<Product>? {
    guard let factory = factory(kind, named: name, &reader, path: path) else { return nil }
    var options = OptionReader(ConfigurationValue(.object([]), line: name.line), file: reader.file, path: path)
    let make = factory.prepare(&options, context, as: type)
    reader.adopt(options.diagnostics)
    return make.map { PreparedModule(descriptor: factory.descriptor, make: $0) }
  }

  /// Nil and reported where `name` is no name of a module of this kind.
  private func factory(
    _ kind: ModuleKind, named name: ConfigurationValue, _ reader: inout OptionReader, path: String
  ) -> ModuleFactory? {
    guard case .string(let text) = name.content else {
      reader.report(path: path, line: name.line, "must be a string, found \(name.kindName); known: \(known(kind))")
      return nil
    }
    if let factory = factories[kind]?[text] { return factory }
    let near = name.isFromEnvironment ? "" : suggestion(text, among: names(of: kind))
    reader.report(
      path: path, line: name.line,
      "\(name.shown ?? "") is no \(kind.rawValue) module here; known: \(known(kind))\(near)")
    return nil
  }

  private func known(_ kind: ModuleKind) -> String {
    let names = names(of: kind)
    return names.isEmpty ? "none" : names.joined(separator: ", ")
  }
}

/// A module whose options are read and sound, not made yet.
public struct PreparedModule<Product>: Sendable {
  /// What the module says of itself.
  public let descriptor: ModuleDescriptor
  /// Makes the product. Each call makes another one.
  public let make: @Sendable () throws -> Product

  /// Both parts given. `make` is not called here.
  public init(descriptor: ModuleDescriptor, make: @escaping @Sendable () throws -> Product) {
    self.descriptor = descriptor
    self.make = make
  }
}
