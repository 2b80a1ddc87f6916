#if PostgreSQL
  import CPQ
  import SalvorModel
  import ServerStoreSupport

  extension SalvorError {
    /// The error of a statement that PostgreSQL refused. The message has no value of a row and nothing of the connection's
    /// password. `context["sqlstate"]` is the five characters of the SQL standard, `context["detail"]` what is known.
    static func postgreSQL(_ result: OpaquePointer?, sql: String?) -> SalvorError {
      func field(_ code: Int32) -> String? { PQresultErrorField(result, code).map { String(cString: $0) } }
      let state = field(Int32(cpq_sqlstate)) ?? "XX000"
      let hasRaised = isRaised(result)
      let failed = hasRaised ? nil : failedFunction(result, state)
      let isRaised = hasRaised || failed != nil
      // Under whatever state its author raised it: they are his words, and the state says nothing of the database.
      var detail = isRaised ? field(Int32(cpq_primary)) ?? "error" : words(state, field)
      // What a function puts together may have values in it.
      if let failed { detail = "\(failed) failed: \(state == "42601" ? "syntax error" : detail)" }
      let (code, advice) = isRaised ? (.storage, "") : classification(state)
      var context = ["sqlstate": state, "detail": detail]
      if let sql { context["sql"] = sql }
      if isRaised {
        context["raised"] = "yes"
      } else if state.hasPrefix("54") {
        context["index"] = field(Int32(cpq_constraint))
        context["limit"] = detail
      }
      let place = sql.map { " in: \(shortened($0))" } ?? ""
      return SalvorError(
        code, "PostgreSQL: \(detail) (\(state))\(place).\(advice)", context: context,
        retryAfterMilliseconds: code == .storageBusy ? retryMilliseconds : nil)
    }

    /// By a `RAISE` of a function of the application's: PostgreSQL names the function's line and this word, in every language. Quoted names
    /// may have it, too.
    static func isRaised(_ result: OpaquePointer?) -> Bool {
      guard let context = PQresultErrorField(result, Int32(cpq_context)).map({ String(cString: $0) }),
        let line = context.split(separator: "\n").first, line.contains("PL/pgSQL")
      else { return false }
      return line.split(separator: "\"", omittingEmptySubsequences: false).enumerated()
        .contains { $0.offset.isMultiple(of: 2) && $0.element.contains("RAISE") }
    }

    /// A function of the application's that cannot do what its author wrote: a table or a right that it needs is missing, say, or a column has
    /// another name. PostgreSQL names it with its arguments. Nil: the statement itself is what failed, or the database.
    private static func failedFunction(_ result: OpaquePointer?, _ state: String) -> String? {
      guard !ofDatabase.contains(String(state.prefix(2))), !ofStatements.contains(state),
        let context = PQresultErrorField(result, Int32(cpq_context)).map({ String(cString: $0) }),
        // An expression of the function's stands in quotes at the end of its line.
        let line = context.split(separator: "\n").first(where: { $0.contains("PL/pgSQL") && !$0.hasSuffix("\"") }),
        let bracket = line.firstIndex(of: "("), let end = line[bracket...].firstIndex(of: ")")
      else { return nil }
      let name = line[...end].drop(upTo: line[..<bracket].lastIndex(of: " "))
      // One of Salvor's own is no row's fault.
      return name.contains("salvor_") ? nil : String(name)
    }

    /// Classes that say something of the connection, of the row's values, of resources or of the database, whatever met them.
    private static let ofDatabase: Set<String> = ["08", "22", "23", "40", "53", "54", "57", "F0", "P0", "XX"]
    /// The same of single states: of an upload's own statements, a lock, a server that takes no writes, its disk.
    private static let ofStatements: Set<String> = ["21000", "27000", "428C9", "55P03", "25006", "58000", "58030"]

    /// The connection is gone or never was. libpq names host, port, user and database, never the password.
    static func postgreSQL(connection: OpaquePointer?) -> SalvorError {
      let words = connection.flatMap { PQerrorMessage($0) }.map { String(cString: $0) } ?? ""
      let line = words.split(separator: "\n").joined(separator: " ")
      // What waiting does not mend: who asks, and for what.
      let isRefusal = ["authentication failed", "does not exist", "pg_hba.conf", "certificate", "SSL", "no password"]
        .contains { line.contains($0) }
      let isFull =
        line.contains("too many clients") || line.contains("too many connections")
        || line.contains("remaining connection slots")
      let isReadOnly = line.contains("session is read-only") || line.contains("hot standby")
      let advice =
        if isFull {
          " All connections of the database are in use: try again, or raise its max_connections."
        } else if isReadOnly {
          " It is a standby, or read-only: name the primary, or all hosts, in url."
        } else {
          " Check that the database runs, and the module's url."
        }
      return SalvorError(
        isRefusal ? .storage : .storageBusy, "PostgreSQL: \(line.isEmpty ? "there is no connection" : line).\(advice)",
        context: ["sqlstate": isFull ? "53300" : "08006", "detail": line],
        retryAfterMilliseconds: isRefusal ? nil : retryMilliseconds)
    }

    /// Who is put off by the database comes again after this time.
    private static let retryMilliseconds: Int64 = 1000

    /// A prepared statement does not fit a table any more that somebody has altered.
    var isOfAlteredTable: Bool { !isRaised && (sqlState == "0A000" || sqlState == "26000") }

    /// A lock was not given in time.
    var isOfLock: Bool { !isRaised && sqlState == "55P03" }

    /// The statement took longer than it may.
    var isOfTimeLimit: Bool { context["slow"] != nil }

    /// By a function of the application's, or since such a function failed.
    var isRaised: Bool { context["raised"] != nil }

    /// An index of Salvor's own cannot hold the key of a row: its name.
    var fullIndex: String? { context["index"].flatMap { PostgreSQLTables.keyIndexes.keys.contains($0) ? $0 : nil } }

    /// The five characters of the SQL standard, where this error came from PostgreSQL.
    var sqlState: String? { context["sqlstate"] }

    /// What PostgreSQL says, without values: those stand in its DETAIL, and in the texts of class 22 (data exceptions).
    private static func words(_ state: String, _ field: (Int32) -> String?) -> String {
      let table = field(Int32(cpq_table)), column = field(Int32(cpq_column))
      let constraint = field(Int32(cpq_constraint))
      switch state {
      case "23505": if let constraint { return "unique constraint \(constraint) of \(table ?? "a table")" }
      case "23503": if let constraint { return "foreign key \(constraint) of \(table ?? "a table")" }
      case "23514":
        if let constraint { return "check constraint \(constraint) of \(table ?? "a table")" }
        // One without a name is what its partitions hold.
        if let table { return "no partition of \(table) takes the row" }
      case "23502": if let column { return "\(table.map { "\($0)." } ?? "")\(column) is not nullable" }
      case "23P01": if let constraint { return "exclusion constraint \(constraint) of \(table ?? "a table")" }
      case "22021", "22P05": return "a text is not valid UTF-8, or has the character U+0000"
      case "22003": return "a number is beyond the range of its column"
      case "22001": return "a text is longer than its column allows"
      default: break
      }
      if state.hasPrefix("22") {
        return "a value is not one of \(table.map { "\($0)." } ?? "")\(column ?? "its column's type")"
      }
      if state.hasPrefix("23") {
        return constraint.map { "constraint \($0) of \(table ?? "a table")" } ?? "a constraint"
      }
      return field(Int32(cpq_primary)) ?? "error"
    }

    private static func classification(_ state: String) -> (ErrorCode, String) {
      switch state {
      case "53100": (.storageFull, " The disk is full: free some space and try again; nothing was lost.")
      case "53300": (.storageBusy, " All connections of the database are in use: try again.")
      case "55P03", "40001", "40P01": (.storageBusy, " Another transaction is in the way: try again.")
      case "57014": (.storageBusy, " It took longer than its time limit, or was ended: try again.")
      case "57P01", "57P02", "57P03": (.storageBusy, " The database is stopping or starting: try again.")
      case "XX001", "XX002": (.storageCorrupt, " The database is damaged: restore it from a copy.")
      case "42501": (.storage, " Give the module's role this right.")
      case "25006": (.storage, " The database takes no writes: it is a standby, or read-only.")
      default: (.storage, "")
      }
    }

    private static func shortened(_ sql: String) -> String {
      let limit = 600
      return sql.utf8.count <= limit ? sql : String(sql.prefix(limit)) + "…"
    }
  }

  extension Substring {
    fileprivate func drop(upTo place: Index?) -> Substring { place.map { self[index(after: $0)...] } ?? self }
  }

  extension StoreFailure {
    /// What a state of the SQL standard means for a store; nil: nothing that it knows a way on from.
    ///
    init?(sqlState: String) {
      switch sqlState {
      case "23505": self = .unique
      case "23503": self = .foreignKey
      case "23514": self = .check
      case "23502": self = .notNull
      // An index does not hold the value, or nothing holds it that deep.
      case "54000", "54001": self = .value
      // GENERATED ALWAYS.
      case "428C9": self = .constraint
      // A function of the application's has changed a row that the statement was to change, or has found too many.
      case "27000", "21000": self = .trigger
      case "40001", "40P01": self = .serialization
      case "55P03", "57014": self = .busy
      default:
        if sqlState.hasPrefix("22") {
          self = .value
          return
        }
        if sqlState.hasPrefix("23") {
          self = .constraint
          return
        }
        // P0: of PL/pgSQL itself, a query that finds no row, an assertion.
        guard sqlState.hasPrefix("P0") else { return nil }
        self = .trigger
      }
    }

    /// A function of the application's raised it. Where its state is a serialization failure, a deadlock or a lock that is not to be had, the
    /// transaction is tried again a few times.
    init(raised sqlState: String, isLastAttempt: Bool) {
      self = ["40001", "40P01", "55P03"].contains(sqlState) && !isLastAttempt ? .serialization : .trigger
    }
  }
#endif
