import SalvorModel
import SalvorTransport

extension TransportContract {
  private struct SourceFailure: Error {}

  /// `pieces` pieces of 1000 bytes, then an error, once `signal` was sent.
  private static func breaking(
    after pieces: Int, _ error: any Error = SourceFailure(), once signal: Signal<Void>? = nil
  ) -> ByteStream {
    let turn = Mutex(0)
    return ByteStream(next: {
      let number = turn.withLock { turn in
        turn += 1
        return turn
      }
      if number > pieces {
        await signal?.value
        throw error
      }
      return [UInt8](repeating: 1, count: 1000)
    })
  }

  /// Suspends until the task is cancelled.
  private static func untilCancelled() async {
    let ended = Signal<Void>()
    await withTaskCancellationHandler {
      await ended.value
    } onCancel: {
      ended.send()
    }
  }

  static let endingCases: [ContractCase<TransportSubject>] = [
    ContractCase("a response that breaks is an error at the client, never an end", rule: streamRule) { subject in
      try await serving(subject) { request in
        switch request.path {
        case "/unknown": TransportResponse(status: 200, body: breaking(after: 3))
        case "/known": TransportResponse(status: 200, body: breaking(after: 3), contentLength: 100_000)
        case "/short": TransportResponse(status: 200, body: .bytes([1, 2, 3]), contentLength: 100_000)
        case "/shorter": TransportResponse(status: 200, body: .bytes([1, 2, 3]), contentLength: 10)
        default: TransportResponse(status: 200, body: breaking(after: 0), contentLength: 10)
        }
      } _: { client, _ in
        for path in ["/unknown", "/known", "/short", "/shorter", "/first"] {
          try await expectError(nil, "a body that breaks, \(path)") { try await exchange(client, get(path)) }
        }
      }
    },
    ContractCase("a request that breaks is an error at both ends, never an end", rule: streamRule) { subject in
      for length in [100_000, nil] {
        let seen = Signal<Bool>()
        let arrived = Signal<Void>()
        try await serving(subject) { request in
          arrived.send()
          do {
            _ = try await request.body.collect(upTo: 1 << 20)
            seen.send(false)
          } catch {
            seen.send(true)
          }
          return text
        } _: { client, _ in
          try await expectError(.storageCorrupt, "the sender of a body that breaks") {
            let body = breaking(after: 3, SalvorError(.storageCorrupt, "broken"), once: arrived)
            try await exchange(client, post(body, length: length))
          }
          let handlerSawError = try await awaited(seen, "the handler's end of a body that broke")
          try expect(handlerSawError, "the handler took a broken body for a whole one")
        }
      }
    },
    ContractCase("cancelling a wait for the head ends the exchange on both sides", rule: clientRule) { subject in
      let (arrived, ended) = (Signal<Void>(), Signal<Void>())
      try await serving(subject) { request in
        if request.path == "/next" { return text }
        arrived.send()
        await untilCancelled()
        ended.send()
        return text
      } _: { client, _ in
        let task = Task { try await exchange(client, get()) }
        await arrived.value
        task.cancel()
        try await expectError(.cancelled, "a cancelled send") { _ = try await task.value }
        await ended.value
        try expectEqual(try await exchange(client, get("/next")).status, 200, "the next exchange")
      }
    },
    ContractCase("cancelling a read of the response ends the exchange on both sides", rule: clientRule) { subject in
      let (arrived, ended) = (Signal<Void>(), Signal<Void>())
      let turn = Mutex(0)
      try await serving(subject) { _ in
        TransportResponse(
          status: 200,
          body: ByteStream(
            next: {
              let isFirst = turn.withLock { turn in
                turn += 1
                return turn == 1
              }
              if isFirst { return [1] }
              await untilCancelled()
              throw SourceFailure()
            }, close: { ended.send() }))
      } _: { client, _ in
        let task = Task {
          let response = try await client.send(get())
          while try await response.body.next() != nil { arrived.send() }
        }
        await arrived.value
        task.cancel()
        try await expectError(.cancelled, "a cancelled read") { try await task.value }
        await ended.value
      }
    },
    ContractCase("cancelling an upload closes its source", rule: clientRule) { subject in
      let arrived = Signal<Void>()
      let seen = Signal<Bool>()
      try await serving(subject) { request in
        _ = try? await request.body.next()
        arrived.send()
        do {
          while try await request.body.next() != nil {}
          seen.send(false)
        } catch {
          seen.send(true)
        }
        return text
      } _: { client, _ in
        let closed = Signal<Void>()
        let turn = Mutex(0)
        let body = ByteStream(
          next: {
            let isFirst = turn.withLock { turn in
              turn += 1
              return turn == 1
            }
            if isFirst { return [1] }
            await untilCancelled()
            throw CancellationError()
          }, close: { closed.send() })
        let task = Task { try await exchange(client, post(body)) }
        await arrived.value
        task.cancel()
        try await expectError(.cancelled, "a cancelled upload") { _ = try await task.value }
        await closed.value
        let handlerSawError = await seen.value
        try expect(handlerSawError, "the handler took a cancelled body for a whole one")
      }
    },
    ContractCase("a task that is cancelled already sends nothing", rule: clientRule) { subject in
      let calls = Mutex(0)
      try await serving(subject) { _ in
        calls.withLock { $0 += 1 }
        return text
      } _: { client, _ in
        let go = Signal<Void>()
        let task = Task {
          await go.value
          return try await exchange(client, get())
        }
        task.cancel()
        go.send()
        try await expectError(.cancelled, "a send in a cancelled task") { _ = try await task.value }
        try await exchange(client, get())
        try expectEqual(calls.withLock { $0 }, 1, "the requests that reached the handler")
      }
    },
    ContractCase("a response that is closed early ends its source", rule: streamRule) { subject in
      let source = PatternSource(total: 1 << 30)
      try await serving(subject) { _ in
        TransportResponse(status: 200, body: source.stream)
      } _: { client, _ in
        let response = try await client.send(get())
        _ = try await response.body.next()
        await response.body.close()
        await source.closed.value
        try expect(source.pulled < source.total, "the source was read to its end for nobody")
      }
    },
    ContractCase("a request over the limit is refused before it is read", rule: "Limits.swift, bodyBytesMax") {
      subject in
      var limits = Limits()
      limits.bodyBytesMax = 1 << 20
      let calls = Mutex(0)
      let bytesMax = limits.bodyBytesMax
      try await serving(subject, limits: limits) { _ in
        calls.withLock { $0 += 1 }
        return text
      } _: { client, _ in
        let found = try await exchange(client, post(PatternSource(total: 8 << 20).stream, length: 8 << 20))
        try expectEqual(found.status, 413, "the status")
        try expectEqual(calls.withLock { $0 }, 0, "calls of the handler")
        let fits = try await exchange(client, post(PatternSource(total: bytesMax).stream, length: bytesMax))
        try expectEqual(fits.status, 200, "the status of a body at the limit")
      }
    },
    ContractCase("a request that outgrows the limit is an error at the handler", rule: "Limits.swift, bodyBytesMax") {
      subject in
      var limits = Limits()
      limits.bodyBytesMax = 1 << 20
      let seen = Signal<(Int, ErrorCode?)>()
      let bytesMax = limits.bodyBytesMax
      try await serving(subject, limits: limits) { request in
        var count = 0
        do {
          while let piece = try await request.body.next() { count += piece.count }
          seen.send((count, nil))
        } catch {
          seen.send((count, (error as? SalvorError)?.code))
        }
        await request.body.close()
        return TransportResponse(status: 413)
      } _: { client, _ in
        // The answer or a broken connection: both tell the client.
        let status = try? await exchange(client, post(PatternSource(total: 8 << 20).stream)).status
        try expect(status == nil || status == 413, "the status is \(status ?? 0)")
        let (count, code) = await seen.value
        try expectEqual(code, .tooLarge, "the handler's error")
        try expect(count <= bytesMax, "the handler was given \(count) bytes")
      }
    },
    ContractCase("an answer that outgrows the limit is an error at the client", rule: "Limits.swift, downloadBytesMax")
    {
      subject in
      var limits = Limits()
      limits.downloadBytesMax = 1 << 20
      let narrow = limits
      for length in [8 << 20, nil] {
        let server = TransportSubject(
          makeServer: { _ in try subject.makeServer(Limits()) },
          makeClient: { url, _ in try subject.makeClient(url, narrow) })
        try await serving(server) { _ in
          TransportResponse(status: 200, body: PatternSource(total: 8 << 20).stream, contentLength: length)
        } _: { client, _ in
          try await expectError(.tooLarge, "an answer of 8 MiB") { try await exchange(client, get()) }
        }
      }
    },
  ]

  // MARK: Life

  static let lifecycleCases: [ContractCase<TransportSubject>] = [
    ContractCase("a server that does not run is unreachable", rule: clientRule) { subject in
      let server = try subject.makeServer(Limits())
      let url = try await server.start { _ in text }
      let client = try subject.makeClient(url, Limits())
      try expectEqual(try await exchange(client, get()).status, 200, "the status while it runs")
      await server.stop(graceMilliseconds: 1000)
      let closed = Signal<Void>()
      let error = try await expectError(.unreachable, "a request to a stopped server") {
        _ = try await patiently("a request to a stopped server") {
          try await exchange(client, post(ByteStream(next: { [1] }, close: { closed.send() })))
        }
      }
      try expect(error.isRetryable, "a server that does not run may run later")
      try await patiently("closing the body of a request that was not sent") { await closed.value }
      await client.close()
    },
    ContractCase("a stop lets requests in flight finish", rule: serverRule) { subject in
      let (arrived, goOn) = (Signal<Void>(), Signal<Void>())
      try await serving(subject) { request in
        if request.path == "/new" { return text }
        arrived.send()
        await goOn.value
        let source = PatternSource(total: 300_000)
        return TransportResponse(status: 200, body: source.stream)
      } _: { client, server in
        async let answer = exchange(client, get())
        await arrived.value
        let stopped = Signal<Void>()
        let stop = Task {
          await server.stop(graceMilliseconds: 100_000)
          stopped.send()
        }
        // When the stop begins is not known: from then on a new request is refused.
        while (try? await exchange(client, get("/new")))?.status == 200 {}
        try expect(!stopped.isSent, "the stop did not wait for the request in flight")
        goOn.send()
        let found = try await answer
        try expectEqual(found.status, 200, "the status of the request in flight")
        try expectEqual(found.body.count, 300_000, "the body of the request in flight")
        await stop.value
      }
    },
    ContractCase("a stop ends what outlasts its grace", rule: serverRule) { subject in
      let (arrived, reading) = (Signal<Void>(), Signal<Void>())
      try await serving(subject) { request in
        if request.path == "/body" {
          _ = try? await request.body.next()
          reading.send()
          while (try? await request.body.next()) ?? nil != nil {}
        } else {
          arrived.send()
          await untilCancelled()
        }
        return text
      } _: { client, server in
        let waiting = Task { try await exchange(client, get()) }
        let sending = Task {
          // A slow source: a client need not notice that the server hung up before it has something to send.
          var request = post(
            ByteStream(next: {
              try await Task.sleep(for: .milliseconds(5))
              return [1]
            }))
          request.path = "/body"
          return try await exchange(client, request)
        }
        await arrived.value
        await reading.value
        await server.stop(graceMilliseconds: 20)
        try await expectError(nil, "a request that outlasted the grace") { _ = try await waiting.value }
        try await expectError(nil, "an upload that outlasted the grace") { _ = try await sending.value }
      }
    },
    ContractCase("a stop ends an event stream", rule: serverRule) { subject in
      let turn = Mutex(0)
      try await serving(subject) { _ in
        TransportResponse(
          status: 200,
          body: ByteStream(next: {
            let isFirst = turn.withLock { turn in
              turn += 1
              return turn == 1
            }
            if !isFirst { await untilCancelled() }
            return isFirst ? [1] : nil
          }))
      } _: { client, server in
        let response = try await client.send(get())
        _ = try await response.body.next()
        await server.stop(graceMilliseconds: 20)
        try await expectError(nil, "a stream that outlasted the grace") {
          while try await response.body.next() != nil {}
        }
      }
    },
    ContractCase("stop is safe before start, twice, and after a failed start", rule: serverRule) { subject in
      try await patiently("stopping") {
        let server = try subject.makeServer(Limits())
        await server.stop(graceMilliseconds: 0)
        let url = try await server.start { _ in text }
        try await expectError(nil, "starting what runs") { _ = try await server.start { _ in text } }
        let client = try subject.makeClient(url, Limits())
        try expectEqual(try await exchange(client, get()).status, 200, "the status after a second start failed")
        await client.close()
        await server.stop(graceMilliseconds: 0)
        await server.stop(graceMilliseconds: 0)
      }
    },
    ContractCase("stops at the same time all wait for the end", rule: serverRule) { subject in
      let (arrived, goOn) = (Signal<Void>(), Signal<Void>())
      try await serving(subject) { _ in
        arrived.send()
        await goOn.value
        return text
      } _: { client, server in
        async let answer = exchange(client, get())
        await arrived.value
        let ended = (0..<3).map { _ in Signal<Void>() }
        for end in ended {
          Task {
            await server.stop(graceMilliseconds: 100_000)
            end.send()
          }
        }
        try await Task.sleep(for: .milliseconds(30))
        try expect(!ended.contains { $0.isSent }, "a stop returned while a request was in flight")
        goOn.send()
        try expectEqual(try await answer.status, 200, "the status of the request in flight")
        for end in ended { await end.value }
      }
    },
    ContractCase("closing the client ends what is in flight", rule: "Exchange.swift, ClientTransport.close") {
      subject in
      let arrived = Signal<Void>()
      try await serving(subject) { _ in
        arrived.send()
        await untilCancelled()
        return text
      } _: { client, _ in
        let task = Task { try await exchange(client, get()) }
        await arrived.value
        await client.close()
        await client.close()
        try await expectError(.cancelled, "a request in flight when its client was closed") { _ = try await task.value }
        try await expectError(nil, "a request of a closed client") { _ = try await exchange(client, get()) }
      }
    },
  ]
}
