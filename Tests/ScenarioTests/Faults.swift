import SalvorModel
import SalvorModuleKit
import SalvorTransport

/// What a test does to the exchanges of its devices. Each fault is used once.
final class Faults: Sendable {
  enum Fault: Sendable {
    /// The request never reaches the server.
    case loseRequest
    /// The server does its work; its answer never reaches the device.
    case loseAnswer
    /// The answer is cut after this many body bytes.
    case cutAnswer(after: Int)
    /// The answer ends after this many body bytes, as if there were no more.
    case endAnswer(after: Int)
    /// Something on the way answers with this status and nothing else but these headers.
    case answer(status: Int, headers: [String: String] = [:])
    /// The server's answer is this problem.
    case problem(status: Int, json: String)
    /// The network is sound; something else happens just before the request reaches the server.
    case meanwhile(@Sendable () throws -> Void)
    /// Likewise, once the device has had this many bytes of the answer.
    case meanwhileAnswer(after: Int, @Sendable () throws -> Void)
  }

  private let next = Mutex<[Fault]>([])
  private let count = Mutex(0)

  func inject(_ faults: Fault...) { next.withLock { $0 += faults } }

  /// Passes this many exchanges before the first fault.
  func pass(_ exchanges: Int) { count.withLock { $0 = exchanges } }

  /// Faults that were not used yet.
  var left: Int { next.withLock { $0.count } }

  /// The network is sound again.
  func clear() {
    next.withLock { $0 = [] }
    count.withLock { $0 = 0 }
  }

  fileprivate func take() -> Fault? {
    let isDue = count.withLock { count in
      if count == 0 { return true }
      count -= 1
      return false
    }
    guard isDue else { return nil }
    return next.withLock { $0.isEmpty ? nil : $0.removeFirst() }
  }

  /// A client transport module `faulty` over the loopback transport.
  func transportFactory(wrapping modules: [ModuleFactory]) -> ModuleFactory {
    let loopback = modules.first {
      $0.descriptor.kind == .clientTransport && $0.descriptor.name == "loopback"
    }
    return ModuleFactory(
      ModuleDescriptor(kind: .clientTransport, name: "faulty", summary: "loopback with faults"),
      product: (any ClientTransport).self
    ) { reader, context in
      guard let make = loopback?.prepare(&reader, context, as: (any ClientTransport).self) else { return nil }
      return { FaultyTransport(base: try make(), faults: self) }
    }
  }
}

private struct FaultyTransport: ClientTransport {
  let base: any ClientTransport
  let faults: Faults

  /// What HTTP servers and proxies take; the loopback transport takes anything.
  private static let addressBytesMax = 4096

  func send(_ request: TransportRequest) async throws -> TransportResponse {
    guard request.path.utf8.count <= Self.addressBytesMax else { return TransportResponse(status: 414) }
    let lost = SalvorError(.unreachable, "The test cut the network.")
    switch faults.take() {
    case nil: return try await base.send(request)
    case .loseRequest: throw lost
    case .answer(let status, let headers): return TransportResponse(status: status, headers: headers)
    case .problem(let status, let json): return TransportResponse(status: status, body: .bytes(Array(json.utf8)))
    case .meanwhile(let body):
      try body()
      return try await base.send(request)
    case .loseAnswer:
      let response = try await base.send(request)
      _ = try await response.body.collect(upTo: Int.max)
      throw lost
    case .meanwhileAnswer(let count, let happen):
      var response = try await base.send(request)
      let body = response.body
      let (before, rest) = (Remaining(count), Rest())
      response.body = ByteStream(
        next: {
          if let piece = try await rest.take() { return piece }
          guard let piece = try await body.next() else { return nil }
          let first = await before.take(piece.count)
          guard first < piece.count, await rest.begins() else { return piece }
          if first == 0 {
            try happen()
            return piece
          }
          await rest.keep(Array(piece.dropFirst(first)), happen)
          return Array(piece.prefix(first))
        }, close: body.close)
      return response
    case .endAnswer(let limit):
      var response = try await base.send(request)
      let body = response.body
      let rest = Remaining(limit)
      response.body = ByteStream(
        next: {
          guard let piece = try await body.next() else { return nil }
          let allowed = await rest.take(piece.count)
          return allowed == 0 ? nil : Array(piece.prefix(allowed))
        }, close: body.close)
      return response
    case .cutAnswer(let limit):
      var response = try await base.send(request)
      let body = response.body
      let rest = Remaining(limit)
      response.body = ByteStream(
        next: {
          guard let piece = try await body.next() else { return nil }
          let allowed = await rest.take(piece.count)
          if allowed == 0 { throw lost }
          return Array(piece.prefix(allowed))
        }, close: body.close)
      return response
    }
  }

  func close() async { await base.close() }
}

private actor Remaining {
  private var count: Int
  init(_ count: Int) { self.count = count }
  func take(_ wanted: Int) -> Int {
    let allowed = min(count, wanted)
    count -= allowed
    return allowed
  }
}

/// What comes after a place of an answer.
private actor Rest {
  private var isBegun = false
  private var piece: [UInt8]?
  private var happen: (@Sendable () throws -> Void)?

  /// True once.
  func begins() -> Bool {
    defer { isBegun = true }
    return !isBegun
  }

  func keep(_ piece: [UInt8], _ happen: @escaping @Sendable () throws -> Void) {
    self.piece = piece
    self.happen = happen
  }

  func take() throws -> [UInt8]? {
    guard let piece else { return nil }
    self.piece = nil
    try happen?()
    return piece
  }
}

/// The server's log lines.
final class LogLines: Sendable {
  private let lines = Mutex<[String]>([])
  func append(_ line: String) { lines.withLock { $0.append(line) } }
  var all: [String] { lines.withLock { $0 } }
}
