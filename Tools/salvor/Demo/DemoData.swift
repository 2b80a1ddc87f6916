import GzipCompression
import SQLiteSupport
import SalvorModel
import SalvorTransport

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The DineSafe inspections as the office has them before Salvor comes: a plain SQLite file, made by plain SQL.
struct DemoData {
  /// The folder with schema.json5 and data/.
  let directory: String
  /// The cut of 150 establishments instead of all rows.
  let isSmall: Bool

  /// Parents first: the order to load them in.
  static let tables = [
    "establishment_type", "inspection_status", "severity", "action", "outcome", "infraction_type", "establishment",
    "establishment_address", "inspection", "infraction",
  ]

  /// `given`, or the Examples folder of the checkout that this executable was built in, or of the current directory.
  static func find(_ given: String?) throws -> String {
    var candidates: [String] = []
    if let given {
      candidates = [given]
    } else {
      var folder = ChildProgram.own()[...]
      while let slash = folder.lastIndex(of: "/") {
        folder = folder[..<slash]
        candidates.append("\(folder)/Examples/dinesafe")
      }
      candidates.append("Examples/dinesafe")
    }
    for candidate in candidates where access("\(candidate)/data/schema.sql", R_OK) == 0 { return candidate }
    throw SalvorError(
      .usage,
      "The demo's data is not at \(given ?? "Examples/dinesafe"). Name the folder Examples/dinesafe of a checkout with --data."
    )
  }

  /// Writes the tables and all rows into a new file. Returns the number of rows.
  func load(into path: String) throws -> Int64 {
    let connection = try emptyDatabase(at: path)
    var count: Int64 = 0
    try connection.execute("BEGIN")
    for table in DemoData.tables { count += try load(table, try text(of: table), into: connection) }
    try connection.execute("COMMIT")
    return count
  }

  /// A new file with the tables.
  func emptyDatabase(at path: String) throws -> SQLiteConnection {
    let connection = try SQLiteConnection(path)
    try connection.execute("PRAGMA foreign_keys = ON; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
    try connection.execute(String(decoding: try read("data/schema.sql"), as: UTF8.self))
    return connection
  }

  /// Lines of fields, the names first.
  func text(of table: String) throws -> [UInt8] {
    isSmall ? try read("data/small/\(table).csv") : try unpacked(try read("data/\(table).csv.gz"))
  }

  func load(_ table: String, _ text: [UInt8], into connection: SQLiteConnection) throws -> Int64 {
    var insert: SQLiteStatement?
    var count: Int64 = 0
    try CommaSeparated.read(text) { fields in
      guard let insert else {
        let names = fields.map { String(decoding: $0, as: UTF8.self) }
        let slots = names.map { _ in "?" }.joined(separator: ", ")
        insert = try connection.prepare(
          "INSERT INTO \(table) (\(names.joined(separator: ", "))) VALUES (\(slots))", persistent: true)
        return
      }
      // Numbers become numbers by the columns' affinity; an empty field is NULL.
      for (place, field) in fields.enumerated() {
        if field.isEmpty {
          try insert.bindNull(place + 1)
        } else {
          try field.withUnsafeBytes { try insert.bindText(place + 1, $0) }
        }
      }
      try insert.run()
      count += 1
    }
    return count
  }

  private func unpacked(_ bytes: [UInt8]) throws -> [UInt8] {
    let coder = try GzipCompression().makeDecompressor()
    var out: [UInt8] = []
    try coder.code(bytes) { out += $0 }
    try coder.finish { out += $0 }
    return out
  }

  private func read(_ name: String) throws -> [UInt8] { try readFile("\(directory)/\(name)") }
}

/// Lines of fields between commas (RFC 4180): quotes around a field that holds a comma, a quote or a line's end.
enum CommaSeparated {
  static func read(_ text: [UInt8], line: ([[UInt8]]) throws -> Void) throws {
    var fields: [[UInt8]] = []
    var field: [UInt8] = []
    var isQuoted = false
    var index = 0
    while index < text.count {
      let byte = text[index]
      index += 1
      switch (byte, isQuoted) {
      case (0x22, true) where index < text.count && text[index] == 0x22:
        field.append(byte)
        index += 1
      case (0x22, _): isQuoted.toggle()
      case (0x2C, false):
        fields.append(field)
        field = []
      case (0x0D, false): break
      case (0x0A, false):
        fields.append(field)
        try line(fields)
        fields = []
        field = []
      default: field.append(byte)
      }
    }
    guard !field.isEmpty || !fields.isEmpty else { return }
    fields.append(field)
    try line(fields)
  }
}

func readFile(_ path: String) throws -> [UInt8] {
  guard let file = fopen(path, "r") else {
    throw SalvorError(.usage, "\(path) cannot be read: \(String(cString: strerror(errno))).")
  }
  defer { fclose(file) }
  var bytes: [UInt8] = []
  var buffer = [UInt8](repeating: 0, count: 64 << 10)
  while true {
    let count = fread(&buffer, 1, buffer.count, file)
    if count == 0 { return bytes }
    bytes += buffer[..<count]
  }
}
