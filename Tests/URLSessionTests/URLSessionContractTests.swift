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
    /// What Linux's URLSession cannot keep, and why. Of Apple's nothing of this is known.
    private static let lacking: [String: String] = [
      "every status and method is carried": "a redirection without a location never comes to an end",
      "a large response streams": "a task that was suspended goes on with other bytes, so nothing is held back",
      "a client that does not read stops the response's source": "as before",
      "a request over the limit is refused before it is read": "a body that streams has no length",
      "the handler may answer before it has read": "the whole body goes out before an answer is given",
      "a request that breaks is an error at both ends, never an end":
        "the client throws; the session waits for the body, and the server is told nothing",
      "cancelling an upload closes its source": "as before, on the server's side",
      "cancelling a read of the response ends the exchange on both sides": "the connection stays, on the server's side",
    ]

    @Test(arguments: TransportContract.cases.filter { lacking[$0.name] == nil })
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
      #expect(TransportContract.cases.filter { Self.lacking[$0.name] != nil }.count == Self.lacking.count)
    }
  }
#endif
