import SQLiteSupport
import SalvorClientEngine
import SalvorModel
import SalvorStorage
import Testing

/// The edit history replayed through real clients, landing by landing, beside what is to be expected of it.
///
/// True staleness: right after landing `base` the device of a line of work pulls, and its application writes the
/// transactions; right before landing `landing` it uploads them, after everything that landed before. What a sync reports
/// is compared with the expectation each time.
final class EditHistoryReplay {
  final class Writer {
    let device: Device
    let principal: String
    /// The requests that wait for their landing, and the commit that they were made on.
    fileprivate(set) var requests: [ExpectedRequest] = []
    fileprivate(set) var made = 0
    /// What is to be in its archive.
    var refused: [ExpectedServer.Verdict] = []

    fileprivate init(_ device: Device, _ principal: String) {
      self.device = device
      self.principal = principal
    }
  }

  private struct Key: Hashable {
    var landing: Int
    var base: Int
  }

  let history: EditHistory
  let fleet: Fleet
  private(set) var expected: ExpectedServer
  private(set) var source: SourceHistory
  private(set) var reckoning = Reckoning()
  private(set) var writers: [Writer] = []
  private let lines: LinesOfWork
  private let window: TransactionWindow
  private let application: EditHistoryApplication
  private var writing: [Key: Writer] = [:]
  private var idle: [String: [Writer]] = [:]
  /// Whose client is open, the one used last at the end: few, so that memory stays flat.
  private var awake: [Writer] = []
  private static let awakeMax = 8

  /// The server's database, or what was copied out of it when all had landed.
  let serverPath: String
  private let copyServer: (([Table], String) throws -> Void)?

  /// - Parameters:
  ///   - landingMax: what lands later is left out.
  ///   - server: a server's database that is no SQLite file: its options, and what copies it into one.
  init(
    policy: String, landingMax: Int, server: (storage: String, copy: ([Table], String) throws -> Void)? = nil
  ) throws {
    history = try EditHistory()
    let schema = try EditHistory.schemaText(policy: policy)
    fleet = try server.map { try Fleet(schema: schema, storage: $0.storage) } ?? Fleet(schema: schema)
    copyServer = server?.copy
    serverPath = server == nil ? fleet.serverPath : fleet.directory + "/copied.db"
    expected = ExpectedServer(policy: policy)
    source = SourceHistory(history)
    lines = try LinesOfWork(history, landingMax: landingMax)
    window = try TransactionWindow(history)
    application = EditHistoryApplication(history)
  }

  func run() async throws {
    try await fleet.start()
    for landing in 0...lines.landingLast {
      let landed = lines.landing[landing] ?? []
      var verdicts: [Int: ExpectedServer.Verdict] = [:]
      for line in landed {
        for verdict in try await land(line) { verdicts[verdict.request.transaction] = verdict }
      }
      try account(for: landed, verdicts)
      for line in lines.onBase[landing] ?? [] { try await write(line) }
    }
    for writer in writers {
      let report = await sync(writer)
      #expect(report.error == nil && report.uploaded == 0 && report.refused == 0, "\(writer.device.name) at the end")
    }
    try copyServer?(history.tables, serverPath)
  }

  private func sync(_ writer: Writer) async -> SyncReport {
    awake.removeAll { $0 === writer }
    awake.append(writer)
    if awake.count > Self.awakeMax { await awake.removeFirst().device.close() }
    do {
      return try await writer.device.sync()
    } catch {
      Issue.record("\(writer.device.name): \(error)")
      return SyncReport()
    }
  }

  // MARK: A line of work

  private func write(_ line: LineOfWork) async throws {
    let writer = try idleWriter(line.writer)
    let report = await sync(writer)
    #expect(
      report.error == nil && report.uploaded == 0 && report.refused == 0 && report.displaced == 0,
      "\(writer.device.name) pulls landing \(line.base)")
    let transactions = try window.transactions(of: line)
    var view = RowOverlay(expected.rows)
    writer.requests = transactions.map { ExpectedRequest($0, on: &view, history) }.filter { !$0.changes.isEmpty }
    writer.made = expected.head
    let connection = try writer.device.connection()
    try application.write(transactions, to: connection)
    connection.close()
    writing[Key(landing: line.landing, base: line.base)] = writer
  }

  /// A device of the principal that no other line of work is written on. One with an archive stays as it is: its rows are
  /// no longer the server's alone.
  private func idleWriter(_ principal: String) throws -> Writer {
    if let writer = idle[principal]?.popLast() { return writer }
    let name = "\(principal)-\(writers.count)"
    let writer = Writer(try fleet.device(name, credentials: "principal: \"\(principal)\""), principal)
    writers.append(writer)
    return writer
  }

  private func land(_ line: LineOfWork) async throws -> [ExpectedServer.Verdict] {
    guard let writer = writing.removeValue(forKey: Key(landing: line.landing, base: line.base)) else { return [] }
    let report = await sync(writer)
    let verdicts = expected.process(writer.requests, of: writer.device.name, made: writer.made)
    writer.requests = []
    writer.refused = verdicts.filter { if case .refused = $0.fate { true } else { false } }
    #expect(report.error == nil, "\(line)")
    #expect(Int(report.uploaded) == verdicts.count - writer.refused.count, "\(line)")
    #expect(Int(report.refused) == writer.refused.count, "\(line)")
    let settled = verdicts.filter { $0.fate == .accepted && !$0.inConflict.isEmpty }
    #expect(Int(report.conflicts) == verdicts.filter { $0.fate == .kept }.count + settled.count, "\(line)")
    if writer.refused.isEmpty { idle[writer.principal, default: []].append(writer) }
    return verdicts
  }

  private func account(for landed: [LineOfWork], _ verdicts: [Int: ExpectedServer.Verdict]) throws {
    let transactions = try landed.flatMap { try window.transactions(of: $0) }.sorted { $0.number < $1.number }
    guard !transactions.isEmpty else { return }
    let clashes = source.land(transactions)
    for transaction in transactions {
      #expect(clashes[transaction.number]?.count ?? 0 == transaction.clashes, "transaction \(transaction.number)")
    }
    reckoning.landed(transactions, verdicts, clashes: clashes, expected: expected.rows, source: source.rows)
    for line in landed { window.forget(line) }
  }
}
