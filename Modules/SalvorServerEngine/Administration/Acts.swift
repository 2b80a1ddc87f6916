import SalvorModel
import SalvorTransport
import SalvorWire

/// Who administrates, and from where.
struct Administrator: Sendable {
  var name: String
  var role: AdministrationRole
  var from: String

  /// Throws `forbidden` where the role does not reach.
  func require(_ needed: AdministrationRole) throws {
    guard role >= needed else {
      throw SalvorError(
        .forbidden,
        "The role \(role.rawValue) may not do this; it needs \(needed.rawValue). salvor token NAME --role \(needed.rawValue) makes a token that may.",
        context: ["role": role.rawValue])
    }
  }
}

/// Answers of acts by their `Idempotency-Key`: the same act sent again is answered again and not done twice. In memory; every
/// act itself may be done twice without harm.
final class IdempotentActs: Sendable {
  private struct Answer {
    var act: String
    var status: Int
    var headers: [String: String]
    var body: [UInt8]
    var time: Int64
  }

  private enum Entry {
    case underWay(String)
    case answered(Answer)
  }

  private static let keyBytesMax = 200
  private static let keysMax = 10_000
  /// A larger answer is given once.
  private static let answerBytesMax = 1 << 20
  private static let tooLargeToRepeat = JSONValue.object([
    .init("note", "The act was done. Its answer had more than 1 MiB, and is not repeated.")
  ]).bytes
  private static let lifeMilliseconds: Int64 = 86_400_000
  private let entries = Mutex<[String: Entry]>([:])
  private let clock: any Clock

  init(clock: any Clock) { self.clock = clock }

  func run(
    _ request: TransportRequest, _ message: JSONValue, _ who: Administrator, _ act: () async throws -> TransportResponse
  ) async throws -> TransportResponse {
    guard let key = request.headers["idempotency-key"] else { return try await act() }
    guard !key.isEmpty, key.utf8.count <= Self.keyBytesMax else {
      throw SalvorError(.malformed, "An Idempotency-Key has 1 to \(Self.keyBytesMax) bytes.")
    }
    let name = "\(who.name)\n\(key)"
    let asked = "\(request.method) \(request.path) \(message.bytes.hashValue)"
    if let known = try begin(name, asked) {
      return TransportResponse(
        status: known.status, headers: known.headers.merging(["idempotency-replayed": "true"]) { $1 },
        body: .bytes(known.body), contentLength: known.body.count)
    }
    do {
      let response = try await act()
      let body = try await response.body.collect(upTo: .max)
      let kept = body.count > Self.answerBytesMax ? Self.tooLargeToRepeat : body
      entries.withLock {
        $0[name] = .answered(
          Answer(act: asked, status: response.status, headers: response.headers, body: kept, time: clock.now()))
      }
      return TransportResponse(
        status: response.status, headers: response.headers, body: .bytes(body), contentLength: body.count)
    } catch {
      entries.withLock { $0[name] = nil }
      throw error
    }
  }

  private func begin(_ name: String, _ asked: String) throws -> Answer? {
    let now = clock.now()
    return try entries.withLock { entries -> Answer? in
      let other = SalvorError(.malformed, "This Idempotency-Key was used for another act. Draw a new one for each act.")
      switch entries[name] {
      case .answered(let answer) where now - answer.time < Self.lifeMilliseconds:
        guard answer.act == asked else { throw other }
        return answer
      case .underWay(let before):
        guard before == asked else { throw other }
        throw SalvorError(.overloaded, "This act is under way. Ask again in a moment.", retryAfterMilliseconds: 1000)
      default: break
      }
      if entries.count >= Self.keysMax {
        entries = entries.filter { entry in
          if case .answered(let answer) = entry.value { now - answer.time < Self.lifeMilliseconds / 24 } else { true }
        }
      }
      guard entries.count < Self.keysMax else {
        throw SalvorError(.overloaded, "Too many acts with an Idempotency-Key in an hour. Ask again later.")
      }
      entries[name] = .underWay(asked)
      return nil
    }
  }
}
