import SalvorContracts
import SalvorModel
import SalvorTransport
import Testing

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

#if HTTPClient && HTTPServer
  import HTTPServerTransport

  /// The transport of Apple's systems on Foundation's URLSession for Linux: the files beside this one are those of
  /// Plugins/HTTPClientTransport, which are compiled there for Apple's systems alone.
  ///
  /// It runs with SALVOR_LONG_TESTS=1, one case after the other: that URLSession holds threads while it waits for a body.
  @Suite(.serialized, .enabled(if: getenv("SALVOR_LONG_TESTS") != nil)) struct URLSessionContractTests {
    /// What that URLSession can keep. The others need what it does not do: back-pressure, an answer before the whole body went out, the
    /// end of a redirection that is not followed, requests in parallel to one host without a limit.
    private static let kept: Set<String> = [
      "a request reaches the handler whole, and its response the client", "names of headers arrive in lower case",
      "empty bodies are empty, with and without a length", "HEAD has the head and no body",
      "exchange follows exchange", "what is sent arrives before more is there, down",
      "what is sent arrives before more is there, up", "a response that breaks is an error at the client, never an end",
      "cancelling a wait for the head ends the exchange on both sides",
    ]

    @Test(arguments: TransportContract.cases.filter { kept.contains($0.name) })
    func keeps(_ rule: ContractCase<TransportSubject>) async throws {
      try await rule.run(
        TransportSubject(
          makeServer: { limits in
            var options = HTTPServerOptions()
            options.port = 0
            return HTTPServerTransport(options, limits: limits)
          },
          makeClient: { url, limits in
            try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)), limits: limits)
          }))
    }

    @Test func everyCaseThatIsNamedIsThere() {
      #expect(TransportContract.cases.filter { Self.kept.contains($0.name) }.count == Self.kept.count)
    }
  }
#endif
