import Foundation
import GzipCompression
import SalvorHost
import SalvorModel
import SalvorTransport
import SalvorWire

/// The legislators' edit history (Examples/legislators): its tables, and its transactions as a stream.
struct EditHistory {
  /// One change of the source: `insert` puts a whole row, replacing one that is there; `update` sets columns and `delete`
  /// removes a row, and both do nothing where there is no row.
  struct Change {
    var row: RowNumber
    var operation: SalvorModel.Operation
    /// Places among the table's columns; of a delete none.
    var columns: [Int]
    var values: [Value]
  }

  struct Transaction {
    var number: Int
    /// When it reached the server, and the newest landing that its writer had pulled when writing.
    var landing: Int
    var base: Int
    var writer: String
    /// What a person put right by hand when work was merged.
    var isResolve: Bool
    /// How many of its changes met a row that another writer had changed since `base`, as the source counts them.
    var clashes: Int
    var changes: [Change]
  }

  static let folder = URL(fileURLWithPath: #filePath).deletingLastPathComponent().deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent().appendingPathComponent("Examples/legislators")

  let tables: [Table]
  let rows: RowNumbers

  /// The schema with another conflict policy than the file's.
  static func schemaText(policy: String) throws -> String {
    let text = try String(contentsOf: folder.appendingPathComponent("schema.json5"), encoding: .utf8)
    return text.replacing("conflicts: \"keep-versions\"", with: "conflicts: \"\(policy)\"")
  }

  init() throws {
    let bytes = try [UInt8](Data(contentsOf: Self.folder.appendingPathComponent("schema.json5")))
    guard let schema = SchemaDecoder().decode(bytes).schema else {
      throw SalvorError(.failed, "Examples/legislators/schema.json5 is not sound")
    }
    tables = schema.tables
    rows = RowNumbers()
  }

  /// The transactions in the order of their landing.
  /// - Parameter headsOnly: without their changes, which are then not read.
  func reader(headsOnly: Bool = false) throws -> EditHistoryReader {
    try EditHistoryReader(self, headsOnly: headsOnly)
  }
}

/// A row by a small number instead of its table and key.
typealias RowNumber = Int

/// Gives every row a number at its first appearance.
final class RowNumbers {
  private struct Name: Hashable {
    var table: Int
    var key: Key
  }

  private var numbers: [Name: RowNumber] = [:]
  private(set) var tables: [Int] = []
  private(set) var keys: [Key] = []

  func number(_ table: Int, _ key: Key) -> RowNumber {
    let name = Name(table: table, key: key)
    if let number = numbers[name] { return number }
    numbers[name] = keys.count
    tables.append(table)
    keys.append(key)
    return keys.count - 1
  }
}

/// Unpacks and reads the stream transaction by transaction: no more of it is held.
final class EditHistoryReader {
  private let history: EditHistory
  private let headsOnly: Bool
  private let file: FileHandle
  private let decoder: any StreamCoder
  private var buffer: [UInt8] = []
  private var offset = 0
  private var isAtEnd = false
  private let places: [String: Int]
  private let columns: [[String: Int]]

  fileprivate init(_ history: EditHistory, headsOnly: Bool) throws {
    self.history = history
    self.headsOnly = headsOnly
    file = try FileHandle(forReadingFrom: EditHistory.folder.appendingPathComponent("data/changes.jsonl.gz"))
    decoder = try GzipCompression().makeDecompressor()
    places = Dictionary(uniqueKeysWithValues: history.tables.enumerated().map { ($1.name, $0) })
    columns = history.tables.map { Dictionary(uniqueKeysWithValues: $0.columns.enumerated().map { ($1.name, $0) }) }
  }

  deinit { try? file.close() }

  /// Nil: it was the last one.
  func next() throws -> EditHistory.Transaction? {
    guard let line = try line() else { return nil }
    var (transaction, count) = try line.withUnsafeBufferPointer { try head($0) }
    transaction.changes.reserveCapacity(headsOnly ? 0 : count)
    for _ in 0..<count {
      guard let line = try self.line() else { throw SalvorError(.failed, "the history ends within a transaction") }
      if !headsOnly { transaction.changes.append(try line.withUnsafeBufferPointer { try change($0) }) }
    }
    return transaction
  }

  private func line() throws -> ArraySlice<UInt8>? {
    while true {
      let length = buffer.withUnsafeBytes { bytes in
        let rest = UnsafeRawBufferPointer(rebasing: bytes[offset...])
        return rest.baseAddress.flatMap { memchr($0, 0x0A, rest.count) }.map {
          $0 - UnsafeMutableRawPointer(mutating: rest.baseAddress!)
        }
      }
      if let length {
        defer { offset += length + 1 }
        return buffer[offset..<offset + length]
      }
      guard !isAtEnd else { return nil }
      buffer.removeSubrange(..<offset)
      offset = 0
      let piece = try file.read(upToCount: 1 << 12) ?? Data()
      if piece.isEmpty {
        isAtEnd = true
        try decoder.finish { buffer += $0 }
      } else {
        try decoder.code([UInt8](piece)) { buffer += $0 }
      }
    }
  }

  private func head(_ line: UnsafeBufferPointer<UInt8>) throws -> (EditHistory.Transaction, changes: Int) {
    var reader = PayloadReader(line)
    let head = try JSONValue(reading: &reader)
    return (
      EditHistory.Transaction(
        number: Int(try head.integer("tx")), landing: Int(try head.integer("landing")),
        base: Int(try head.integer("base")), writer: try head.string("client"),
        isResolve: try head.string("kind") == "resolve", clashes: Int(head["clash"]?.integer ?? 0), changes: []),
      Int(try head.integer("n"))
    )
  }

  private func change(_ line: UnsafeBufferPointer<UInt8>) throws -> EditHistory.Change {
    var reader = PayloadReader(line)
    var table = 0
    var key: Key = []
    var change = EditHistory.Change(row: 0, operation: .delete, columns: [], values: [])
    try reader.beginObject()
    var isFirst = true
    while let name = try reader.nextKey(&isFirst) {
      switch name {
      case "table": table = places[try reader.text()]!
      case "op": change.operation = Self.operations[try reader.text()]!
      case "key":
        try reader.beginArray()
        var isFirst = true
        while try reader.nextElement(&isFirst) { key.append(try reader.item().value) }
      case "cols":
        try reader.beginObject()
        var isFirst = true
        while let column = try reader.nextKey(&isFirst) {
          let place = columns[table][column]!
          change.columns.append(place)
          change.values.append(stored(try reader.item().value, as: history.tables[table].columns[place].type))
        }
      default: try reader.skipValue()
      }
    }
    change.row = history.rows.number(table, key)
    return change
  }

  private static let operations: [String: SalvorModel.Operation] = ["ins": .insert, "upd": .update, "del": .delete]

  /// A column of two types is JSON: the value's text.
  private func stored(_ value: Value, as type: ColumnType) -> Value {
    type == .json && !value.isNull ? .text(jsonText(value)) : value
  }
}

/// The JSON text of a scalar, numbers as they are.
func jsonText(_ value: Value) -> [UInt8] {
  var writer = PayloadWriter()
  if case .integer(let integer) = value { writer.number(integer) } else { writer.value(value) }
  return writer.bytes
}
