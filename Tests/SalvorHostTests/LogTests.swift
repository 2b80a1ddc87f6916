import SalvorModel
import SalvorModuleKit
import StandardModules
import Testing

@testable import SalvorConfiguration
@testable import SalvorHost

@Suite("The log: one event a line, in each format")
struct LogTests {
  /// A clock that stands where it is put.
  private final class StillClock: Clock {
    private let time: Mutex<Int64>
    init(_ time: Int64) { self.time = Mutex(time) }
    func now() -> Int64 { time.withLock { $0 } }
    func move(to new: Int64) { time.withLock { $0 = new } }
    func sleep(milliseconds: Int64) async throws {}
  }

  private final class Lines: Sendable {
    private let lines = Mutex<[String]>([])
    func add(_ line: String) { lines.withLock { $0.append(line) } }
    var all: [String] { lines.withLock { $0 } }
  }

  private static let entry = LogRecord(
    level: .warning, message: "login refused",
    fields: [
      .init("peer", "10.0.0.7"), .init("why", "a \"quoted\" = text\nin two lines\u{1B}[31m"), .init("empty", ""),
    ])

  @Test("logfmt has time with zone, level, message and facts; nothing in a value can begin another line or fact")
  func logfmt() {
    #expect(
      LogFormat.logfmt.line(Self.entry, time: 1_763_784_306_007)
        == #"time=2025-11-22T04:05:06.007Z level=warning msg="login refused" peer=10.0.0.7 why="a \"quoted\" = text\nin two lines\u001b[31m" empty="""#
    )
  }

  @Test("journald gets the priority before the line, and keeps the time itself")
  func journald() {
    #expect(LogFormat.journald.line(Self.entry, time: 0).hasPrefix("<4>level=warning msg="))
    #expect(LogLevel.allCases.map(\.priority) == [7, 6, 5, 4, 3])
  }

  @Test("JSON is one object a line with the same members")
  func json() throws {
    let line = LogFormat.json.line(Self.entry, time: 7)
    #expect(!line.contains("\n"))
    #expect(
      line.hasPrefix(#"{"time":"1970-01-01T00:00:00.007Z","level":"warning","msg":"login refused","peer":"10.0.0.7""#))
  }

  @Test("What is below the level is not written, and the level changes while it runs")
  func level() {
    let lines = Lines()
    let writer = LogWriter(level: .info, format: .logfmt, clock: StillClock(0)) { lines.add($0) }
    writer.log.debug("a")
    writer.log.info("b")
    writer.level = .debug
    writer.log.debug("c")
    #expect(lines.all.map { $0.suffix(1) } == ["b", "c"])
  }

  @Test(
    "A message that floods is left out beyond its number a second, and the next line says how many; errors never are")
  func limitedInRate() {
    let lines = Lines()
    let clock = StillClock(5000)
    let writer = LogWriter(level: .info, format: .logfmt, clock: clock) { lines.add($0) }
    for _ in 0..<1000 { writer.log.warning("login refused", ["peer": "10.0.0.7"]) }
    writer.log.warning("another", [:])
    #expect(lines.all.count == LogWriter.linesPerSecondMax + 1)
    clock.move(to: 6000)
    writer.log.warning("login refused")
    #expect(lines.all.last?.contains("suppressed=\(1000 - LogWriter.linesPerSecondMax)") == true)
    for _ in 0..<100 { writer.log.error("broken") }
    #expect(lines.all.count == LogWriter.linesPerSecondMax + 102)
  }

  @Test("Lines within a request carry its trace and what is known of it, and a fact of the line's own stands first")
  func context() async {
    let lines = Lines()
    let writer = LogWriter(level: .info, format: .logfmt, clock: StillClock(0)) { lines.add($0) }
    let context = LogContext(TraceContext())
    await LogContext.$current.withValue(context) {
      context.set("remote", "r1")
      context.set("remote", "r2")
      await Task { writer.log.info("inside", ["remote": "own", "left": nil]) }.value
      writer.log.info("again")
    }
    writer.log.info("outside")
    let (inside, again) = (lines.all[0], lines.all[1])
    #expect(inside.hasSuffix("msg=inside remote=own trace=\(context.trace.traceID) span=\(context.trace.spanID)"))
    #expect(again.hasSuffix("span=\(context.trace.spanID) remote=r2"))
    #expect(!lines.all[2].contains("trace"))
  }

  @Test("server.log is read strictly", arguments: [("level: \"loud\"", "level"), ("format: \"xml\"", "format")])
  func settingsAreChecked(text: String, key: String) throws {
    let value = try JSON5Reader.read(Array("{ log: { \(text) } }".utf8), file: "f")
    var reader = OptionReader(value, file: "f", path: "server")
    #expect(LogSettings.decode(&reader, default: LogSettings()) == LogSettings())
    #expect(reader.diagnostics.contains { $0.path == "server.log.\(key)" && $0.message.contains("must be one of") })
  }
}

@Suite("Manual pages and completions, from the table of commands")
struct ManualTests {
  private let registry: ModuleRegistry
  init() throws { registry = try ModuleRegistry(StandardModules.all) }

  @Test("Every command has its place in a manual page, with each option; no line can be taken for a request of roff")
  func everyCommandHasAPage() throws {
    let pages = ManualPages(tool: "salvor", commands: Tool.commands, registry: registry).pages
    #expect(Set(pages.map(\.file)).count == pages.count)
    for command in Tool.commands where !command.isInternal {
      let page = try #require(pages.first { $0.file == "salvor-\(command.words[0]).1" })
      #expect(page.text.contains(command.name.replacing("-", with: "\\-")))
      for option in command.options { #expect(page.text.contains("\\-\\-\(option.name.replacing("-", with: "\\-"))")) }
    }
    let macros: Set = [".TH", ".SH", ".SS", ".PP", ".TP", ".B", ".BR", ".I", ".br", ".nf", ".fi", ".\\\""]
    for line in pages.flatMap({ $0.text.split(separator: "\n") }) where line.hasPrefix(".") || line.hasPrefix("'") {
      #expect(macros.contains(String(line.prefix { $0 != " " })), "\(line)")
    }
  }

  @Test("The seven strategies are named by recover --help, its manual page and every shell's completions")
  func theStrategiesAreNamed() throws {
    let strategies = registry.names(of: .recoveryStrategy)
    // The seven, and `program`.
    #expect(strategies.count == 8)
    let help = Command.recover.help(tool: "salvor", registry: registry)
    let pages = ManualPages(tool: "salvor", commands: Tool.commands, registry: registry).pages
    let page = try #require(pages.first { $0.file == "salvor-recover.1" }).text.replacing("\\-", with: "-")
    for strategy in strategies {
      #expect(help.contains(strategy))
      #expect(page.contains(strategy))
      for shell in Completions.Shell.allCases {
        let script = Completions(tool: "salvor", commands: Tool.commands, registry: registry).script(shell)
        #expect(script.contains(strategy))
      }
    }
  }
}
