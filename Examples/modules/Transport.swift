import SalvorModules

/// A transport: another one with a header of the company's on each request. What it is made of has its own options.
struct SignedTransport: ClientTransport {
  let inner: any ClientTransport
  let header: String

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    var request = request
    request.headers["x-company"] = header
    return try await inner.send(request)
  }

  func close() async { await inner.close() }

  static let factory = ModuleFactory(
    ModuleDescriptor(
      kind: .clientTransport, name: "signed", summary: "HTTP with a header of the company's.",
      options: [
        ModuleOption("header", type: "string", default: nil, "what x-company says"),
        ModuleOption("url", type: "string", default: nil, "the server, and whatever else http takes"),
      ]),
    product: (any ClientTransport).self
  ) { reader, context in
    let header = reader.string("header")
    // The other options are those of the module that it is made of.
    let http = try? context.modules?.factory(.clientTransport, "http")
    let inner = http?.prepare(&reader, context, as: (any ClientTransport).self)
    guard let header, let inner else { return nil }
    return { SignedTransport(inner: try inner(), header: header) }
  }
}
