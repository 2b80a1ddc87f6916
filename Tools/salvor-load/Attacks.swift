import Foundation
import GzipCompression
import SalvorTransport
import SalvorModel

/// What somebody does who means harm, on threads of its own, from `begin` to `stop`.
final class Attack: Sendable {
  let kind: AttackKind
  private let port: UInt16
  private let figures: Figures
  private let isStopped = Mutex(false)
  private let bombs: [[UInt8]]

  /// At one time, of each kind.
  static let connectionsMax = 1500
  static let threads = 100

  init(_ kind: AttackKind, port: UInt16, figures: Figures) async throws {
    self.kind = kind
    self.port = port
    self.figures = figures
    bombs = kind == .bomb ? try await Self.makeBombs() : []
  }

  func begin() { isStopped.withLock { $0 = false } }
  func stop() { isStopped.withLock { $0 = true } }
  private var goesOn: Bool { !isStopped.withLock { $0 } }

  func run() async {
    switch kind {
    case .flood: await onThread(isBehind: true) { self.flood() }
    case .slow: await onThread(isBehind: true) { self.drip() }
    case .bomb, .stage:
      await withTaskGroup(of: Void.self) { group in
        for number in 0..<Self.threads {
          group.addTask { await onThread(isBehind: true) { self.ask(number) } }
        }
      }
    }
  }

  /// Opens connections as fast as they are taken, up to a number, and says a part of a head on each.
  private func flood() {
    var open: [RawConnection] = []
    while goesOn {
      if open.count >= Self.connectionsMax {
        open.removeAll { !$0.isOpen }
        if open.count >= Self.connectionsMax { usleep(50_000) }
        continue
      }
      if let connection = RawConnection(port, from: RawConnection.attackersAddress) {
        connection.send("GET /hea")
        open.append(connection)
        figures.add("attack flood", milliseconds: 0)
      } else {
        figures.fail("attack flood", "not taken")
        usleep(10_000)
      }
    }
  }

  /// A byte of a head, or of a body, now and then, on many connections.
  private func drip() {
    var open: [RawConnection] = []
    while goesOn {
      while open.count < 500, let connection = RawConnection(port, from: RawConnection.attackersAddress) {
        connection.send(
          open.count % 2 == 0
            ? "GET /healthz HTTP/1.1\r\nHost: a\r\nX: "
            : "POST /v1/sync HTTP/1.1\r\nHost: a\r\nsalvor-principal: slow\r\nContent-Length: 60000\r\n\r\n")
        open.append(connection)
        figures.add("attack slow", milliseconds: 0)
      }
      for connection in open { connection.send("x") }
      open.removeAll { !$0.isOpen }
      usleep(200_000)
    }
  }

  private func ask(_ number: Int) {
    var draws = Draws(UInt64(number) &+ 17)
    while goesOn {
      guard let connection = RawConnection(port, from: RawConnection.attackersAddress) else {
        figures.fail("attack \(kind.rawValue)", "not taken")
        usleep(50_000)
        continue
      }
      let start = ContinuousClock.now
      let request = kind == .bomb ? bombs[Int.random(in: 0..<bombs.count, using: &draws)] : staging(&draws)
      connection.send(request)
      let answer = connection.receive().flatMap { try? RawAnswer($0) }
      if let answer {
        figures.add("attack \(kind.rawValue) \(answer.status)", milliseconds: milliseconds(since: start))
      } else {
        figures.fail("attack \(kind.rawValue)", "no answer")
      }
      if kind == .stage, let answer, answer.status == 200 { fill(answer) }
    }
  }

  static func request(_ method: String, _ path: String, _ headers: String, _ body: [UInt8]) -> [UInt8] {
    Array(
      "\(method) \(path) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nsalvor-principal: attacker\r\n\(headers)Content-Length: \(body.count)\r\n\r\n"
        .utf8) + body
  }

  static func hexadecimal(_ draws: inout Draws) -> String {
    (0..<2).map { _ in
      let text = String(draws.next(), radix: 16)
      return String(repeating: "0", count: 16 - text.count) + text
    }.joined()
  }

  static func begin(_ draws: inout Draws, upload: String) -> String {
    #"{"begin":{"version":1,"remote":"\#(hexadecimal(&draws))","schema":{"version":1,"digest":"\#(hexadecimal(&draws))"},"groups":[{"name":"default"}],"upload":"\#(upload)","current":"\#(hexadecimal(&draws))","history":{"sequences":[],"incarnations":[],"commits":[],"tables":[]}}}"#
  }

  /// An upload that is begun and left.
  private func staging(_ draws: inout Draws) -> [UInt8] {
    Self.request("POST", "/v1/sync", "", Array((Self.begin(&draws, upload: "staged") + "\n").utf8))
  }

  private func fill(_ answer: RawAnswer) {
    let json = try? JSONSerialization.jsonObject(with: Data(answer.body)) as? [String: Any]
    guard let token = (json?["session"] as? [String: Any])?["token"] as? String else { return }
    let chunk = [UInt8](repeating: 0x20, count: 200_000)
    for index in 0..<5 {
      let path = "/v1/sync/\(token)/chunks/\(index)?first=\(1 + index * 10)&last=\(10 + index * 10)"
      guard let connection = RawConnection(port, from: RawConnection.attackersAddress) else { return }
      connection.send(Self.request("PUT", path, "", chunk))
      let status = connection.receive().flatMap { try? RawAnswer($0) }?.status ?? 0
      figures.add("attack stage chunk \(status)", milliseconds: 0)
      if status != 204 { return }
    }
  }

  /// Bodies near what is allowed, and beyond it.
  private static func makeBombs() async throws -> [[UInt8]] {
    func packed(_ bytes: [UInt8]) async throws -> [UInt8] {
      try await ByteStream.bytes(bytes).compressed(by: GzipCompression()).collect(upTo: .max)
    }
    let gzip = "content-encoding: gzip\r\n"
    let nulls = Array(#"{"begin":["#.utf8) + Array(String(repeating: "0,", count: 30 << 20).utf8) + Array("0]}\n".utf8)
    let names = Array("{".utf8) + (0..<200_000).flatMap { Array("\"n\($0)\":0,".utf8) } + Array("\"z\":0}\n".utf8)
    var draws = Draws(5)
    // Of a row of their own: what an attacker may write for everybody, everybody would have to fetch.
    let line =
      Array((begin(&draws, upload: "inline") + "\n{\"stamp\":\"\(hexadecimal(&draws))\"}\n").utf8)
      + Array(#"{"shape":0,"table":"memo","operation":"insert","columns":["id","owner","note"]}"#.utf8)
      + Array("\n{\"first\":1,\"made\":0,\"changes\":[[0,\"v\",\"attacker\",\"".utf8)
    let large = line + [UInt8](repeating: 0x78, count: 7 << 20) + Array("\"]]}\n".utf8)
    let many =
      line.dropLast(19) + Array(String(repeating: "[0,\"v\",\"attacker\",\"n\"],", count: 250_000).utf8)
      + Array("[0]]}\n".utf8)
    let packedNulls = try await packed(nulls)
    let blob = "/v1/blobs/" + String(repeating: "a", count: 64) + "?size=10"
    return [
      request("POST", "/v1/sync", gzip, packedNulls), request("POST", blob, gzip, packedNulls),
      request("POST", "/v1/blobs/missing", gzip, packedNulls), request("POST", "/v1/recovery", gzip, packedNulls),
      request("POST", "/v1/sync", gzip, try await packed(names)),
      request("POST", "/v1/sync", gzip, try await packed(large)),
      request("POST", "/v1/sync", "", large), request("POST", "/v1/sync", gzip, try await packed(Array(many))),
    ]
  }
}
