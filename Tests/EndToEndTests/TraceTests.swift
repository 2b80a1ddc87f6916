import Foundation
import Testing

/// Spans of the server in a collector of OpenTelemetry's (OTLP over HTTP in JSON).
@Suite struct TraceTests {
  /// Appends each body to a file, a line each, and answers 200; says its port first.
  private static let collector = """
    import http.server, sys
    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers['content-length']))
            if self.path == '/v1/traces' and self.headers['content-type'] == 'application/json':
                with open(sys.argv[1], 'ab') as file: file.write(body + b'\\n')
            self.send_response(200); self.end_headers(); self.wfile.write(b'{}')
        def log_message(self, *words): pass
    server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Collector)
    print('listening', server.server_port, flush=True)
    server.serve_forever()
    """

  private static func spans(_ file: URL) throws -> [JSON] {
    guard let text = try? String(contentsOf: file, encoding: .utf8), text.hasSuffix("\n") else { return [] }
    return try text.split(separator: "\n").flatMap { line in
      try JSON(parsing: String(line))["resourceSpans"].items.flatMap { resource in
        #expect(resource["resource"]["attributes"].items.contains { $0["value"]["stringValue"] == "salvor" })
        return resource["scopeSpans"].items.flatMap(\.["spans"].items)
      }
    }
  }

  private static func attribute(_ span: JSON, _ name: String) -> JSON {
    let value = span["attributes"].items.first { $0["key"].string == name }?["value"] ?? .null
    return value["stringValue"] == nil ? value["intValue"] : value["stringValue"]
  }

  @Test(
    "A sync's requests and its upload are spans of the device's trace; a collector that is away costs spans and no sync",
    .enabled(if: Built.has("python3")))
  func spans() async throws {
    let place = try Workspace(serverOptions: "PLACE")
    let file = place.directory.appendingPathComponent("spans.jsonl")
    let collector = try ChildProcess(
      "python3", ["-c", Self.collector, file.path], directory: place.directory, environment: [:])
    let port = try await collector.line(after: "listening ")
    let configuration = place.directory.appendingPathComponent("salvor.json5")
    let text = try String(contentsOf: configuration, encoding: .utf8)
    try place.write(
      text.replacingOccurrences(
        of: "PLACE", with: "traces: { module: \"http\", url: \"http://127.0.0.1:\(port)\" },"), to: "salvor.json5")
    let server = try RawHTTP(try await place.server.start())
    let device = try place.device("anna", url: "http://127.0.0.1:\(server.port)")
    let own = device.directory.appendingPathComponent("salvor.json5")
    try String(contentsOf: own, encoding: .utf8)
      .replacingOccurrences(of: "client: {", with: "client: { log: { format: \"json\" },")
      .write(to: own, atomically: true, encoding: .utf8)
    try await device.sync()
    try device.sqlite().execute("INSERT INTO site (id, name) VALUES ('s1', 'Geheim Straat 7')")
    let synced = try await device.salvor("sync", "--json")
    #expect(synced.code == 0)
    let line = try #require(synced.err.split(separator: "\n").last { $0.contains("\"msg\":\"sync\"") })
    let trace = try #require(try JSON(parsing: String(line))["trace"].string)
    var upload: JSON?
    var all: [JSON] = []
    for _ in 0..<3000 where upload == nil {
      all = try Self.spans(file)
      upload = all.first { $0["traceId"].string == trace && $0["name"] == "process upload" }
      if upload == nil { try await Task.sleep(for: .milliseconds(20)) }
    }
    let processed = try #require(upload)
    let request = try #require(all.first { $0["spanId"] == processed["parentSpanId"] })
    #expect(request["name"] == "POST /v1/sync" && request["traceId"].string == trace && request["kind"] == 2)
    #expect(request["parentSpanId"].string?.count == 16, "the device's step")
    #expect(Self.attribute(request, "http.response.status_code") == "200")
    let id = try await device.salvor("status", "--json").json["remoteID"]
    #expect(Self.attribute(request, "salvor.remote") == id)
    #expect(Self.attribute(processed, "salvor.accepted") == "1")
    let began = try #require(request["startTimeUnixNano"].string.flatMap { Int64($0) })
    let ended = try #require(request["endTimeUnixNano"].string.flatMap { Int64($0) })
    #expect(began <= ended && ended > 1_700_000_000_000_000_000)
    #expect(try !String(contentsOf: file, encoding: .utf8).contains("Geheim"))
    collector.signal(SIGKILL)
    _ = await collector.output()
    try await device.sync()
    var metrics = ""
    for _ in 0..<3000 where !metrics.contains(/salvor_trace_spans_dropped_total [1-9]/) {
      metrics = try await server.request("GET", "/metrics", headers: [:]).text
      try await Task.sleep(for: .milliseconds(20))
    }
    #expect(metrics.contains(/salvor_trace_spans_dropped_total [1-9]/))
    #expect(metrics.contains(/salvor_trace_spans_exported_total [1-9]/))
    #expect(try await place.server.stop().code == 0)
  }
}
