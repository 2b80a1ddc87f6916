import Foundation

/// HAProxy before several servers, which sends each request to the next one.
struct HAProxy {
  static let isThere = Built.has("haproxy")

  let url: String
  private let child: ChildProcess

  init(_ servers: [String], in directory: URL) async throws {
    let port = try Socket.vacantPort()
    let lines = try servers.enumerated().map { place, url in
      "  server s\(place) 127.0.0.1:\(try RawHTTP(url).port) check inter 200"
    }
    try """
    defaults
      mode http
      retries 3
      option redispatch
      retry-on conn-failure
      timeout connect 5s
      timeout client 60s
      timeout server 60s
    frontend devices
      bind 127.0.0.1:\(port)
      default_backend salvor
    backend salvor
      balance roundrobin
      option httpchk GET /readyz
    \(lines.joined(separator: "\n"))

    """.write(to: directory.appendingPathComponent("haproxy.cfg"), atomically: true, encoding: .utf8)
    child = try ChildProcess("haproxy", ["-db", "-f", "haproxy.cfg"], directory: directory)
    url = "http://127.0.0.1:\(port)"
    // It answers 503 until it has seen one of them ready.
    let front = try RawHTTP(url)
    while (try? await front.request("GET", "/healthz").status) != 200 { try await Task.sleep(for: .milliseconds(50)) }
  }

  func end() { child.signal(SIGKILL) }
}
