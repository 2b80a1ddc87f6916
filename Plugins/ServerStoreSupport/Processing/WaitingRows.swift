import SalvorModel
import SalvorWire

/// Rows whose offers wait in the book (`WaitingBook`) and are in memory no more, since an upload has many. A sketch of one size,
/// however many there are: of a row that is in it it always says so; of one in some thousands that is not, too, where it has a million.
struct WaitingRows {
  /// 4 MiB of them.
  private static let bitCount: UInt64 = 1 << 25
  private static let probes: UInt64 = 4

  private var words: [UInt64] = []

  var isEmpty: Bool { words.isEmpty }

  /// - Parameter row: its `RowHash`.
  mutating func add(_ row: UInt64) {
    if words.isEmpty { words = [UInt64](repeating: 0, count: Int(Self.bitCount / 64)) }
    for bit in Self.bits(row) { words[Int(bit / 64)] |= 1 << (bit % 64) }
  }

  func mayHold(_ row: UInt64) -> Bool {
    !words.isEmpty && Self.bits(row).allSatisfy { words[Int($0 / 64)] & (1 << ($0 % 64)) != 0 }
  }

  /// It changes such a row, or references one.
  func mayHoldWhatIsNeeded(by steps: [Step]) -> Bool {
    !words.isEmpty && steps.contains { mayHold($0.effect.row) || $0.effect.targetsAfter.contains(where: mayHold) }
  }

  /// False where a change of this shape, as it stands in the payload, certainly needs none of these rows.
  func mayConcern(_ plan: ShapePlan, _ items: [PayloadReader.Item], row: UInt64) -> Bool {
    if words.isEmpty { return false }
    guard !mayHold(row), let targets = plan.targetItems else { return true }
    return targets.contains { target in
      var hash = target.seed
      hash.add(items[target.item])
      return mayHold(hash.value)
    }
  }

  private static func bits(_ row: UInt64) -> some Sequence<UInt64> {
    var mixed = row &* 0x9E37_79B9_7F4A_7C15
    mixed = (mixed ^ (mixed >> 32)) &* 0xD6E8_FEB8_6659_FD93
    let (start, step) = (mixed, (mixed >> 32) | 1)
    return (0..<probes).lazy.map { (start &+ $0 &* step) & (bitCount - 1) }
  }
}
