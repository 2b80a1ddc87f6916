import GzipCompression
import SalvorModel

#if canImport(Glibc)
  import Glibc
#elseif canImport(Darwin)
  import Darwin
#endif

/// The DineSafe inspections, in the tables of Examples/dinesafe/schema.json5: 10 tables, 207,885 rows, 9 foreign keys.
struct DinesafeData {
  static let schema = Schema(
    tables: ["establishment_type", "inspection_status", "severity", "action", "outcome"].map {
      Table(
        $0, maintained: .server, group: "reference", primaryKey: ["id"],
        columns: [Column("id", .integer), Column("name", .text)])
    } + [
      Table(
        "infraction_type", maintained: .server, group: "reference", primaryKey: ["id"],
        columns: [Column("id", .integer), Column("text", .text)]),
      Table(
        "establishment", group: "inspections", primaryKey: ["id"],
        columns: [
          Column("id", .integer), Column("name", .text), Column("establishment_type_id", .integer),
          Column("min_inspections_per_year", .integer),
        ], references: [Reference(column: "establishment_type_id", table: "establishment_type")]),
      Table(
        "establishment_address", group: "inspections", primaryKey: ["establishment_id"],
        columns: [
          Column("establishment_id", .integer), Column("address", .text), Column("latitude", .real),
          Column("longitude", .real),
        ], references: [Reference(column: "establishment_id", table: "establishment")]),
      Table(
        "inspection", group: "inspections", primaryKey: ["id"],
        columns: [
          Column("id", .integer), Column("establishment_id", .integer), Column("date", .text),
          Column("inspection_status_id", .integer),
        ],
        references: [
          Reference(column: "establishment_id", table: "establishment"),
          Reference(column: "inspection_status_id", table: "inspection_status"),
        ]),
      Table(
        "infraction", group: "inspections", primaryKey: ["inspection_id", "line"],
        columns: [
          Column("inspection_id", .integer), Column("line", .integer), Column("infraction_type_id", .integer),
          Column("severity_id", .integer), Column("action_id", .integer),
          Column("outcome_id", .integer, nullable: true), Column("amount_fined", .real, nullable: true),
        ],
        references: [
          Reference(column: "inspection_id", table: "inspection"),
          Reference(column: "infraction_type_id", table: "infraction_type"),
          Reference(column: "severity_id", table: "severity"), Reference(column: "action_id", table: "action"),
          Reference(column: "outcome_id", table: "outcome"),
        ]),
    ])

  /// Tables in the order in which to load them, parents first.
  private(set) var tables: [(table: Table, rows: RowArena)] = []

  var rowCount: Int { tables.reduce(0) { $0 + $1.rows.rowCount } }

  /// Reads `TABLE.csv.gz` or `TABLE.csv` of each table from `directory`. Errors: `usage`.
  init(directory: String) throws {
    for table in DinesafeData.schema.tables {
      let path = "\(directory)/\(table.name).csv"
      let text: [UInt8]
      if access(path, R_OK) == 0 {
        text = try readFile(path)
      } else {
        text = try gunzip(try readFile(path + ".gz"))
      }
      tables.append((table, try rows(of: text, table)))
    }
  }

  private func rows(of text: [UInt8], _ table: Table) throws -> RowArena {
    var arena = RowArena(columnCount: table.columns.count)
    var reader = CSVReader(text)
    let header = reader.next().map { $0.map { String(decoding: $0, as: UTF8.self) } }
    guard header == table.columns.map(\.name) else {
      throw SalvorError(.usage, "The header of \(table.name).csv is not the table's columns.")
    }
    while let fields = reader.next() {
      guard fields.count == table.columns.count else {
        throw SalvorError(.usage, "A line of \(table.name).csv has \(fields.count) fields.")
      }
      for (field, column) in zip(fields, table.columns) {
        let string = String(decoding: field, as: UTF8.self)
        switch column.type {
        case _ where field.isEmpty && column.nullable: arena.appendNull()
        case .integer: arena.append(Int64(string) ?? 0)
        case .real: arena.append(Double(string) ?? 0)
        default: arena.append(field)
        }
      }
    }
    return arena
  }
}

/// RFC 4180: comma, quotes doubled inside quotes, LF or CRLF.
struct CSVReader {
  private let text: [UInt8]
  private var place = 0

  init(_ text: [UInt8]) { self.text = text }

  mutating func next() -> [[UInt8]]? {
    guard place < text.count else { return nil }
    var fields: [[UInt8]] = [[]]
    var isQuoted = false
    while place < text.count {
      let byte = text[place]
      place += 1
      if isQuoted {
        if byte != 0x22 {
          fields[fields.count - 1].append(byte)
        } else if place < text.count, text[place] == 0x22 {
          fields[fields.count - 1].append(0x22)
          place += 1
        } else {
          isQuoted = false
        }
        continue
      }
      switch byte {
      case 0x22: isQuoted = true
      case 0x2C: fields.append([])
      case 0x0D: break
      case 0x0A: return fields
      default: fields[fields.count - 1].append(byte)
      }
    }
    return fields
  }
}

private func readFile(_ path: String) throws -> [UInt8] {
  guard let file = fopen(path, "rb") else {
    throw SalvorError(
      .usage, "\(path) cannot be read. Run from the repository's root, or name the folder with --data.")
  }
  defer { fclose(file) }
  var all: [UInt8] = []
  var piece = [UInt8](repeating: 0, count: 256 << 10)
  while true {
    let count = fread(&piece, 1, piece.count, file)
    if count == 0 { return all }
    all += piece[0..<count]
  }
}

private func gunzip(_ bytes: [UInt8]) throws -> [UInt8] {
  let decompressor = try GzipCompression().makeDecompressor()
  var all: [UInt8] = []
  try decompressor.code(bytes) { all += $0 }
  try decompressor.finish { all += $0 }
  return all
}
