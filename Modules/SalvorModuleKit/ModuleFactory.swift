import SalvorModel

/// What a host gives every module it makes.
public struct ModuleContext: Sendable {
  /// Relative paths of the configuration are relative to this directory (the file's own).
  public var directory: String
  public var environment: [String: String]
  public var limits: Limits
  public var random: any RandomSource
  public var clock: any Clock
  /// Lines for the operator; no value of a user in them.
  public var log: Log
  /// The host's modules, for one that is made of another one, e.g. a validator that reaches its service by a
  /// transport; nil: there are none to be had.
  public var modules: ModuleRegistry?

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
  func start() async throws
  func stop() async
}
