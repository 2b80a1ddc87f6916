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
