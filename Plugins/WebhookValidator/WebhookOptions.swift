import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport

extension WebhookValidator {
  /// What `salvor modules` shows of the module `webhook`: its options with their defaults, and what it guarantees.
  public static let descriptor = ModuleDescriptor(
    kind: .validator, name: "webhook", summary: "Asks a service of the application over HTTP",
    options: [
      ModuleOption("url", type: "string", default: nil, "the service: https, or a loopback address"),
      ModuleOption(
        "secret", type: "string", default: "none",
        "signs each batch (HMAC-SHA-256); at least 16 bytes, given as \"${NAME}\""),
      ModuleOption("timeoutSeconds", type: "integer", default: "10", "for one try, 1 to 300"),
      ModuleOption("retries", type: "integer", default: "2", "more tries where the service is not reached, 0 to 10"),
      ModuleOption("responseBytesMax", type: "integer", default: "1048576", "a larger answer is none"),
      ModuleOption("caFile", type: "string", default: "null", "PEM file of authorities to trust; null: the system's"),
      ModuleOption("allowPlainHTTP", type: "boolean", default: "false", "http to another machine: anybody can read it"),
    ],
    guarantees: [
      "the same batch has the same delivery ID", "an answer that is not understood refuses nothing and accepts nothing",
      "a try ends after its time", "no value of a user in a message of its own",
    ])

  /// The module `webhook` of the kind validator. It sends by the client transport `http`, which must be among the
  /// context's modules.
  public static let factory = ModuleFactory(descriptor, product: (any RequestValidator).self) { reader, context in
    let url = reader.value("url")
    let text = reader.string("url")
    let secret = secret(&reader)
    let timeout = reader.integer("timeoutSeconds", in: 1...300, default: 10)
    let retries = reader.integer("retries", in: 0...10, default: 2)
    let responseBytesMax = reader.integer("responseBytesMax", in: 1024...1 << 30, default: 1 << 20)
    let caFile = reader.value("caFile")
    _ = reader.optionalString("caFile")
    let allowsPlainHTTP = reader.boolean("allowPlainHTTP", default: false)
    guard let text, let url else { return nil }
    let service = ServiceURL(text)
    if !service.isPrivate, !allowsPlainHTTP, text.hasPrefix("http://") {
      reader.report(
        "url",
        "is http to another machine, where anybody on the way can read it; use https, or say allowPlainHTTP: true")
      return nil
    }
    guard let modules = context.modules else {
      reader.report("module", "needs a host whose modules it may use: it reaches its service by the transport \"http\"")
      return nil
    }
    func member(_ key: String, _ content: ConfigurationValue.Content) -> ConfigurationValue.Member {
      .init(key: key, keyLine: url.line, value: ConfigurationValue(content, line: url.line))
    }
    var members = [
      member("module", .string("http")), member("url", .string(service.origin)),
      member("connectTimeoutSeconds", .integer(timeout)), member("idleTimeoutSeconds", .integer(timeout)),
    ]
    if let caFile { members.append(.init(key: "caFile", keyLine: caFile.line, value: caFile)) }
    let value = ConfigurationValue(.object(members), line: url.line)
    var transportReader = OptionReader(value, file: reader.file, path: reader.path)
    var transportContext = context
    transportContext.limits.downloadBytesMax = Int(responseBytesMax)
    let transport = modules.prepare(
      .clientTransport, value, &transportReader, of: &reader, transportContext, as: (any ClientTransport).self)
    guard let transport else { return nil }
    var options = Options(path: service.path, secret: secret)
    options.timeoutMilliseconds = timeout * 1000
    options.retries = Int(retries)
    options.responseBytesMax = Int(responseBytesMax)
    return { [options] in
      WebhookValidator(options, transport: try transport.make(), clock: context.clock, random: context.random)
    }
  }

  private static func secret(_ reader: inout OptionReader) -> [UInt8]? {
    let isFromEnvironment = reader.value("secret")?.isFromEnvironment == true
    guard let text = reader.optionalString("secret") else { return nil }
    if text.utf8.count < 16 {
      reader.report("secret", "is shorter than 16 bytes; take a longer one, e.g. of `openssl rand -hex 32`")
    }
    if !isFromEnvironment {
      reader.warn("secret", "stands in the file, for everybody who reads it; give it as \"${NAME}\"")
    }
    return Array(text.utf8)
  }
}

/// A URL in two: what the transport connects to, and what the request names.
struct ServiceURL {
  /// Scheme, host and port.
  let origin: String
  /// Begins with `/`.
  let path: String
  /// Nobody on the way can read what is sent: https, or this machine.
  let isPrivate: Bool

  init(_ text: String) {
    let isSecure = text.hasPrefix("https://")
    let scheme = text.firstRange(of: "://").map { text[..<$0.upperBound] } ?? ""
    let authority = text[scheme.endIndex...].prefix { $0 != "/" && $0 != "?" }
    origin = String(scheme + authority)
    let rest = text[authority.endIndex...]
    path = rest.hasPrefix("/") ? String(rest) : "/" + rest
    var host = authority
    if let colon = host.lastIndex(of: ":"), !host[colon...].contains("]") { host = host[..<colon] }
    isPrivate =
      isSecure || host == "localhost" || host == "[::1]"
      || (host.hasPrefix("127.") && host.split(separator: ".").count == 4
        && host.allSatisfy { $0.isNumber || $0 == "." })
  }
}
