import ContentHash
import LoopbackTransport
import SalvorContracts
import SalvorModel
import SalvorModuleKit
import SalvorStorage
import SalvorTransport
import SalvorWire
import Testing
@testable import WebhookValidator

#if HTTPServer && HTTPClient
  import HTTPClientTransport
  import HTTPServerTransport
#endif

/// The application's service: refuses requests whose note is "bad", and answers as it is told.
private final class Service: Sendable {
  struct Delivery: Sendable {
    var headers: [String: String]
    var body: [UInt8]
  }

  /// How the next deliveries are answered, before it judges: a status with a body, or no answer for a while.
  enum Answer: Sendable {
    case status(Int, String)
    case silence
  }

  private let answers = Mutex<[Answer]>([])
  private let received = Mutex<[Delivery]>([])
  var deliveries: [Delivery] { received.withLock { $0 } }

  func answer(_ next: Answer...) { answers.withLock { $0 = next } }

  func handle(_ request: TransportRequest) async -> TransportResponse {
    let body = (try? await request.body.collect(upTo: 1 << 26)) ?? []
    received.withLock { $0.append(Delivery(headers: request.headers, body: body)) }
    let next = answers.withLock { $0.isEmpty ? nil : $0.removeFirst() }
    switch next {
    case .status(let status, let text)?:
      return TransportResponse(
        status: status, body: .bytes(Array(text.utf8)), contentLength: status == 204 ? nil : text.utf8.count)
    case .silence?:
      try? await Task.sleep(for: .seconds(600))
      return TransportResponse(status: 500, contentLength: 0)
    case nil: return judge(body)
    }
  }

  private func judge(_ body: [UInt8]) -> TransportResponse {
    let requests = (try? JSONValue(parsing: body))?["requests"]?.array ?? []
    let refused = requests.filter { request in
      request["changes"]?.array?.contains { $0["new"]?["note"] == "bad" } == true
    }.map { request -> JSONValue in ["id": request["id"] ?? .null, "message": "A better note.", "status": 451] }
    let answer = (["refused": .array(refused)] as JSONValue).bytes
    return TransportResponse(status: 200, body: .bytes(answer), contentLength: answer.count)
  }
}

private func change(_ counter: Int64, _ note: Value, old: Value? = nil) -> UploadedRequest {
  UploadedRequest(
    stamp: RequestStamp(unchecked: String(repeating: "a", count: 32)), tag: nil,
    changes: [
      UploadedChange(
        counter: counter, made: 7, table: "visit", key: [.integer(counter)], operation: old == nil ? .insert : .update,
        columns: [UploadedColumn("note", old: old, new: note)])
    ])
}

private func batch(_ requests: UploadedRequest..., number: Int = 0) -> ValidationBatch {
  let id = String(repeating: "b", count: 32)
  return ValidationBatch(
    remote: RemoteID(unchecked: id), principal: Principal(name: "anna"), sequence: SequenceID(unchecked: id),
    number: number, requests: requests)
}

@Suite("webhook: the exchange")
struct WebhookTests {
  private let service: Service

  /// The validator over a network of this process, with no time lost between its tries.
  private func withValidator<Result>(
    secret: String? = nil, _ configure: (inout WebhookValidator.Options) -> Void = { _ in },
    _ body: (WebhookValidator) async throws -> Result
  ) async throws -> Result {
    let network = LoopbackNetwork()
    let transport = LoopbackServerTransport(network)
    let service = service
    _ = try await transport.start { await service.handle($0) }
    var options = WebhookValidator.Options(path: "/rules?v=1", secret: secret.map { Array($0.utf8) })
    // A busy machine takes its time, and a try too many would take the answer that is meant for the next one.
    options.timeoutMilliseconds = 600_000
    configure(&options)
    let validator = WebhookValidator(options, transport: LoopbackClientTransport(network))
    let result = try await body(validator)
    await validator.close()
    await transport.stop(graceMilliseconds: 0)
    return result
  }

  @Test("each rule of the contract is kept", arguments: ValidatorContract.cases)
  func keepsTheContract(_ rule: ValidatorContract.Case) async throws {
    try await withValidator { validator in
      try await rule.run(
        ValidatorSubject(
          validator, refused: [change(1, "bad"), change(3, "bad", old: "x")],
          accepted: [change(2, "good"), change(4, .null, old: "bad")]))
    }
  }

  @Test("what is posted is what the README says: requests whole, old and new, values as in the protocol")
  func posts() async throws {
    let found = try await withValidator {
      try await $0.validate(batch(change(1, "bad"), change(2, .blob([1, 2]), old: .integer(1 << 60))))
    }
    #expect(
      found == [
        ValidationRefusal(
          id: RequestID(stamp: RequestStamp(unchecked: String(repeating: "a", count: 32)), counter: 1),
          message: "A better note.", status: 451)
      ])
    let delivery = try #require(service.deliveries.first)
    let body = try JSONValue(parsing: delivery.body)
    #expect(body["version"] == 1 && body["principal"] == "anna" && body["batch"] == 0)
    #expect(body["delivery"]?.string == delivery.headers["salvor-delivery"])
    let second = try #require(body["requests"]?.array?.last)
    #expect(second["tag"] == .null)
    #expect(
      second["changes"]?.array?.first?.text
        == #"{"table":"visit","operation":"update","key":[2],"old":{"note":{"integer":"1152921504606846976"}},"new":{"note":{"blob":"AQI="}}}"#
    )
    #expect(delivery.headers["content-type"] == "application/json")
    #expect(delivery.headers["salvor-signature"] == nil, "without a secret nothing is signed")
  }

  @Test("the service's part is a step of the same trace: traceparent goes along, with a span of its own")
  func traces() async throws {
    let context = LogContext(TraceContext())
    try await withValidator { validator in
      _ = try await LogContext.$current.withValue(context) { try await validator.validate(batch(change(1, "good"))) }
      _ = try await validator.validate(batch(change(2, "good")))
    }
    let sent = service.deliveries.map { $0.headers["traceparent"] }
    let first = try #require(sent.first ?? nil)
    let trace = TraceContext(traceparent: first)
    #expect(trace?.traceID == context.trace.traceID)
    #expect(trace?.spanID != context.trace.spanID && trace?.isSampled == context.trace.isSampled)
    #expect(sent.count == 2 && sent[1] == nil, "without a trace there is none to go on")
  }

  @Test("the same batch has the same delivery ID, another one another")
  func deliveryIDs() async throws {
    try await withValidator { validator in
      for asked in [
        batch(change(1, "a")), batch(change(1, "a")), batch(change(1, "b")), batch(change(1, "a"), number: 1),
      ] {
        _ = try await validator.validate(asked)
      }
    }
    let ids = service.deliveries.compactMap { $0.headers["salvor-delivery"] }
    #expect(ids[0] == ids[1] && Set(ids).count == 3)
  }

  @Test("a signature is HMAC-SHA-256 of timestamp, full stop and body")
  func signs() async throws {
    // RFC 4231, test case 2.
    #expect(
      hexadecimal(hmacSHA256(Array("what do ya want for nothing?".utf8), key: Array("Jefe".utf8)))
        == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    try await withValidator(secret: "a shared secret, long") { _ = try await $0.validate(batch(change(1, "a"))) }
    let delivery = try #require(service.deliveries.first)
    let timestamp = try #require(delivery.headers["salvor-timestamp"])
    #expect(Int64(timestamp).map { abs($0 - SystemClock().now() / 1000) < 3600 } == true)
    let signed = Array((timestamp + ".").utf8) + delivery.body
    #expect(
      delivery.headers["salvor-signature"]
        == "sha256=" + hexadecimal(hmacSHA256(signed, key: Array("a shared secret, long".utf8))))
  }

  @Test(
    "a service that is busy for a moment is asked again with the same delivery ID", arguments: [408, 429, 500, 503])
  func triesAgain(status: Int) async throws {
    service.answer(.status(status, "later"), .status(status, "later"))
    let found = try await withValidator { try await $0.validate(batch(change(1, "bad"))) }
    #expect(found.count == 1)
    #expect(service.deliveries.count == 3)
    #expect(Set(service.deliveries.map { $0.headers["salvor-delivery"] }).count == 1)
  }

  @Test("after its tries it throws; what is no answer throws at once")
  func fails() async throws {
    let cases: [(Service.Answer, ErrorCode, tries: Int)] = [
      (.status(500, "no"), .overloaded, 2), (.status(401, "no"), .failed, 1), (.status(302, ""), .failed, 1),
      (.status(200, "[]"), .malformed, 1), (.status(200, "{}"), .malformed, 1), (.status(200, "no"), .malformed, 1),
      (.status(200, #"{"refused":[{"id":"7"}]}"#), .malformed, 1),
      (.status(200, String(repeating: " ", count: 5000)), .tooLarge, 1),
    ]
    for (answer, code, tries) in cases {
      let service = Service()
      service.answer(answer, answer, answer)
      try await WebhookTests(service).withValidator {
        $0.retries = 1
        $0.responseBytesMax = 4096
      } _: { validator in
        let error = await #expect(throws: SalvorError.self) {
          try await validator.validate(batch(change(1, "secret note")))
        }
        #expect(error?.code == code, "\(answer)")
        #expect(error.map { !"\($0)".contains("secret note") } == true)
      }
      #expect(service.deliveries.count == tries, "\(answer)")
    }
  }

  @Test("204, and an empty list, accept everything")
  func accepts() async throws {
    service.answer(.status(204, ""), .status(200, #"{"refused":[]}"#))
    let found = try await withValidator { validator in
      [try await validator.validate(batch(change(1, "bad"))), try await validator.validate(batch(change(1, "bad")))]
    }
    #expect(found == [[], []])
  }

  @Test("a try ends after its time, and another one is made")
  func timeouts() async throws {
    service.answer(.silence)
    let found = try await withValidator {
      $0.timeoutMilliseconds = 1000
      // Only the first is never answered; a busy machine may need more than a second for the others.
      $0.retries = 10
    } _: { validator in
      try await validator.validate(batch(change(1, "bad")))
    }
    #expect(found.count == 1 && service.deliveries.count >= 2)
  }

  @Test("nobody there: unreachable, after its tries")
  func unreachable() async throws {
    var options = WebhookValidator.Options(path: "/")
    options.retries = 1
    let validator = WebhookValidator(options, transport: LoopbackClientTransport(LoopbackNetwork()))
    let error = await #expect(throws: SalvorError.self) { _ = try await validator.validate(batch(change(1, "a"))) }
    #expect(error?.code == .unreachable)
  }

  private init(_ service: Service) { self.service = service }
  init() { self.init(Service()) }
}

#if HTTPServer && HTTPClient
  @Suite("webhook: options")
  struct WebhookOptionTests {
    private func prepare(
      _ options: String, environment isFromEnvironment: Bool = false
    ) throws -> (make: (@Sendable () throws -> any RequestValidator)?, diagnostics: [Diagnostic]) {
      var value = try JSON5Reader.read(Array(options.utf8), file: "salvor.json5")
      if isFromEnvironment, case .object(var members) = value.content {
        for index in members.indices where members[index].key == "secret" {
          members[index].value.isFromEnvironment = true
        }
        value.content = .object(members)
      }
      var reader = OptionReader(value, file: "salvor.json5", path: "server.validators[0]")
      let registry = try ModuleRegistry([HTTPClientTransport.factory, WebhookValidator.factory])
      let make = WebhookValidator.factory.prepare(
        &reader, ModuleContext(modules: registry), as: (any RequestValidator).self)
      reader.reportUnknownKeys()
      return (make, reader.diagnostics)
    }

    @Test("over real HTTP, made from its options")
    func overHTTP() async throws {
      var options = HTTPServerOptions()
      options.port = 0
      let transport = HTTPServerTransport(options)
      let service = Service()
      let url = try await transport.start { await service.handle($0) }
      let (make, diagnostics) = try prepare(
        "{ url: '\(url)/rules?v=1', secret: 'a shared secret, long' }", environment: true)
      #expect(diagnostics.isEmpty)
      let maker = try #require(make)
      let validator = try maker()
      #expect(try await validator.validate(batch(change(1, "bad"), change(2, "good"))).map(\.id.counter) == [1])
      #expect(service.deliveries.first?.headers["salvor-signature"]?.hasPrefix("sha256=") == true)
      await validator.close()
      await transport.stop(graceMilliseconds: 0)
    }

    @Test(
      "https, or http to this machine, unless told",
      arguments: [
        ("https://rules.example.org/visits", true), ("http://127.0.0.1:8600/", true), ("http://localhost", true),
        ("http://[::1]:8600/x", true), ("http://rules.example.org/", false), ("http://127.0.0.1.example.org/", false),
        ("http://localhost.example.org:80", false), ("http://[::2]/", false),
      ])
    func isPrivate(url: String, isAllowed: Bool) throws {
      let (make, diagnostics) = try prepare("{ url: '\(url)' }")
      #expect((make != nil) == isAllowed && diagnostics.isEmpty == isAllowed)
      #expect(diagnostics.allSatisfy { $0.path == "server.validators[0].url" && $0.message.contains("allowPlainHTTP") })
      #expect(try prepare("{ url: '\(url)', allowPlainHTTP: true }").make != nil)
    }

    @Test("mistakes are named at their places")
    func mistakes() throws {
      let (make, diagnostics) = try prepare(
        "{ url: 'ftp://x', secret: 'short', timeoutSeconds: 0, retries: 99, tries: 3, caFile: 7 }")
      #expect(make == nil)
      let paths = Set(diagnostics.errors.map(\.path))
      #expect(
        paths
          == Set(
            ["url", "secret", "timeoutSeconds", "retries", "tries", "caFile"].map { "server.validators[0].\($0)" }))
    }

    @Test("a secret that stands in the file is warned of, one of the environment is not")
    func secrets() throws {
      let text = "{ url: 'https://x.example', secret: 'a shared secret, long' }"
      #expect(try prepare(text).diagnostics.map(\.severity) == [.warning])
      #expect(try prepare(text, environment: true).diagnostics.isEmpty)
    }
  }
#endif
