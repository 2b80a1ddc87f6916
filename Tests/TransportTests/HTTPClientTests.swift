#if HTTPServer && HTTPClient
  import Foundation
  import HTTPClientTransport
  import HTTPServerTransport
  import SalvorContracts
  import SalvorModel
  import SalvorModuleKit
  import SalvorTransport
  import Testing

  /// What only HTTP has; the rest is the transport contract's.
  @Suite struct HTTPClientTests {
    private static let get = TransportRequest(method: "GET", path: "/")

    private func client(_ port: UInt16, _ change: (inout HTTPClientOptions) -> Void = { _ in }) throws
      -> HTTPClientTransport
    {
      var options = HTTPClientOptions(url: try HTTPServerURL("http://127.0.0.1:\(port)/base/"))
      change(&options)
      return try HTTPClientTransport(options)
    }

    /// Reads a head, says `answer`, and hangs up.
    private func server(_ answer: String) throws -> RawServer {
      try RawServer { socket in
        _ = await socket.receive(until: "\r\n\r\n")
        socket.send(answer)
      }
    }

    @Test func aConnectionIsUsedAgain() async throws {
      // Only the first connection is served: a second one would wait for ever.
      let connections = Mutex(0)
      let server = try RawServer { socket in
        let isFirst = connections.withLock { count in
          count += 1
          return count == 1
        }
        while isFirst, await socket.receive(until: "\r\n\r\n")?.isEmpty == false {
          socket.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        }
      }
      let client = try client(server.port)
      for _ in 0..<5 {
        #expect(try await client.send(Self.get).body.collect(upTo: 10) == Array("ok".utf8))
      }
      #expect(connections.withLock { $0 } == 1)
      await client.close()
    }

    @Test func whatGoesOutIsWhatWasAskedFor() async throws {
      let heads = Seen()
      let server = try RawServer { socket in
        guard let head = await socket.receive(until: "\r\n\r\n") else { return }
        heads.add(head)
        socket.send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
      }
      let client = try client(server.port)
      var request = TransportRequest(
        method: "POST", path: "/v1/a?b", headers: ["x-empty": "", "x-one": "1"], body: .bytes([1]), contentLength: 1)
      _ = try await client.send(request).body.collect(upTo: 10)
      request = TransportRequest(method: "POST", path: "/", body: .bytes([1]))
      _ = try await client.send(request).body.collect(upTo: 10)
      let lines = heads.all.map { $0.components(separatedBy: "\r\n\r\n")[0].components(separatedBy: "\r\n") }
      #expect(lines[0][0] == "POST /base/v1/a?b HTTP/1.1")
      #expect(
        Set(lines[0].dropFirst()) == ["Host: 127.0.0.1:\(server.port)", "x-empty:", "x-one: 1", "Content-Length: 1"])
      #expect(Set(lines[1].dropFirst()) == ["Host: 127.0.0.1:\(server.port)", "Transfer-Encoding: chunked"])
      await client.close()
    }

    @Test(arguments: [
      "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "", "HTTP/1.1 200 OK\r\nX: ", "nonsense\r\n\r\n",
    ])
    func anAnswerThatBreaksOffIsUnreachable(answer: String) async throws {
      let server = try server(answer)
      let client = try client(server.port)
      let error = await #expect(throws: SalvorError.self) {
        _ = try await client.send(Self.get).body.collect(upTo: 100)
      }
      #expect(error?.code == .unreachable)
      #expect(error?.message.contains("127.0.0.1:\(server.port)") == true)
      await client.close()
    }

    @Test func redirectsAreNotFollowedAndEarlyHintsSkipped() async throws {
      let server = try server(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-Early: 1\r\n\r\n"
          + "HTTP/1.1 302 Found\r\nLocation: /other\r\nX-Two: a\r\nx-two: b\r\nContent-Length: 0\r\n\r\n")
      let client = try client(server.port)
      let response = try await client.send(Self.get)
      #expect(response.status == 302)
      #expect(response.headers["location"] == "/other")
      #expect(response.headers["x-two"] == "a, b")
      #expect(response.headers["x-early"] == nil)
      await client.close()
    }

    @Test func aCodedBodyIsLeftAsItIs() async throws {
      let server = try server("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nbytes")
      let client = try client(server.port)
      let response = try await client.send(Self.get)
      #expect(response.headers["content-encoding"] == "gzip")
      #expect(try await response.body.collect(upTo: 10) == Array("bytes".utf8))
      await client.close()
    }

    @Test func aServerThatSaysNothingIsATimeout() async throws {
      let server = try RawServer { socket in
        _ = await socket.receive(until: "\r\n\r\n")
        try? await Task.sleep(for: .seconds(8))
        socket.finishSending()
      }
      let client = try client(server.port) { $0.idleTimeoutSeconds = 1 }
      let error = await #expect(throws: SalvorError.self) { _ = try await client.send(Self.get) }
      #expect(error?.code == .timeout)
      await client.close()
    }

    @Test func aHeadThatWouldSplitIsRefused() async throws {
      let client = try client(1)
      for request in [
        TransportRequest(method: "GET", path: "/a b"), TransportRequest(method: "GET", path: "a"),
        TransportRequest(method: "GET /\r\n", path: "/"),
        TransportRequest(method: "GET", path: "/", headers: ["x": "a\r\nb: c"]),
        TransportRequest(method: "GET", path: "/", headers: ["x:": "a"]),
      ] {
        let error = await #expect(throws: SalvorError.self) { _ = try await client.send(request) }
        #expect(error?.code == .usage)
      }
      await client.close()
    }

    @Test(arguments: [
      ("http://example.org", "example.org:80", ""), ("https://example.org/", "example.org:443", ""),
      ("http://[::1]:8484/a/b//", "[::1]:8484", "/a/b"), ("https://a:1", "a:1", ""),
    ])
    func urlsAreRead(text: String, label: String, path: String) throws {
      let url = try HTTPServerURL(text)
      #expect(url.label == label)
      #expect(url.basePath == path)
    }

    @Test(arguments: [
      "example.org", "ftp://a", "http://", "http://user:secret@a", "http://a:0", "http://a:x", "http://a?b",
      "http://a#b",
      "http://a b", "http://[::1", "http://a:99999",
    ])
    func wrongURLsAreRefusedWithoutRepeatingThem(text: String) throws {
      let error = #expect(throws: SalvorError.self) { _ = try HTTPServerURL(text) }
      #expect(error?.code == .configuration)
      #expect(error?.message.contains("secret") == false)
    }

    @Test("a file at another address: what was asked for goes there and nothing else, and no redirection is followed")
    func otherAddress() async throws {
      let heads = Seen()
      let server = try RawServer { socket in
        guard let head = await socket.receive(until: "\r\n\r\n") else { return }
        heads.add(head)
        socket.send("HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok")
      }
      // Nobody listens where the transport's own server is.
      let client = try client(1)
      let address = "http://127.0.0.1:\(server.port)/files/a?expires=1&signature=b"
      let response = try await client.fetch(address, headers: ["range": "bytes=5-"])
      #expect(response.status == 302)
      #expect(try await response.body.collect(upTo: 10) == Array("ok".utf8))
      let lines = heads.all.map { $0.components(separatedBy: "\r\n\r\n")[0].components(separatedBy: "\r\n") }
      #expect(lines.count == 1)
      #expect(lines[0][0] == "GET /files/a?expires=1&signature=b HTTP/1.1")
      #expect(Set(lines[0].dropFirst()) == ["Host: 127.0.0.1:\(server.port)", "range: bytes=5-"])
      for (address, headers) in [
        (address, ["authorization": "Bearer secret"]), (address, ["Salvor-Principal": "anna"]),
        (address, ["cookie": "a"]),
        ("/v1/snapshots/a", [:]), ("ftp://127.0.0.1/a", [:]), ("http://anna:secret@127.0.0.1/a", [:]),
        ("http://127.0.0.1/a#b", [:]), ("http://127.0.0.1/a\r\nx: y", [:]),
      ] {
        let error = await #expect(throws: SalvorError.self, "\(address)") {
          _ = try await client.fetch(address, headers: headers)
        }
        #expect(error?.code == .usage, "\(address)")
        #expect(error?.message.contains("secret") == false)
      }
      // In clear text to another machine, or to this one where the server is another: not even looked up.
      let own = try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL("https://sync.example.org")))
      for (client, address) in [(client, "http://files.example.org/a"), (own, "http://127.0.0.1:\(server.port)/a")] {
        let error = await #expect(throws: SalvorError.self) { _ = try await client.fetch(address, headers: [:]) }
        #expect(error?.code == .configuration, "\(address)")
      }
      #expect(heads.all.count == 1)
      await client.close()
      await own.close()
    }

    @Test func everyOptionIsRead() throws {
      let (made, diagnostics) = try prepare(
        """
        { url: "https://a", compression: "identity", connectTimeoutSeconds: 1, idleTimeoutSeconds: 2, caFile: "c" }
        """)
      // The file is not there: a warning.
      #expect(diagnostics.errors.isEmpty && diagnostics.map(\.path) == ["transport.caFile"])
      #expect((made as? any CompressionPreference)?.preferredCompression == "identity")
      #expect((try prepare("{ url: \"https://a\" }").0 as? any CompressionPreference)?.preferredCompression == "gzip")
      let wrong = try prepare("{ url: \"http://u@a\", connectTimeoutSeconds: 0, idleTimeoutSeconds: \"2\", port: 1 }").1
      #expect(
        Set(wrong.map(\.path)) == [
          "transport.url", "transport.connectTimeoutSeconds", "transport.idleTimeoutSeconds", "transport.port",
        ])
      #expect(try prepare("{}").1.map(\.path) == ["transport.url"])
    }

    @Test("A token goes to another machine over TLS alone, unless insecure is said")
    func clearText() async throws {
      let found = try prepare("{ url: \"http://sync.example.org\" }").1
      #expect(found.errors.map(\.path) == ["transport.url"] && found[0].message.contains("insecure: true"))
      for text in [
        "{ url: \"http://sync.example.org\", insecure: true }", "{ url: \"https://sync.example.org\" }",
        "{ url: \"http://127.0.0.1:8484\" }", "{ url: \"http://[::1]:8484\" }",
      ] { #expect(try prepare(text).1.errors.isEmpty) }
      // Whoever makes one in Swift is kept from it, too: nothing is looked up or sent.
      let client = try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL("http://sync.example.org")))
      let request = TransportRequest(method: "GET", path: "/", headers: ["authorization": "Bearer secret"])
      let error = await #expect(throws: SalvorError.self) { _ = try await client.send(request) }
      #expect(error?.code == .configuration && error?.message.contains("secret") == false)
      await client.close()
    }

    private func prepare(_ text: String) throws -> ((any ClientTransport)?, [Diagnostic]) {
      let value = try JSON5Reader.read(Array(text.utf8), file: "f")
      var reader = OptionReader(value, file: "f", path: "transport")
      let make = HTTPClientTransport.factory.prepare(&reader, ModuleContext(), as: (any ClientTransport).self)
      reader.reportUnknownKeys()
      return (try make?(), reader.diagnostics)
    }

    // MARK: TLS

    @Test func tlsIsProvedWithTheNamedAuthority() async throws {
      let files = try TLSFiles()
      var options = HTTPServerOptions()
      options.port = 0
      options.tls = .init(certificate: files.certificate, key: files.key)
      let server = HTTPServerTransport(options)
      let url = try await server.start { request in
        let count = ((try? await request.body.collect(upTo: 1 << 20)) ?? []).count
        return TransportResponse(status: 200, body: .bytes([UInt8](repeating: 7, count: count)))
      }
      #expect(url.hasPrefix("https://127.0.0.1:"))
      var trusting = HTTPClientOptions(url: try HTTPServerURL(url))
      trusting.caFile = files.certificate
      let client = try HTTPClientTransport(trusting)
      let body = [UInt8](repeating: 1, count: 500_000)
      let response = try await client.send(TransportRequest(method: "POST", path: "/", body: .bytes(body)))
      #expect(try await response.body.collect(upTo: 1 << 20).count == 500_000)
      await client.close()

      let doubting = try HTTPClientTransport(HTTPClientOptions(url: HTTPServerURL(url)))
      let error = await #expect(throws: SalvorError.self) { _ = try await doubting.send(Self.get) }
      #expect(error?.code == .unreachable)
      #expect(error?.message.contains("certificate") == true)
      await doubting.close()
      await server.stop(graceMilliseconds: 0)
    }

    @Test func tlsFilesThatCannotBeUsedAreConfigurationErrors() async throws {
      let files = try TLSFiles()
      for (certificate, key) in [
        ("/nowhere.pem", files.key), (files.certificate, "/nowhere.pem"), (files.key, files.key),
      ] {
        var options = HTTPServerOptions()
        options.port = 0
        options.tls = .init(certificate: certificate, key: key)
        let server = HTTPServerTransport(options)
        let error = await #expect(throws: SalvorError.self) {
          _ = try await server.start { _ in TransportResponse(status: 200) }
        }
        #expect(error?.code == .configuration)
      }
    }
  }

  private final class Seen: Sendable {
    private let heads = Mutex<[String]>([])
    func add(_ head: String) { heads.withLock { $0.append(head) } }
    var all: [String] { heads.withLock { $0 } }
  }

  /// A certificate for 127.0.0.1 that signs itself, for these tests only.
  private final class TLSFiles: Sendable {
    let certificate = NSTemporaryDirectory() + "/salvor-\(UUID().uuidString)-certificate.pem"
    let key = NSTemporaryDirectory() + "/salvor-\(UUID().uuidString)-key.pem"

    init() throws {
      try Self.certificateText.write(toFile: certificate, atomically: true, encoding: .utf8)
      try Self.keyText.write(toFile: key, atomically: true, encoding: .utf8)
    }

    deinit {
      for file in [certificate, key] { try? FileManager.default.removeItem(atPath: file) }
    }

    private static let certificateText = """
      -----BEGIN CERTIFICATE-----
      MIIBoDCCAUWgAwIBAgIUHgF3cy9YX4wYhrsCmPL/M7crj1swCgYIKoZIzj0EAwIw
      FjEUMBIGA1UEAwwLc2Fsdm9yIHRlc3QwIBcNMjYxMTIxMDUwMTQwWhgPMjEyNjEw
      MjgwNTAxNDBaMBYxFDASBgNVBAMMC3NhbHZvciB0ZXN0MFkwEwYHKoZIzj0CAQYI
      KoZIzj0DAQcDQgAELKuZETuYXSdxZFSOZJtGf/Td1/SXnQp3jC6vtgmUpN1xWMvr
      7FTjnSs5WQE+zDPhEM7NDtFNL4XV4z7odUqYrKNvMG0wHQYDVR0OBBYEFJfMLkwa
      9fVaAHJETMhxkHz+pxOtMB8GA1UdIwQYMBaAFJfMLkwa9fVaAHJETMhxkHz+pxOt
      MA8GA1UdEwEB/wQFMAMBAf8wGgYDVR0RBBMwEYcEfwAAAYIJbG9jYWxob3N0MAoG
      CCqGSM49BAMCA0kAMEYCIQDIPoEKXEfvGL66fUtogvO0eNKWIUsYv4sTT8NVa7PV
      egIhAKhG6l8LBExbKAqGYLCBIH2i4wjY0xHQCx7DoUIQVS0u
      -----END CERTIFICATE-----
      """

    private static let keyText = """
      -----BEGIN PRIVATE KEY-----
      MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgzWaHPfJJoRScSZNY
      S+TOYGxwHeLcrifMNe4aMtCdDhahRANCAAQsq5kRO5hdJ3FkVI5km0Z/9N3X9Jed
      CneMLq+2CZSk3XFYy+vsVOOdKzlZAT7MM+EQzs0O0U0vhdXjPuh1Spis
      -----END PRIVATE KEY-----
      """
  }
#endif
