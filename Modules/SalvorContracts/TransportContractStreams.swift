import SalvorModel
import SalvorTransport

/// A body of a known pattern that counts what was pulled from it.
final class PatternSource: Sendable {
  private struct State {
    var pulled = 0
    var isClosed = false
    var closes = 0
  }
  let total: Int
  let pieceBytes: Int
  let closed = Signal<Void>()
  private let state = Mutex(State())

  init(total: Int, pieceBytes: Int = 60_000) {
    self.total = total
    self.pieceBytes = pieceBytes
  }

  var pulled: Int { state.withLock { $0.pulled } }
  var closes: Int { state.withLock { $0.closes } }

  var stream: ByteStream {
    ByteStream(
      next: { [self] in
        let start = state.withLock { state in
          let start = state.pulled
          state.pulled = min(total, start + pieceBytes)
          return start
        }
        return start == total ? nil : Self.bytes(from: start, count: min(pieceBytes, total - start))
      },
      close: { [self] in
        state.withLock { $0.closes += 1 }
        closed.send()
      })
  }

  private static let period: [UInt8] = (0..<(1 << 16)).map { UInt8(truncatingIfNeeded: $0 ^ ($0 >> 8) &* 31) }

  static func bytes(from start: Int, count: Int) -> [UInt8] {
    var out: [UInt8] = []
    out.reserveCapacity(count)
    while out.count < count {
      let offset = (start + out.count) & 0xffff
      out += period[offset..<min(period.count, offset + count - out.count)]
    }
    return out
  }

  /// Reads `stream` to its end and compares it; returns the largest lead that the source had over the reader.
  func check(_ stream: ByteStream) async throws -> Int {
    var position = 0
    var lead = 0
    while let piece = try await stream.next() {
      try expect(!piece.isEmpty, "a piece is empty")
      try expect(
        piece == Self.bytes(from: position, count: piece.count), "other bytes than were sent, from \(position)")
      position += piece.count
      lead = max(lead, pulled - position)
    }
    await stream.close()
    try expectEqual(position, total, "the bytes that came through")
    return lead
  }
}

extension TransportContract {
  private static let largeBytes = 48 << 20
  /// What the buffers of two sockets and a piece at each end can hold, and far less than the body.
  private static let heldBytesMax = 20 << 20

  /// Waits until `source` is pulled no more: a reader that does not read must bring that about.
  private static func settle(_ source: PatternSource) async {
    var last = -1
    var same = 0
    while same < 10, source.pulled < source.total {
      same = source.pulled == last ? same + 1 : 0
      last = source.pulled
      try? await Task.sleep(for: .milliseconds(10))
    }
  }

  static let streamingCases: [ContractCase<TransportSubject>] = [
    ContractCase("a large request streams", rule: streamRule) { subject in
      for length in [largeBytes, nil] {
        let source = PatternSource(total: largeBytes)
        let lead = Signal<Result<Int, any Error>>()
        try await serving(subject) { request in
          do {
            lead.send(.success(try await source.check(request.body)))
          } catch {
            lead.send(.failure(error))
          }
          return text
        } _: { client, _ in
          try expectEqual(try await exchange(client, post(source.stream, length: length)).status, 200, "the status")
          let held = try await lead.value.get()
          try expect(held <= heldBytesMax, "up to \(held) bytes of the request were held in between")
          await source.closed.value
        }
      }
    },
    ContractCase("a large response streams", rule: streamRule) { subject in
      for length in [largeBytes, nil] {
        let source = PatternSource(total: largeBytes)
        try await serving(subject) { _ in
          TransportResponse(status: 200, body: source.stream, contentLength: length)
        } _: { client, _ in
          let response = try await client.send(get())
          if length != nil { try expectEqual(response.contentLength, length, "the response's length") }
          let held = try await source.check(response.body)
          try expect(held <= heldBytesMax, "up to \(held) bytes of the response were held in between")
          await source.closed.value
          try expectEqual(source.closes, 1, "how often the response's source was closed")
        }
      }
    },
    ContractCase("a handler that does not read stops the request's source", rule: streamRule) { subject in
      let source = PatternSource(total: largeBytes)
      let goOn = Signal<Void>()
      let result = Signal<Result<Int, any Error>>()
      try await serving(subject) { request in
        do {
          var body = request.body
          let first = try await body.next() ?? []
          await goOn.value
          let rest = body.next
          let given = Mutex(false)
          body = ByteStream(
            next: {
              let isFirst = given.withLock { given in
                defer { given = true }
                return !given
              }
              return isFirst ? first : try await rest()
            }, close: body.close)
          result.send(.success(try await source.check(body)))
        } catch {
          result.send(.failure(error))
        }
        return text
      } _: { client, _ in
        async let answer = exchange(client, post(source.stream))
        while source.pulled == 0 { try await Task.sleep(for: .milliseconds(1)) }
        await settle(source)
        let pulled = source.pulled
        goOn.send()
        try expect(pulled <= heldBytesMax, "\(pulled) bytes were pulled though nobody read")
        _ = try await answer
        _ = try await result.value.get()
      }
    },
    ContractCase("a client that does not read stops the response's source", rule: streamRule) { subject in
      let source = PatternSource(total: largeBytes)
      try await serving(subject) { _ in
        TransportResponse(status: 200, body: source.stream)
      } _: { client, _ in
        let response = try await client.send(get())
        await settle(source)
        let pulled = source.pulled
        try expect(pulled <= heldBytesMax, "\(pulled) bytes were pulled though nobody read")
        _ = try await source.check(response.body)
      }
    },
    ContractCase("what is sent arrives before more is there, down", rule: streamRule) { subject in
      // An event stream: the head, and each event, must not wait for the next one.
      let wanted = [Signal<Void>(), Signal<Void>(), Signal<Void>()]
      let turn = Mutex(0)
      try await serving(subject) { _ in
        TransportResponse(
          status: 200, headers: ["content-type": "text/event-stream"],
          body: ByteStream(next: {
            let number = turn.withLock { turn in
              turn += 1
              return turn - 1
            }
            guard number < 3 else { return nil }
            await wanted[number].value
            return [UInt8(number)]
          }))
      } _: { client, _ in
        let response = try await client.send(get())
        for number in 0..<3 {
          wanted[number].send()
          try expectEqual(try await response.body.next(), [UInt8(number)], "event \(number)")
        }
        try expectEqual(try await response.body.next(), nil, "the end")
        await response.body.close()
      }
    },
    ContractCase("what is sent arrives before more is there, up", rule: streamRule) { subject in
      let arrived = [Signal<Void>(), Signal<Void>(), Signal<Void>()]
      let turn = Mutex(0)
      try await serving(subject) { request in
        for number in 0..<3 {
          guard let piece = try? await request.body.next(), piece == [UInt8(number)] else { break }
          arrived[number].send()
        }
        let isEnd = (try? await request.body.next()) == .some(nil)
        return TransportResponse(status: isEnd ? 200 : 500)
      } _: { client, _ in
        let body = ByteStream(next: {
          let number = turn.withLock { turn in
            turn += 1
            return turn - 1
          }
          if number > 0, number < 4 { await arrived[number - 1].value }
          return number < 3 ? [UInt8(number)] : nil
        })
        try expectEqual(try await exchange(client, post(body)).status, 200, "the status")
      }
    },
    ContractCase("the handler may answer before it has read", rule: "Exchange.swift, TransportHandler") { subject in
      // Known and unknown length, refused and accepted; each time the answer must come through and the source be closed.
      let readSome = Mutex(false)
      try await serving(subject) { request in
        if readSome.withLock({ $0 }) { _ = try? await request.body.next() }
        return TransportResponse(
          status: request.path == "/refused" ? 403 : 200, body: .bytes(Array("early".utf8)), contentLength: 5)
      } _: { client, _ in
        for some in [false, true] {
          readSome.withLock { $0 = some }
          for path in ["/refused", "/accepted"] {
            for length in [8 << 20, nil] {
              let source = PatternSource(total: 8 << 20)
              var request = post(source.stream, length: length)
              request.path = path
              let found = try await exchange(client, request)
              try expectEqual(found.status, path == "/refused" ? 403 : 200, "the early status")
              try expectEqual(found.body, Array("early".utf8), "the early body")
              await source.closed.value
            }
          }
        }
      }
    },
  ]
}
