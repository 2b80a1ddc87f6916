import SalvorModel
import SalvorTransport

/// The headers that say who sends: given once, or asked for by the application's closure, which may be wrong in every way.
final class Login: Sendable {
  private struct State {
    var headers: [String: String]?
    var refusals = 0
  }

  private let given: [String: String]
  private let provider: CredentialsProvider?
  private let timeoutMilliseconds: Int64
  private let clock: any Clock
  private let state = Mutex(State())

  /// An application that gives one wrong token after the other is not asked for ever.
  private static let refusalsMax = 3

  init(given: [String: String], provider: CredentialsProvider?, timeoutMilliseconds: Int64, clock: any Clock) {
    self.given = given
    self.provider = provider
    self.timeoutMilliseconds = timeoutMilliseconds
    self.clock = clock
  }

  /// A synchronization begins: its first request asks anew.
  func begin() {
    guard provider != nil else { return }
    state.withLock { $0 = State() }
  }

  func headers() async throws -> [String: String] {
    guard let provider else { return given }
    if let headers = state.withLock({ $0.headers }) { return headers }
    return try await ask(provider)
  }

  /// The server has refused `headers`: others, or nil where there are none to be had.
  func headers(after refused: [String: String], _ error: SalvorError) async throws -> [String: String]? {
    guard let provider else { return nil }
    // Another request of this synchronization has asked meanwhile.
    if let headers = state.withLock({ $0.headers }), headers != refused { return headers }
    let isAllowed = state.withLock { state in
      state.refusals += 1
      return state.refusals <= Self.refusalsMax
    }
    guard isAllowed else {
      throw unauthenticated(
        "The server refused \(Self.refusalsMax + 1) credentials in a row. What waits stays on this device: sign in again. "
          + error.message)
    }
    let headers = try await ask(provider)
    guard headers != refused else {
      throw unauthenticated(
        "The server refused the credentials, and the application gives the same ones again: let its closure get new ones. "
          + "What waits stays on this device. " + error.message)
    }
    return headers
  }

  private func ask(_ provider: @escaping CredentialsProvider) async throws -> [String: String] {
    let headers = try await answer(of: provider).headers
    try Self.check(headers)
    state.withLock { $0.headers = headers }
    return headers
  }

  /// A closure that hangs is given up after its time, and at once where the synchronization is cancelled. It is not waited
  /// for: what it gives later is dropped.
  private func answer(of provider: @escaping CredentialsProvider) async throws -> Credentials {
    let (answers, reply) = AsyncStream.makeStream(of: Result<Credentials, any Error>.self)
    let asking = Task {
      do {
        reply.yield(.success(try await OwnTask.extended { try await provider() }))
      } catch {
        reply.yield(.failure(error))
      }
    }
    let milliseconds = timeoutMilliseconds
    let timing = Task { [clock] in
      try await clock.sleep(milliseconds: milliseconds)
      reply.yield(
        .failure(
          SalvorError(
            .timeout,
            "The application's credentials closure has given nothing for \(milliseconds / 1000) s. Nothing was sent; sync again."
          )))
    }
    defer {
      asking.cancel()
      timing.cancel()
    }
    for await answer in answers {
      do {
        return try answer.get()
      } catch let error as SalvorError {
        throw error
      } catch is CancellationError where Task.isCancelled {
        throw CancellationError()
      } catch {
        throw unauthenticated(
          "The application's credentials closure failed (\(type(of: error))). Nothing was sent; what waits stays on this device."
        )
      }
    }
    throw CancellationError()
  }

  /// What would not travel in a header, or would make another one of it.
  private static func check(_ headers: [String: String]) throws {
    for (name, value) in headers {
      let isName = !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: ":") }
      guard isName, value.utf8.allSatisfy({ ($0 >= 0x20 && $0 != 0x7F) || $0 == 0x09 }) else {
        throw SalvorError(
          .usage,
          "The credentials hold a line break or another control character, which no header can carry. Nothing was sent."
        )
      }
    }
  }

  private func unauthenticated(_ message: String) -> SalvorError { SalvorError(.unauthenticated, message) }
}
