import SalvorModel
import SalvorModuleKit

/// A module as the lifecycle contract sees it: its factory, options to try, and how its product is started and stopped.
///
/// The seams have each their own verbs (a store opens and closes, a transport listens); the hooks translate.
public struct LifecycleSubject: Sendable {
  /// One product's life.
  public struct Hooks: Sendable {
    /// Starts the product. Throws a `SalvorError` where it cannot, e.g. because an address is taken.
    public var start: @Sendable () async throws -> Void
    /// Stops the product and gives back what it took. Must be safe before `start`, twice, and after a failed start.
    public var stop: @Sendable () async throws -> Void
    /// Throws unless the started product does its work.
    public var probe: @Sendable () async throws -> Void

    /// All three closures are about one product; the suite asks for new ones for each product that it makes.
    public init(
      start: @escaping @Sendable () async throws -> Void, stop: @escaping @Sendable () async throws -> Void,
      probe: @escaping @Sendable () async throws -> Void
    ) {
      self.start = start
      self.stop = stop
      self.probe = probe
    }
  }

  let factory: ModuleFactory
  let options: ConfigurationValue
  /// Options that are sound but with which `start` must fail, e.g. an address that is taken. Nil: there are none.
  let failingOptions: ConfigurationValue?
  /// What can be seen of the module from outside: files of its directory, open ports. Compared before and after.
  let footprint: @Sendable () -> [String]
  let prepareHooks: @Sendable (inout OptionReader) -> (@Sendable () throws -> Hooks)?

  /// - Parameters:
  ///   - product: the type of the kind's seam, e.g. `(any ServerTransport).self`.
  ///   - options: JSON5 of an object with every option that must be given, without `module`.
  public init<Product>(
    _ factory: ModuleFactory, product: Product.Type, options: String = "{}", failingOptions: String? = nil,
    context: ModuleContext = ModuleContext(), footprint: @escaping @Sendable () -> [String] = { [] },
    hooks: @escaping @Sendable (Product) -> Hooks
  ) throws {
    self.factory = factory
    self.options = try JSON5Reader.read(Array(options.utf8), file: "options")
    self.failingOptions = try failingOptions.map { text throws(Diagnostic) in
      try JSON5Reader.read(Array(text.utf8), file: "failing options")
    }
    self.footprint = footprint
    self.prepareHooks = { reader in
      guard let make = factory.prepare(&reader, context, as: product) else { return nil }
      return { hooks(try make()) }
    }
  }

  /// For products that conform to `ModuleLifecycle`.
  public init(
    lifecycle factory: ModuleFactory, options: String = "{}", failingOptions: String? = nil,
    context: ModuleContext = ModuleContext(), footprint: @escaping @Sendable () -> [String] = { [] },
    probe: @escaping @Sendable (any ModuleLifecycle) async throws -> Void = { _ in }
  ) throws {
    try self.init(
      factory, product: (any ModuleLifecycle).self, options: options, failingOptions: failingOptions,
      context: context, footprint: footprint
    ) { product in
      Hooks(
        start: { try await product.start() }, stop: { await product.stop() }, probe: { try await probe(product) })
    }
  }
}

/// The one life that every module has (architecture, rule 5): describe → decode over defaults → validate → make →
/// start → stop.
public enum LifecycleContract {
  static let rule = "architecture, rule 5"

  /// One rule each: what is checked before anything is made, and then start, stop and what a failed start leaves.
  public static let cases: [ContractCase<LifecycleSubject>] = configurationCases + living

  /// The part before anything is made, which asks nothing of the product: for modules that have nothing to start.
  public static let configurationCases: [ContractCase<LifecycleSubject>] = describing + decoding

  // MARK: Describe

  static let describing: [ContractCase<LifecycleSubject>] = [
    ContractCase("a module describes itself in one line", rule: rule) { subject in
      let descriptor = subject.factory.descriptor
      try expect(
        ModuleRegistry.isModuleName(descriptor.name),
        "the name \"\(descriptor.name)\" is not of lower-case words with hyphens")
      try expect(!descriptor.summary.isEmpty, "the module has no summary")
      try expect(!descriptor.summary.contains { $0.isNewline }, "the summary has more than one line")
      let names = descriptor.options.map(\.name)
      try expect(Set(names).count == names.count, "an option is described twice among \(names)")
      for option in descriptor.options {
        try expect(!option.summary.isEmpty, "the option \(option.name) has no summary")
        try expect(!option.type.isEmpty, "the option \(option.name) has no type")
      }
    },
    ContractCase("a module reads the options that it describes, and no other", rule: rule) { subject in
      let read = subject.decode(subject.options).keysRead
      try expectEqual(
        Set(read), Set(subject.factory.descriptor.options.map(\.name)), "options read and options described")
    },
  ]

  // MARK: Decode over defaults, validate

  static let decoding: [ContractCase<LifecycleSubject>] = [
    ContractCase("sound options are accepted, as often as they are read", rule: rule) { subject in
      for _ in 0..<2 {
        let decoded = subject.decode(subject.options)
        try expect(decoded.errors.isEmpty, "refused: \(render(decoded.errors))")
        try expect(decoded.make != nil, "the factory makes nothing from sound options")
      }
    },
    ContractCase("an option at the default that is described is accepted", rule: rule) { subject in
      for option in subject.factory.descriptor.options {
        guard let text = option.defaultText, text != "none" else { continue }
        let value: ConfigurationValue
        do throws(Diagnostic) {
          value = try JSON5Reader.read(Array(text.utf8), file: option.name)
        } catch {
          throw ContractFailure("the default of \(option.name) is not JSON5: \(render([error]))")
        }
        let decoded = subject.decode(subject.options.setting(option.name, to: value.content))
        try expect(decoded.errors.isEmpty, "the default of \(option.name) is refused: \(render(decoded.errors))")
      }
    },
    ContractCase("an option without a default is missed by its name", rule: rule) { subject in
      for option in subject.factory.descriptor.options where option.defaultText == nil {
        let decoded = subject.decode(subject.options.setting(option.name, to: nil))
        try expect(
          decoded.errors.contains { $0.path == "module." + option.name },
          "\(option.name) may be left out, but its description gives no default")
      }
    },
    ContractCase("an option of a wrong type is refused by its name", rule: rule) { subject in
      for option in subject.factory.descriptor.options {
        let decoded = subject.decode(subject.options.setting(option.name, to: wrong))
        try expect(
          decoded.errors.contains { $0.path.hasPrefix("module." + option.name) },
          "\(option.name) takes a value that cannot be one of its own")
      }
    },
    ContractCase("everything wrong is reported at once", rule: rule) { subject in
      var options = subject.options.setting("salvor-no-such-option", to: .bool(true))
      let described = subject.factory.descriptor.options.map(\.name)
      for name in described { options = options.setting(name, to: wrong) }
      let paths = subject.decode(options).errors.map(\.path)
      for name in described + ["salvor-no-such-option"] {
        try expect(
          paths.contains { $0.hasPrefix("module." + name) }, "of several mistakes, the one in \(name) is not reported")
      }
    },
    ContractCase("reading options touches nothing", rule: rule) { subject in
      let before = subject.footprint()
      _ = subject.decode(subject.options)
      if let failing = subject.failingOptions { _ = subject.decode(failing) }
      try expectEqual(subject.footprint(), before, "what can be seen from outside, after the options were read")
    },
  ]

  // MARK: Make, start, stop

  static let living: [ContractCase<LifecycleSubject>] = [
    ContractCase("a started module works", rule: rule) { subject in
      try await subject.withStarted { try await $0.probe() }
    },
    ContractCase("stop is safe before start", rule: rule) { subject in
      let hooks = try subject.make()
      try await hooks.stop()
      try await subject.withStarted { try await $0.probe() }
    },
    ContractCase("a module that never started does not stop another's work", rule: rule) { subject in
      let idle = try subject.make()
      try await subject.withStarted { running in
        try await idle.stop()
        try await running.probe()
      }
    },
    ContractCase("stop gives everything back", rule: rule) { subject in
      for _ in 0..<2 { try await subject.withStarted { try await $0.probe() } }
    },
    ContractCase("stop is safe twice, and the second does not stop another's work", rule: rule) { subject in
      let first = try subject.make()
      try await first.start()
      try await first.stop()
      try await first.stop()
      try await subject.withStarted { second in
        try await first.stop()
        try await second.probe()
      }
    },
    ContractCase("a start that fails throws a named error", rule: rule) { subject in
      guard let failing = subject.failingOptions else { return }
      let hooks = try subject.make(failing)
      let error = try await expectError(nil, "start") { try await hooks.start() }
      try expect(!error.message.isEmpty, "the error \(error.code.rawValue) has no message")
      try await hooks.stop()
    },
    ContractCase("stop is safe after a failed start, and gives everything back", rule: rule) { subject in
      guard let failing = subject.failingOptions else { return }
      let hooks = try subject.make(failing)
      let before = subject.footprint()
      do {
        try await hooks.start()
      } catch {
        try await hooks.stop()
        try await hooks.stop()
        try expectEqual(subject.footprint(), before, "what can be seen from outside, after a failed start")
        return try await subject.withStarted { try await $0.probe() }
      }
      try await hooks.stop()
      throw ContractFailure("start succeeded with options that must make it fail")
    },
  ]

  /// No option of any module takes this.
  private static let wrong = ConfigurationValue.Content.object([
    .init(key: "salvor-no-such-key", keyLine: 0, value: ConfigurationValue(.array([ConfigurationValue(.null)])))
  ])
}

extension LifecycleSubject {
  struct Decoded {
    var diagnostics: [Diagnostic]
    var keysRead: [String]
    var make: (@Sendable () throws -> Hooks)?
    var errors: [Diagnostic] { diagnostics.errors }
  }

  func decode(_ options: ConfigurationValue) -> Decoded {
    var reader = OptionReader(options, file: "contract", path: "module")
    let make = prepareHooks(&reader)
    let keysRead = reader.keysRead
    reader.reportUnknownKeys()
    return Decoded(diagnostics: reader.diagnostics, keysRead: keysRead, make: make)
  }

  func make(_ options: ConfigurationValue? = nil) throws -> Hooks {
    let decoded = decode(options ?? self.options)
    try expect(decoded.errors.isEmpty, "sound options are refused: \(render(decoded.errors))")
    return try expectSome(decoded.make, "what the factory makes from sound options")()
  }

  /// Starts a product of its own, and stops it whatever `body` does.
  func withStarted(_ body: (Hooks) async throws -> Void) async throws {
    let hooks = try make()
    do {
      try await hooks.start()
      try await body(hooks)
    } catch {
      try? await hooks.stop()
      throw error
    }
    try await hooks.stop()
  }
}

extension ConfigurationValue {
  /// The object with one member set, or taken out (nil).
  fileprivate func setting(_ key: String, to content: Content?) -> ConfigurationValue {
    guard case .object(var members) = self.content else { return self }
    members.removeAll { $0.key == key }
    if let content { members.append(.init(key: key, keyLine: 0, value: ConfigurationValue(content))) }
    return ConfigurationValue(.object(members), line: line)
  }
}
