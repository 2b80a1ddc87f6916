import Testing

@testable import SQLiteClientStore

@Suite struct RowSketchTests {
  private static func hashes(_ count: Int, seed: UInt64) -> [UInt64] {
    (0..<UInt64(count)).map { place in
      var z = (place &+ seed) &* 0x9E37_79B9_7F4A_7C15
      z = (z ^ (z >> 30)) &* 0xBF58_476D_1CE4_E5B9
      return z ^ (z >> 27)
    }
  }

  @Test(arguments: [1000, 100_000]) func aSketchHasWhatWasPutInAndSeldomAnotherRow(count: Int) {
    let rows = Self.hashes(count, seed: 1)
    var sketch = RowSketch(rows: Int64(count))
    let taken = rows.count { sketch.insert($0) }
    #expect(taken <= 10, "\(taken) rows were there before they came")
    #expect(rows.allSatisfy(sketch.contains))
    let wrong = Self.hashes(count, seed: 1 << 40).count(where: sketch.contains)
    #expect(wrong <= count / 1000, "\(wrong) rows are there that never came")
  }

  @Test func aSketchThatIsTooSmallHasWhatWasPutIn() {
    let rows = Self.hashes(10_000, seed: 7)
    var sketch = RowSketch(bits: 1)
    for row in rows { sketch.insert(row) }
    #expect(rows.allSatisfy(sketch.contains))
    #expect(rows.allSatisfy { sketch.insert($0) })
  }
}
