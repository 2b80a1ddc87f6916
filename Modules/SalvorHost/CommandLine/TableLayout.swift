import SalvorModuleKit

/// A table for people, as lines. What a cell holds is shown, never acted upon: line ends and control characters are escapes.
///
/// A table that is wider than the terminal would be broken by it at any place: then the last column goes on in lines of its
/// own, and where that leaves too little room, each row is a block of `heading  value`. Nothing is cut off; without a width
/// (a pipe, a file) a row is a line.
struct TableLayout {
  /// Nil where the rows are blocks, which have theirs beside each value.
  let heading: String?
  let lines: [String]

  private static let gap = 2
  /// The last column is not made narrower than this.
  private static let lastWidthMin = 30

  init(_ heading: [String], _ rows: [[String]], width: Int?) {
    let cells = rows.map { $0.map(visible) }
    let widths = heading.indices.map { column in
      ([heading] + cells).map { column < $0.count ? $0[column].count : 0 }.max() ?? 0
    }
    let whole = widths.reduce(0, +) + Self.gap * (widths.count - 1)
    let last = (width ?? 0) - (whole - (widths.last ?? 0))
    if let width, whole > width {
      if last < Self.lastWidthMin {
        self.heading = nil
        lines = Self.blocks(heading, cells)
        return
      }
      self.heading = Self.line(heading, widths)
      lines = cells.flatMap { Self.wrapped($0, widths, last) }
    } else {
      self.heading = Self.line(heading, widths)
      lines = cells.map { Self.line($0, widths) }
    }
  }

  private static func line(_ cells: [String], _ widths: [Int]) -> String {
    var text = cells.enumerated().map { column, cell in
      column == widths.count - 1 ? cell : padded(cell, widths[column])
    }.joined(separator: String(repeating: " ", count: gap))
    while text.last == " " { text.removeLast() }
    return text
  }

  private static func wrapped(_ cells: [String], _ widths: [Int], _ last: Int) -> [String] {
    guard cells.count == widths.count, let text = cells.last else { return [line(cells, widths)] }
    return pieces(text, last).enumerated().map { index, piece in
      line((index == 0 ? cells.dropLast() : cells.dropLast().map { _ in "" }) + [piece], widths)
    }
  }

  /// `text` in lines of at most `width` characters, broken at spaces where there are any.
  private static func pieces(_ text: String, _ width: Int) -> [String] {
    var pieces: [String] = []
    var rest = Substring(text)
    while rest.count > width {
      let fitting = rest.prefix(width + 1)
      let end = fitting.lastIndex(of: " ").flatMap { $0 > rest.startIndex ? $0 : nil } ?? rest.prefix(width).endIndex
      pieces.append(String(rest[..<end]))
      rest = rest[end...].drop { $0 == " " }
    }
    return pieces + (rest.isEmpty && !pieces.isEmpty ? [] : [String(rest)])
  }

  private static func blocks(_ heading: [String], _ rows: [[String]]) -> [String] {
    let width = heading.map(\.count).max() ?? 0
    return rows.enumerated().flatMap { index, cells in
      (index == 0 ? [] : [""])
        + zip(heading, cells).map { name, cell in
          cell.isEmpty ? name : padded(name, width) + String(repeating: " ", count: gap) + cell
        }
    }
  }

  private static func padded(_ text: String, _ width: Int) -> String {
    text + String(repeating: " ", count: max(0, width - text.count))
  }
}
