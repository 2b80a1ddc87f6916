import SQLiteSupport
import SalvorModel
import SalvorStorage
import SalvorWire

/// A large first download on its way in (semantics 4): its rows go into twins of the tables that are empty (`TableTwin`), in
/// transactions of a few milliseconds, and nobody sees them. At its end the twins take the tables' place in one short transaction
/// (`Arrived`), so that a writer of the application waits milliseconds, however many rows come.
///
/// Twins are a form of staging: they stand in the file until the download is applied or given up, and a session that was cut
/// goes on with them. Where a line needs more than writing into an empty table, what came is put into staging as text (`fold`).
final class Arrival: ArrivingRows {
  let download: String
  let context: StoreContext
  /// By the number of the table.
  private let twins: [Int64: TableTwin]
  private var stream: DownloadStream?
  let turns: WriteTurns
  private var upserts: Int64

  private var connection: SQLiteConnection { context.connection }

  private init(_ context: StoreContext, _ download: String, _ twins: [Int64: TableTwin], _ upserts: Int64) {
    self.context = context
    self.download = download
    self.twins = twins
    self.upserts = upserts
    turns = WriteTurns(context.connection, context.clock)
  }

  static func name(_ table: CapturedTable) -> String { "salvor_arriving_\(table.number)" }

  /// Makes the twins. Nil: no table of this download can have one.
  static func begin(_ context: StoreContext, _ download: String) throws -> Arrival? {
    let connection = context.connection
    guard try connection.state(.arriving) == nil, try connection.integer("SELECT 1 FROM salvor_staging LIMIT 1") == nil,
      context.catalog.tables.allSatisfy({ $0.dirtyFlag == nil && $0.deletedFlag == nil })
    else { return nil }
    return try connection.transaction {
      try connection.dropArriving()
      try RequestSorting(context).sort()
      let (changed, firing) = (try LogIndex(context).tables, try context.firingTables())
      var twins: [Int64: TableTwin] = [:]
      for table in context.catalog.tables
      where try !changed.contains(table.number) && !firing.contains(table.number)
        && connection.integer("SELECT 1 FROM \(quoted(table.name)) LIMIT 1") == nil
      {
        twins[table.number] = try TableTwin.make(of: table.name, as: name(table), on: connection)
      }
      if twins.isEmpty { return nil }
      try connection.setState(.stagedDownload, download)
      try connection.setState(.arriving, .integer(0))
      return Arrival(context, download, twins, 0)
    }
  }

  /// Goes on with the twins that are in the file. Nil: they are not those of the tables any more.
  static func resume(_ context: StoreContext, _ download: String) throws -> Arrival? {
    guard let upserts = try context.connection.state(.arriving)?.integer,
      try context.connection.text(.stagedDownload) == download, let twins = try standing(context)
    else { return nil }
    return Arrival(context, download, twins, upserts)
  }

  /// Nil: a table has changed its form, or is not there any more.
  static func standing(_ context: StoreContext) throws -> [Int64: TableTwin]? {
    var twins: [Int64: TableTwin] = [:]
    for name in try context.connection.arriving() {
      guard let number = Int64(name.dropFirst("salvor_arriving_".count)),
        let table = context.catalog.table(number: number),
        let twin = try TableTwin.standing(of: table.name, as: name, on: context.connection)
      else { return nil }
      twins[number] = twin
    }
    return twins
  }

  func twin(of table: CapturedTable) -> TableTwin? { twins[table.number] }

  /// Takes a page in. Throws `NotAhead`, or what a row breaks: then `fold`, and the page is staged as text.
  func take(_ chunk: StagedChunk) throws {
    try turns.begin()
    do {
      if stream == nil {
        try RequestSorting(context).sort()
        stream = try DownloadStream(context, WorkingRows(context), arrival: self)
      }
      try chunk.bytes.withUnsafeBytes { try stream?.read($0) }
      upserts += stream?.takeCount() ?? 0
      try connection.setState(.stagedPosition, chunk.position)
      try connection.setState(.stagedRows, chunk.rows.map { .integer($0) })
      try connection.setState(.arriving, .integer(upserts))
      try turns.commit()
    } catch {
      turns.rollBack()
      throw error
    }
  }

  /// A row was written: others have their turn now and then. What is committed in the middle of a page is written again where the
  /// page comes again.
  func wroteRow() throws {
    guard turns.isOver else { return }
    try turns.commit()
    try turns.begin()
  }

  /// Tables of which every row comes: said in staging.
  func comeWhole(_ names: [String]) throws {
    var writer = DownloadChunkWriter(capacity: 4096)
    writer.full(names)
    try connection.run("INSERT INTO salvor_staging (payload) VALUES (?1)", .text(writer.finish()))
  }

  // MARK: Folding

  private static let chunkBytes = 256 << 10

  /// What is in the twins goes into staging as the lines that it was. Nothing of the download is kept where a twin has not the columns that
  /// its lines must have.
  static func fold(_ context: StoreContext) throws {
    let connection = context.connection
    try connection.transaction {
      for name in try connection.arriving() {
        let number = Int64(name.dropFirst("salvor_arriving_".count))
        guard let table = number.flatMap({ context.catalog.table(number: $0) }),
          let columns = context.config.entry(table.name)?.table.travelling.map(\.name),
          let shape = try connection.tableShape(name), columns.allSatisfy({ shape.column($0) != nil })
        else {
          try connection.clearStaged()
          return
        }
        try stage(name, table.name, columns, connection)
      }
      try connection.dropArriving()
      try connection.setState(.arriving, Value?.none)
    }
  }

  private static func stage(
    _ twin: String, _ table: String, _ columns: [String], _ connection: SQLiteConnection
  ) throws {
    var writer = DownloadChunkWriter(capacity: chunkBytes + 4096)
    func hand() throws {
      try connection.run("INSERT INTO salvor_staging (payload) VALUES (?1)", .text(writer.finish()))
      writer = DownloadChunkWriter(capacity: chunkBytes + 4096)
    }
    let rows = try connection.prepare("SELECT \(quotedList(columns)) FROM \(twin)")
    while try rows.step() {
      writer.table(table, columns: columns)
      writer.beginRow(version: nil)
      for value in rows.values() { writer.value(value) }
      writer.endRow()
      if writer.byteCount >= chunkBytes { try hand() }
    }
    if writer.byteCount > 0 { try hand() }
  }
}

extension SQLiteConnection {
  /// The tables that rows arrive in.
  func arriving() throws -> [String] {
    try rows(
      "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'salvor\\_arriving\\_%' ESCAPE '\\' ORDER BY name"
    ).compactMap { $0[0].string }
  }

  func dropArriving() throws {
    let names = try arriving()
    if names.isEmpty { return }
    clearStatementCache()
    for name in names { try execute("DROP TABLE \(quoted(name))") }
  }

  /// Nothing is staged any more. In a transaction.
  func clearStaged() throws {
    try run("DELETE FROM salvor_staging")
    if try state(.arriving) != nil { try dropArriving() }
    for name in StateName.ofStaging { try setState(name, Value?.none) }
  }
}
