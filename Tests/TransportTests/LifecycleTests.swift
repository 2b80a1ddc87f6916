import GzipCompression
import IdentityCompression
import LoopbackTransport
import NoAuthentication
import SalvorContracts
import SalvorModuleKit
import SalvorTransport
import SalvorModel
import Testing
import TokenAuthentication

#if HTTPServer && HTTPClient
  import HTTPClientTransport
  import HTTPServerTransport
#endif

/// The one life of every module, for the modules of this folder.
@Suite struct LifecycleTests {
  @Test(arguments: LifecycleContract.cases)
  func loopbackServerLives(_ rule: ContractCase<LifecycleSubject>) async throws {
    let network = LoopbackNetwork()
    try await rule.run(
      server(network.serverFactory, options: "{}") { _ in LoopbackClientTransport(network) })
  }

  #if HTTPServer && HTTPClient
    @Test(arguments: LifecycleContract.cases)
    func httpServerLives(_ rule: ContractCase<LifecycleSubject>) async throws {
      try await rule.run(
        server(
          HTTPServerTransport.factory, options: "{ port: 0 }", failingOptions: "{ address: '192.0.2.1', port: 0 }"
        ) { url in
          try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)))
        })
    }

    @Test(arguments: LifecycleContract.configurationCases)
    func httpClientIsConfigured(_ rule: ContractCase<LifecycleSubject>) async throws {
      try await rule.run(
        subject(HTTPClientTransport.factory, (any ClientTransport).self, options: "{ url: 'http://127.0.0.1:1' }"))
    }
  #endif

  @Test(arguments: LifecycleContract.configurationCases)
  func theOthersAreConfigured(_ rule: ContractCase<LifecycleSubject>) async throws {
    try await rule.run(subject(LoopbackNetwork().clientFactory, (any ClientTransport).self))
    try await rule.run(subject(GzipCompression.factory, (any Compression).self))
    try await rule.run(subject(IdentityCompression.factory, (any Compression).self))
    try await rule.run(subject(NoAuthentication.factory, (any Authentication).self))
    try await rule.run(subject(TokenAuthentication.factory, (any Authentication).self, options: "{ file: 'tokens' }"))
  }

  private func subject<Product>(
    _ factory: ModuleFactory, _ type: Product.Type, options: String = "{}"
  ) throws -> LifecycleSubject {
    try LifecycleSubject(factory, product: type, options: options) { _ in
      LifecycleSubject.Hooks(start: {}, stop: {}, probe: {})
    }
  }

  private func server(
    _ factory: ModuleFactory, options: String, failingOptions: String? = nil,
    client: @escaping @Sendable (String) throws -> any ClientTransport
  ) throws -> LifecycleSubject {
    try LifecycleSubject(
      factory, product: (any ServerTransport).self, options: options, failingOptions: failingOptions
    ) { server in
      let url = URLOfTest()
      return LifecycleSubject.Hooks(
        start: { url.set(try await server.start { _ in TransportResponse(status: 204) }) },
        stop: { await server.stop(graceMilliseconds: 0) },
        probe: {
          let client = try client(url.text)
          let response = try await client.send(TransportRequest(method: "GET", path: "/"))
          #expect(response.status == 204)
          await response.body.close()
          await client.close()
        })
    }
  }
}

private final class URLOfTest: Sendable {
  private let url = Mutex("")
  func set(_ text: String) { url.withLock { $0 = text } }
  var text: String { url.withLock { $0 } }
}
