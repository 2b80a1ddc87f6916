import SQLiteSupport
import SalvorModel

/// Rows in memory, in a form that binding costs nothing beyond SQLite's own work: no object, no string, no copy.
struct RowArena {
  enum Cell {
    case null
    case integer(Int64)
    case real(Double)
    case text(offset: Int, count: Int)
  }

  let columnCount: Int
  private(set) var bytes: [UInt8] = []
  private(set) var cells: [Cell] = []

  init(columnCount: Int) { self.columnCount = columnCount }

  var rowCount: Int { cells.count / columnCount }

  mutating func removeAll() {
    bytes.removeAll(keepingCapacity: true)
    cells.removeAll(keepingCapacity: true)
  }

  mutating func append(_ value: Int64) { cells.append(.integer(value)) }
  mutating func append(_ value: Double) { cells.append(.real(value)) }
  mutating func appendNull() { cells.append(.null) }

  mutating func append(_ text: some Sequence<UInt8>) { appendText { $0.append(contentsOf: text) } }

  /// What `write` appends becomes the next cell.
  mutating func appendText(_ write: (inout [UInt8]) -> Void) {
    let offset = bytes.count
    write(&bytes)
    cells.append(.text(offset: offset, count: bytes.count - offset))
  }

  /// Runs `statement` once for each row, its columns bound from parameter 1 on.
  func run(_ statement: SQLiteStatement) throws {
    try bytes.withUnsafeBytes { bytes in
      var cell = 0
      for _ in 0..<rowCount {
        for parameter in 1...columnCount {
          switch cells[cell] {
          case .null: try statement.bindNull(parameter)
          case .integer(let value): try statement.bind(parameter, value)
          case .real(let value): try statement.bind(parameter, value)
          case .text(let offset, let count):
            try statement.bindText(
              parameter, UnsafeRawBufferPointer(rebasing: bytes[offset..<offset + count]), copying: false)
          }
          cell += 1
        }
        try statement.run()
      }
    }
  }
}
