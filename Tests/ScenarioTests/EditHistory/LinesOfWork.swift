/// Transactions that were written on the same pulled landing and reached the server together: a branch of the source.
///
/// A branch's transactions build on each other, also where several people worked on it: they handed their work to each
/// other before the server had it. Devices of a client and a server cannot do that, so a line of work is written on one
/// device, in its order; the device is the first writer's, and every transaction is a request of its own.
struct LineOfWork {
  let base: Int
  let landing: Int
  let writer: String
  var transactions: [Int]
}

/// The lines of work by when they are written and when they land.
struct LinesOfWork {
  /// In the order of their first transactions.
  private(set) var landing: [Int: [LineOfWork]] = [:]
  private(set) var onBase: [Int: [LineOfWork]] = [:]
  private(set) var landingLast = 0

  /// - Parameter landingMax: what lands later is left out.
  init(_ history: EditHistory, landingMax: Int) throws {
    let reader = try history.reader(headsOnly: true)
    var lines: [LineOfWork] = []
    while let head = try reader.next(), head.landing <= landingMax {
      if let place = lines.lastIndex(where: { $0.landing == head.landing && $0.base == head.base }) {
        lines[place].transactions.append(head.number)
      } else {
        lines.append(
          LineOfWork(base: head.base, landing: head.landing, writer: head.writer, transactions: [head.number]))
      }
    }
    landing = Dictionary(grouping: lines, by: \.landing)
    onBase = Dictionary(grouping: lines, by: \.base)
    landingLast = lines.last?.landing ?? 0
  }
}

/// Transactions read ahead, from the oldest that has not landed to the newest that is being written: no more is held.
final class TransactionWindow {
  private let reader: EditHistoryReader
  private var held: [Int: EditHistory.Transaction] = [:]
  private var newest = -1

  init(_ history: EditHistory) throws { reader = try history.reader() }

  func transactions(of line: LineOfWork) throws -> [EditHistory.Transaction] {
    while let last = line.transactions.last, newest < last, let transaction = try reader.next() {
      held[transaction.number] = transaction
      newest = transaction.number
    }
    return line.transactions.compactMap { held[$0] }
  }

  func forget(_ line: LineOfWork) {
    for number in line.transactions { held[number] = nil }
  }
}
