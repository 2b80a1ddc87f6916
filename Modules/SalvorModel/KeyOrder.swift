/// SQLite's order of keys: NULL, numbers, text by bytes, blobs.
package func keyPrecedes(_ a: Key, _ b: Key) -> Bool {
  for (x, y) in zip(a, b) {
    if valuePrecedes(x, y) { return true }
    if valuePrecedes(y, x) { return false }
  }
  return a.count < b.count
}

package func valuePrecedes(_ a: Value, _ b: Value) -> Bool {
  switch (a, b) {
  case (.integer(let x), .integer(let y)): x < y
  case (.real(let x), .real(let y)): x < y
  case (.integer(let x), .real(let y)): Double(x) < y
  case (.real(let x), .integer(let y)): x < Double(y)
  case (.text(let x), .text(let y)), (.blob(let x), .blob(let y)): x.lexicographicallyPrecedes(y)
  default: storageRank(a) < storageRank(b)
  }
}

private func storageRank(_ value: Value) -> Int {
  switch value {
  case .null: 0
  case .integer, .real: 1
  case .text: 2
  case .blob: 3
  }
}
