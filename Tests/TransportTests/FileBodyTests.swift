#if HTTPServer && HTTPClient
  import Foundation
  import HTTPClientTransport
  import HTTPServerTransport
  import SalvorModel
  import SalvorModuleKit
  import SalvorTransport
  import Testing

  /// Bodies that the system sends from a file.
  @Suite("A part of an open file as a response's body") struct FileBodyTests {
    private let path = FileManager.default.temporaryDirectory.appendingPathComponent("salvor-file-\(UUID()).bin").path

    private func content(_ count: Int) -> [UInt8] {
      (0..<count).map { UInt8(truncatingIfNeeded: $0 &* 31 &+ $0 >> 8) }
    }

    private func serving(
      _ handler: @escaping TransportHandler, _ body: (HTTPClientTransport) async throws -> Void
    ) async throws {
      var options = HTTPServerOptions()
      options.port = 0
      let server = HTTPServerTransport(options)
      let url = try await server.start(handler: handler)
      let client = try HTTPClientTransport(HTTPClientOptions(url: try HTTPServerURL(url + "/")))
      do {
        try await body(client)
      } catch {
        await client.close()
        await server.stop(graceMilliseconds: 0)
        throw error
      }
      await client.close()
      await server.stop(graceMilliseconds: 0)
    }

    @Test("it is sent from its offset, for its length, whole also after its name is gone, to many at once")
    func outlivesItsName() async throws {
      let bytes = content(3 << 20)
      try Data(bytes).write(to: URL(fileURLWithPath: path))
      let handle = try FileHandle(forReadingFrom: URL(fileURLWithPath: path))
      let taken = Mutex(0)
      let handler: TransportHandler = { request in
        let offset = Int64(request.path.dropFirst(3)) ?? 0
        let count = (3 << 20) - offset
        var response = TransportResponse(
          status: 200, body: ByteStream(next: { throw SalvorError(.failed, "The file was to be sent.") }),
          contentLength: Int(count))
        response.file = FileBody(
          descriptor: handle.fileDescriptor, offset: offset, count: count, keeping: [handle.fileDescriptor]
        ) {
          taken.withLock { $0 += 1 }
        }
        return response
      }
      try await serving(handler) { client in
        let first = try await client.send(TransportRequest(method: "GET", path: "/at0"))
        let head = try #require(try await first.body.next())
        try FileManager.default.removeItem(atPath: path)
        var whole = head
        while let piece = try await first.body.next() { whole += piece }
        #expect(whole == bytes)
        try await withThrowingTaskGroup(of: Bool.self) { group in
          for number in 0..<20 {
            let offset = number * 150_001
            group.addTask {
              let response = try await client.send(TransportRequest(method: "GET", path: "/at\(offset)"))
              return try await response.body.collect(upTo: 4 << 20) == Array(bytes[offset...])
            }
          }
          for try await isSame in group { #expect(isSame) }
        }
        let answer = try await client.send(TransportRequest(method: "HEAD", path: "/at0"))
        #expect(answer.contentLength == 3 << 20)
        #expect(try await answer.body.collect(upTo: 1) == [])
        #expect(taken.withLock { $0 } == 21)
      }
      try handle.close()
    }

    @Test("a file that has become shorter ends the connection: the body is not taken for whole")
    func cutShort() async throws {
      try Data(content(2 << 20)).write(to: URL(fileURLWithPath: path))
      let handle = try FileHandle(forReadingFrom: URL(fileURLWithPath: path))
      let handler: TransportHandler = { _ in
        var response = TransportResponse(status: 200, contentLength: 3 << 20)
        response.file = FileBody(
          descriptor: handle.fileDescriptor, offset: 0, count: 3 << 20, keeping: [handle.fileDescriptor])
        return response
      }
      try await serving(handler) { client in
        let response = try await client.send(TransportRequest(method: "GET", path: "/"))
        await #expect(throws: SalvorError.self) { _ = try await response.body.collect(upTo: 4 << 20) }
      }
      try handle.close()
      try FileManager.default.removeItem(atPath: path)
    }
  }
#endif
