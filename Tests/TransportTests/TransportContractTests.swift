import LoopbackTransport
import SalvorContracts
import SalvorModel
import SalvorTransport
import Testing

#if HTTPServer && HTTPClient
  import HTTPClientTransport
  import HTTPServerTransport
#endif

/// Both ends in this process, over a network of their own.
func loopbackPair() -> TransportSubject {
  let network = LoopbackNetwork()
  return TransportSubject(
    makeServer: { LoopbackServerTransport(network, limits: $0) },
    makeClient: { _, limits in LoopbackClientTransport(network, limits: limits) })
}

@Suite struct TransportContractTests {
  @Test(arguments: TransportContract.cases)
  func loopbackKeeps(_ rule: ContractCase<TransportSubject>) async throws {
    try await rule.run(loopbackPair())
  }

  #if HTTPServer && HTTPClient
    @Test(arguments: TransportContract.cases)
    func httpKeeps(_ rule: ContractCase<TransportSubject>) async throws {
      try await rule.run(httpPair())
    }
  #endif
}

#if HTTPServer && HTTPClient
  /// Over a socket of this machine, with any free port.
  func httpPair(_ change: @escaping @Sendable (inout HTTPServerOptions) -> Void = { _ in }) -> TransportSubject {
    TransportSubject(
      makeServer: { limits in
        var options = HTTPServerOptions()
        options.port = 0
        change(&options)
        return HTTPServerTransport(options, limits: limits)
      },
      makeClient: { url, limits in
        try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)), limits: limits)
      })
  }
#endif
