#if PostgreSQL
  import CPQ
  import SalvorModel
  import SalvorStorage
  import SalvorWire
  import ServerStoreSupport

  /// One connection to a PostgreSQL database. Not thread-safe: it belongs to one actor, whose thread waits for its answers.
  ///
  /// Values travel in the binary protocol where their type has one that is fixed (`PostgreSQLType`), and as text under the settings
  /// that are made here else: the same text in feed, digests and conflict versions, whatever the role's own settings.
  package final class PostgreSQLConnection {
    let settings: ConnectionSettings
    let link: Link
    private var cache: [String: PostgreSQLStatement] = [:]
    private let cachedStatementsMax = 512
    private var statements = 0
    /// Values of an entry of the change log (`Catalog.logWidth`).
    var logWidth = 1
    /// It has numbered nothing yet (`Sealing.numberOthers`).
    var isFirstSealing = true
    /// What a function of the application's raises under a state that says "try again" is taken for its refusal of the row.
    var isLastAttempt = true
    /// What is written by a transaction that numbers has its numbers at once (`Sealing.ownsTriggers`); nil: that was not asked yet.
    var ownsTriggers: Bool?

    /// What the connection and its statements share.
    final class Link {
      private(set) var handle: OpaquePointer?
      /// What each transaction sets for itself (`Pooling`); nil: the connection is one of the database's, and has set it.
      var transactionSettings: String?
      /// What `BEGIN` says more there, where nothing else is asked for.
      var transactionMode = ""
      /// What is set once more after a statement that writes rows of the application's tables.
      var restoring = ""
      /// Triggers of the application's may fire in this transaction; nil: nobody has looked.
      var firesOthers: Bool?
      /// Of the last statement.
      var changes = 0
      /// How long a statement may take; nil: as long as it takes.
      var timeLimit: Duration?
      /// When the handle was last taken, to send a statement.
      private(set) var began = ContinuousClock.now
      /// The last entry of the inbox that this transaction has numbered; nil: it numbers none.
      var numbered: Int64?
      /// The snapshot of the last sealing that a reader on this connection has met; nil: none.
      var sealed: String?
      /// Prepared statements whose last user is gone.
      var abandoned: [String] = []

      init(_ handle: OpaquePointer?) { self.handle = handle }
      deinit { close() }

      func close() {
        guard let handle else { return }
        self.handle = nil
        PQfinish(handle)
      }

      func live() throws -> OpaquePointer {
        guard let handle else {
          throw SalvorError(.storage, "The connection to the database is closed. Open the store again.")
        }
        began = .now
        return handle
      }

      /// Throws what `result` says, and clears it then.
      func check(_ result: OpaquePointer?, sql: String?) throws {
        switch PQresultStatus(result) {
        case PGRES_COMMAND_OK, PGRES_TUPLES_OK, PGRES_EMPTY_QUERY: return
        default:
          defer { PQclear(result) }
          let state = PQresultErrorField(result, Int32(cpq_sqlstate)).map { String(cString: $0) }
          // Libpq's own errors have no state: the connection is gone, whatever its status says yet.
          if let handle, PQstatus(handle) != CONNECTION_OK || state == nil {
            defer { close() }
            throw SalvorError.postgreSQL(connection: handle)
          }
          // The server is about to end it.
          defer { if state == "57P01" || state == "57P02", !SalvorError.isRaised(result) { close() } }
          var error = SalvorError.postgreSQL(result, sql: sql)
          // Somebody may have ended it, too: PostgreSQL tells the two apart in words alone.
          if state == "57014", let timeLimit, ContinuousClock.now - began >= timeLimit { error.context["slow"] = "yes" }
          throw error
        }
      }

      private var cursors = 0
      func nextCursor() -> Int {
        cursors += 1
        return cursors
      }

      var state: PGTransactionStatusType { handle.map { PQtransactionStatus($0) } ?? PQTRANS_UNKNOWN }
    }

    init(_ settings: ConnectionSettings) throws {
      self.settings = settings
      link = try Self.connect(settings)
      do {
        try prepareSession()
      } catch {
        link.close()
        throw error
      }
    }

    /// With the defaults of the module, for whoever looks at its tables from outside.
    package convenience init(to url: String) throws { try self.init(ConnectionSettings(url: url)) }

    private static func connect(_ settings: ConnectionSettings) throws -> Link {
      let parameters = try settings.parameters()
      let keywords = parameters.map { $0.keyword.withCString { strdupped($0) } } + [nil]
      let values = parameters.map { $0.value.withCString { strdupped($0) } } + [nil]
      defer { for text in keywords + values { text?.deallocate() } }
      let handle = PQconnectdbParams(keywords.map { UnsafePointer($0) }, values.map { UnsafePointer($0) }, 1)
      guard PQstatus(handle) == CONNECTION_OK else {
        defer { PQfinish(handle) }
        throw SalvorError.postgreSQL(connection: handle)
      }
      cpq_ignore_notices(handle)
      return Link(handle)
    }

    /// What values look like as text must not follow the role's own settings.
    private func prepareSession() throws {
      try refuseForeignEncoding()
      let isPooled = try isBehindPooler()
      let sessionSettings = try sessionSettings()
      link.timeLimit = try timeLimit()
      link.restoring = restoringSettings(sessionSettings, isPooled: isPooled)
      guard !isPooled else {
        // Another program may have left its role, and a session that only reads.
        link.transactionSettings = (["ROLE NONE"] + sessionSettings).map { "SET LOCAL \($0)" }.joined(separator: "; ")
        link.transactionMode = settings.isWriter ? " READ WRITE" : ""
        return
      }
      let values = sessionSettings + ["default_transaction_isolation = 'read committed'"]
      try execute(values.map { "SET \($0)" }.joined(separator: "; "))
    }

    private func refuseForeignEncoding() throws {
      let encoding = PQparameterStatus(link.handle, "server_encoding").map { String(cString: $0) } ?? ""
      guard encoding == "UTF8" else {
        throw SalvorError(
          .configuration,
          "The database's encoding is \(encoding), and Salvor needs UTF8. Make a database with ENCODING 'UTF8'.")
      }
    }

    /// Safe to call twice.
    package func close() {
      cache.removeAll()
      link.close()
    }

    /// Nil: there is no connection.
    func canceller() -> Canceller? { link.handle.flatMap { PQgetCancel($0) }.map { Canceller($0) } }

    /// False: it is lost, and whatever was under way with it.
    package var isAlive: Bool { link.handle.map { PQstatus($0) == CONNECTION_OK } ?? false }

    /// Where what the server sends can be waited for; nil: there is no connection.
    package var socket: Int32? { link.handle.map { PQsocket($0) } }

    /// What was told on the channels that this connection listens to, since it was last asked; nil: the connection is lost.
    package func notifications() -> [String]? {
      guard let handle = link.handle, PQconsumeInput(handle) == 1 else { return nil }
      var found: [String] = []
      while let notification = PQnotifies(handle) {
        found.append(String(cString: notification.pointee.extra))
        PQfreemem(notification)
      }
      return found
    }

    package var changes: Int { link.changes }

    private func nextName() -> String {
      statements += 1
      return "s\(statements)"
    }

    private func dropAbandoned() throws {
      guard !link.abandoned.isEmpty, link.state == PQTRANS_IDLE || link.state == PQTRANS_INTRANS else { return }
      let names = link.abandoned
      link.abandoned = []
      try execute(names.map { "DEALLOCATE \($0)" }.joined(separator: "; "))
    }
  }

  extension PostgreSQLConnection: StoreConnection {
    package var dialect: any Dialect { PostgreSQLDialect(dropsTemporaryTables: isPooled) }

    package func prepare(_ sql: String, persistent: Bool) throws -> PostgreSQLStatement {
      try dropAbandoned()
      return try PostgreSQLStatement(link, sql, name: isPooled ? "" : nextName())
    }

    package func cached(_ sql: String) throws -> PostgreSQLStatement {
      if let statement = cache[sql], !statement.isBusy {
        statement.reset()
        statement.clearBindings()
        statement.streams = false
        return statement
      }
      let statement = try prepare(sql, persistent: true)
      if cache.count >= cachedStatementsMax { cache.removeAll() }
      cache[sql] = statement
      return statement
    }

    package func execute(_ sql: String) throws {
      try link.pinned {
        let result = try PQexec(link.live(), sql)
        try link.check(result, sql: sql)
        PQclear(result)
      }
    }

    package func stream(_ sql: String) throws -> PostgreSQLStatement {
      let statement = try cached(sql)
      statement.streams = true
      return statement
    }

    /// Runs one statement whose text is another one each time, and reads its answer.
    func once(_ sql: String, _ values: [String?] = []) throws -> [[String?]] {
      let texts = values.map { $0.map { $0.withCString { strdupped($0) } } ?? nil }
      defer { for text in texts { text?.deallocate() } }
      let result = try link.pinned {
        let result = try PQexecParams(
          link.live(), sql, Int32(values.count), nil, texts.map { UnsafePointer($0) }, nil, nil, 0)
        try link.check(result, sql: sql)
        return result
      }
      defer { PQclear(result) }
      return (0..<PQntuples(result)).map { row in
        (0..<PQnfields(result)).map { column in
          PQgetisnull(result, row, column) == 1 ? nil : PQgetvalue(result, row, column).map { String(cString: $0) }
        }
      }
    }

    package var isInTransaction: Bool { link.state == PQTRANS_INTRANS || link.state == PQTRANS_INERROR }
    package var writtenRows: Int? { nil }
    package var endsOnFailure: Bool { true }
    package var altersRows: Bool { true }

    /// Of a transaction that numbers what it writes (`Sealing.begin`).
    var numbered: Int64? {
      get { link.numbered }
      set { link.numbered = newValue }
    }

    package func numberWritten() throws {
      guard link.numbered != nil else { return }
      // Its triggers have done so.
      if try ownsTriggers ?? Sealing(connection: self).ownsTriggers() { return ownsTriggers = true }
      ownsTriggers = false
      try Sealing(connection: self).numberOwn()
    }
    /// By the snapshot of the last sealing that this connection knows of. Its transactions stand in the text: as parameters they keep the
    /// planner from the index.
    package var unnumberedColumns: String {
      guard link.numbered == nil else { return "" }
      let isThere = link.sealed.map { "EXISTS (SELECT 1 FROM salvor_inbox WHERE \(Sealing.isNew($0)))" } ?? "FALSE"
      return ", (SELECT sealed::text FROM salvor_head), \(isThere)"
    }
    package func hasUnnumbered(_ row: any StoreStatement, from column: Int) throws -> Bool? {
      guard link.numbered == nil else { return false }
      // Nothing was numbered yet.
      guard let sealed = row.optionalString(column) else { return try Sealing(connection: self).isNeeded() }
      if sealed == link.sealed { return row.int64(column + 1) == 1 }
      // Nobody asks with the one of before again.
      if let past = link.sealed.map({ Sealing.isNew($0) }) {
        for text in cache.keys where text.contains(past) { cache[text] = nil }
      }
      link.sealed = sealed
      return nil
    }

    package func attempt<Result>(_ body: () throws -> Result) throws -> Result { try savepoint("salvor_try", body) }

    package func failure(_ error: SalvorError) -> StoreFailure? {
      guard error.fullIndex == nil, let state = error.sqlState else { return nil }
      if error.isRaised { return StoreFailure(raised: state, isLastAttempt: isLastAttempt) }
      return error.isOfTimeLimit ? .slow : StoreFailure(sqlState: state)
    }
  }

  /// A copy that `deallocate` frees.
  private func strdupped(_ text: UnsafePointer<CChar>) -> UnsafeMutablePointer<CChar>? {
    var count = 0
    while text[count] != 0 { count += 1 }
    let copy = UnsafeMutablePointer<CChar>.allocate(capacity: count + 1)
    copy.initialize(from: text, count: count + 1)
    return copy
  }

  /// A prepared statement. Its answer is read whole before the first row is there.
  package final class PostgreSQLStatement: StoreStatement {
    private let link: PostgreSQLConnection.Link
    private let sql: String
    private let name: String
    /// Its answer comes in parts, by a cursor. Of a query, in a transaction.
    var streams = false
    private var isOpenCursor = false
    private static let rowsPerPart = 512
    private let parameterTypes: [UInt32]
    private let columnTypes: [UInt32]
    private let columnFormats: [Bool]
    /// A value that a parameter's type does not have equals nothing: it is looked for as NULL, and never stored so.
    private let isQuery: Bool
    /// It may write rows of the application's tables.
    private let writesTables: Bool
    private var parameters: [[UInt8]?]
    private var formats: [Int32]
    private var answer: OpaquePointer?
    private var row: Int32 = -1
    /// Values of the answer that were made of escaped ones in their place, and how many bytes they have.
    private var unescaped: [UnsafeRawPointer?: Int] = [:]
    private var isDone = true

    fileprivate init(_ link: PostgreSQLConnection.Link, _ text: String, name: String) throws {
      self.link = link
      self.name = name
      cursor = "c\(link.nextCursor())"
      let slots = ParameterSlots(text)
      sql = slots.sql
      isQuery = text.hasPrefix("SELECT")
      // Salvor's own tables stand there without quotes.
      writesTables = !isQuery && ["INSERT INTO \"", "UPDATE \"", "DELETE FROM \""].contains { text.contains($0) }
      let description = try link.pinned { [sql] in
        let handle = try link.live()
        let prepared = PQprepare(handle, name, sql, 0, nil)
        try link.check(prepared, sql: sql)
        PQclear(prepared)
        let description = PQdescribePrepared(handle, name)
        try link.check(description, sql: sql)
        return description
      }
      defer { PQclear(description) }
      parameterTypes = (0..<PQnparams(description)).map { PQparamtype(description, $0) }
      columnTypes = (0..<PQnfields(description)).map { PQftype(description, $0) }
      // One format for the whole answer.
      let isBinary = columnTypes.allSatisfy { PostgreSQLType.storageClass($0) != nil }
      columnFormats = columnTypes.map { _ in isBinary }
      parameters = Array(repeating: nil, count: parameterTypes.count)
      formats = Array(repeating: 0, count: parameterTypes.count)
    }

    deinit {
      PQclear(answer)
      if !name.isEmpty { link.abandoned.append(name) }
    }

    var isBusy: Bool { !isDone }
    package var columnCount: Int { columnTypes.count }

    // MARK: Running

    package func step() throws -> Bool {
      if answer == nil { try streams ? open() : send() }
      row += 1
      if isOpenCursor, row >= PQntuples(answer), PQntuples(answer) == Self.rowsPerPart { try fetch() }
      isDone = row >= PQntuples(answer)
      return !isDone
    }

    package func run() throws {
      defer { reset() }
      try send()
    }

    private let cursor: String

    private func open() throws {
      reset()
      PQclear(
        try run { pointers, lengths in
          try PQexecParams(
            link.live(), "DECLARE \(cursor) NO SCROLL CURSOR FOR \(sql)", Int32(parameters.count), parameterTypes,
            pointers, lengths, formats, 0)
        })
      isOpenCursor = true
      try fetch()
      row = -1
      isDone = false
    }

    private func fetch() throws {
      PQclear(answer)
      answer = nil
      let result = try PQexecParams(
        link.live(), "FETCH \(Self.rowsPerPart) FROM \(cursor)", 0, nil, nil, nil, nil,
        columnFormats.first == true ? 1 : 0)
      try link.check(result, sql: sql)
      answer = result
      row = 0
    }

    private func send() throws {
      reset()
      let handle = try link.live()
      let format: Int32 = columnFormats.first == true ? 1 : 0
      let result = try link.pinned {
        try run { pointers, lengths in
          name.isEmpty
            ? PQexecParams(handle, sql, Int32(parameters.count), parameterTypes, pointers, lengths, formats, format)
            : PQexecPrepared(handle, name, Int32(parameters.count), pointers, lengths, formats, format)
        }
      }
      answer = result
      isDone = false
      link.changes = Int(String(cString: PQcmdTuples(result))) ?? 0
      if writesTables { try link.restoreSettings() }
    }

    /// Gives `body` the parameters, and checks its answer.
    private func run(_ body: ([UnsafePointer<CChar>?], [Int32]) throws -> OpaquePointer?) throws -> OpaquePointer? {
      var bytes: [UInt8] = []
      for parameter in parameters { bytes += (parameter ?? []) + [0] }
      let result: OpaquePointer? = try bytes.withUnsafeBytes { all in
        var pointers: [UnsafePointer<CChar>?] = []
        var lengths: [Int32] = []
        var offset = 0
        for parameter in parameters {
          pointers.append(
            parameter == nil ? nil : all.baseAddress?.advanced(by: offset).assumingMemoryBound(to: CChar.self))
          lengths.append(Int32(parameter?.count ?? 0))
          offset += (parameter?.count ?? 0) + 1
        }
        return try body(pointers, lengths)
      }
      try link.check(result, sql: sql)
      return result
    }

    package func reset() {
      PQclear(answer)
      answer = nil
      unescaped = [:]
      row = -1
      isDone = true
      guard isOpenCursor else { return }
      isOpenCursor = false
      // The end of a transaction has closed it.
      if link.state == PQTRANS_INTRANS, let handle = link.handle { PQclear(PQexec(handle, "CLOSE \(cursor)")) }
    }

    package func clearBindings() { for place in parameters.indices { parameters[place] = nil } }

    // MARK: Binding

    private func set(_ parameter: Int, _ bytes: [UInt8]?, isBinary: Bool) throws {
      guard parameters.indices.contains(parameter - 1) else {
        throw SalvorError(.storage, "The statement has no parameter \(parameter).", context: ["sql": sql])
      }
      parameters[parameter - 1] = bytes
      formats[parameter - 1] = isBinary ? 1 : 0
    }

    private func type(_ parameter: Int) -> UInt32 {
      parameterTypes.indices.contains(parameter - 1) ? parameterTypes[parameter - 1] : 0
    }

    package func bindNull(_ parameter: Int) throws { try set(parameter, nil, isBinary: false) }

    package func bind(_ parameter: Int, _ value: Int64) throws {
      switch type(parameter) {
      case PostgreSQLType.int8: try set(parameter, bigEndianBytes(value), isBinary: true)
      case PostgreSQLType.int4 where Int32(exactly: value) != nil:
        try set(parameter, bigEndianBytes(Int32(truncatingIfNeeded: value)), isBinary: true)
      case PostgreSQLType.int2 where Int16(exactly: value) != nil:
        try set(parameter, bigEndianBytes(Int16(truncatingIfNeeded: value)), isBinary: true)
      case PostgreSQLType.float8: try set(parameter, bigEndianBytes(Double(value).bitPattern), isBinary: true)
      case PostgreSQLType.boolean where value == 0 || value == 1:
        try set(parameter, [UInt8(value)], isBinary: true)
      case PostgreSQLType.int4 where isQuery, PostgreSQLType.int2 where isQuery, PostgreSQLType.boolean where isQuery:
        try bindNull(parameter)
      // What does not fit is refused by PostgreSQL itself.
      default: try set(parameter, Array("\(value)".utf8), isBinary: false)
      }
    }

    package func bind(_ parameter: Int, _ value: Double) throws {
      if type(parameter) == PostgreSQLType.float8 {
        return try set(parameter, bigEndianBytes(value.bitPattern), isBinary: true)
      }
      try set(parameter, Array(PostgreSQLType.text(value).utf8), isBinary: false)
    }

    package func bindText(_ parameter: Int, _ bytes: UnsafeRawBufferPointer, copying: Bool) throws {
      if isQuery, PostgreSQLType.lacks(bytes.bindMemory(to: UInt8.self), type(parameter)) {
        return try bindNull(parameter)
      }
      switch type(parameter) {
      case PostgreSQLType.text, PostgreSQLType.varchar, PostgreSQLType.bpchar:
        try set(parameter, Array(bytes), isBinary: true)
      default:
        // The text protocol ends at a NUL.
        guard !bytes.contains(0) else {
          throw SalvorError(
            .storage, "PostgreSQL: a text has the character U+0000, which PostgreSQL does not store.",
            context: ["sqlstate": "22021", "detail": "a text has the character U+0000"])
        }
        try set(parameter, Array(bytes), isBinary: false)
      }
    }

    package func bindBlob(_ parameter: Int, _ bytes: UnsafeRawBufferPointer, copying: Bool) throws {
      if type(parameter) == PostgreSQLType.bytea { return try set(parameter, Array(bytes), isBinary: true) }
      try set(parameter, Array("\\x\(hexadecimal(bytes))".utf8), isBinary: false)
    }

    package func bindColumn(_ parameter: Int, count: Int, _ value: (Int) -> PayloadReader.Item) throws {
      guard let element = PostgreSQLType.elements[type(parameter)] else {
        throw SalvorError(.storage, "The statement takes no array as parameter \(parameter).", context: ["sql": sql])
      }
      try set(parameter, try PostgreSQLType.array(of: element, count: count, value), isBinary: true)
    }

    // MARK: Columns of the current row

    private func bytes(_ column: Int) -> UnsafeRawBufferPointer {
      UnsafeRawBufferPointer(
        start: PQgetvalue(answer, row, Int32(column)), count: Int(PQgetlength(answer, row, Int32(column))))
    }

    private func isBinary(_ column: Int) -> Bool { columnFormats[column] }

    package func storageClass(_ column: Int) -> StorageClass {
      if PQgetisnull(answer, row, Int32(column)) == 1 { return .null }
      guard let kind = PostgreSQLType.storageClass(columnTypes[column]) else { return .text }
      // SQLite has no such number, and takes NULL for it: it travels as PostgreSQL writes it.
      return kind == .real && real(column).isNaN ? .text : kind
    }

    package func int64(_ column: Int) -> Int64 {
      guard storageClass(column) != .null else { return 0 }
      let bytes = bytes(column)
      if isBinary(column), PostgreSQLType.storageClass(columnTypes[column]) == .integer {
        return bytes.bigEndianInteger()
      }
      let text = String(decoding: bytes, as: UTF8.self)
      return text == "t" ? 1 : Int64(text) ?? 0
    }

    package func double(_ column: Int) -> Double {
      guard PQgetisnull(answer, row, Int32(column)) == 0 else { return 0 }
      // SQLite has one zero.
      return real(column) + 0
    }

    private func real(_ column: Int) -> Double {
      let bytes = bytes(column)
      guard isBinary(column), PostgreSQLType.storageClass(columnTypes[column]) == .real else {
        let text = String(decoding: bytes, as: UTF8.self)
        // The same number as in binary: a float4 is written with the digits that tell it from other float4.
        return (columnTypes[column] == PostgreSQLType.float4 ? Float(text).map(Double.init) : Double(text)) ?? 0
      }
      return bytes.count == 4
        ? Double(Float(bitPattern: UInt32(bigEndian: bytes.loadUnaligned(as: UInt32.self))))
        : Double(bitPattern: UInt64(bigEndian: bytes.loadUnaligned(as: UInt64.self)))
    }

    package func textBytes(_ column: Int) -> UnsafeRawBufferPointer {
      guard PQgetisnull(answer, row, Int32(column)) == 0 else { return UnsafeRawBufferPointer(start: nil, count: 0) }
      if PostgreSQLType.storageClass(columnTypes[column]) == .real, real(column).isNaN {
        return PostgreSQLType.notANumber
      }
      return bytes(column)
    }

    package func blobBytes(_ column: Int) -> UnsafeRawBufferPointer {
      let bytes = textBytes(column)
      guard !isBinary(column), bytes.count >= 2 else { return bytes }
      let start = UnsafeMutableRawBufferPointer(mutating: bytes)
      // A function of the application's has asked for the other form (`bytea_output`).
      if unescaped[bytes.baseAddress] != nil
        || bytes[0] != 0 && !bytes.starts(with: [UInt8(ascii: "\\"), UInt8(ascii: "x")])
      {
        let count = unescaped[bytes.baseAddress] ?? unescape(start)
        unescaped[bytes.baseAddress] = count
        return UnsafeRawBufferPointer(rebasing: start[..<count])
      }
      // `\x…`: in place, once, over the digits that it is made of.
      let count = (bytes.count - 2) / 2
      guard bytes[0] == UInt8(ascii: "\\") else { return UnsafeRawBufferPointer(rebasing: bytes[2..<2 + count]) }
      start[0] = 0
      for place in 0..<count {
        start[place + 2] = hexadecimalValue(start[2 * place + 2]) << 4 | hexadecimalValue(start[2 * place + 3])
      }
      return UnsafeRawBufferPointer(rebasing: bytes[2..<2 + count])
    }
  }
#endif
