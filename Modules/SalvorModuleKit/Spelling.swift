/// `; did you mean "x"?` where one of `names` is near, else an empty string.
public func suggestion(_ name: String, among names: [String]) -> String {
  // A name this long was not mistyped, and the distance costs the product of both lengths.
  guard name.count <= 64 else { return "" }
  let near = names.filter { $0.count <= 64 }.map { ($0, editDistance(name.lowercased(), $0.lowercased())) }
    .filter { $0.1 <= max(1, name.count / 3) }.min { $0.1 < $1.1 }
  return near.map { "; did you mean \"\($0.0)\"?" } ?? ""
}

/// Insertions, deletions, substitutions and swaps of neighbours.
func editDistance(_ a: String, _ b: String) -> Int {
  let a = Array(a), b = Array(b)
  var rows = [Array(0...b.count)]
  for i in 0..<a.count {
    var row = [i + 1]
    for j in 0..<b.count {
      var best = min(rows[i][j + 1] + 1, row[j] + 1, rows[i][j] + (a[i] == b[j] ? 0 : 1))
      if i > 0, j > 0, a[i] == b[j - 1], a[i - 1] == b[j] { best = min(best, rows[i - 1][j - 1] + 1) }
      row.append(best)
    }
    rows.append(row)
  }
  return rows[a.count][b.count]
}

/// `base.key`, or `base["key"]` where the key is no plain word.
public func keyPath(_ base: String, _ key: String) -> String {
  let isPlain =
    !key.isEmpty
    && key.unicodeScalars.allSatisfy { JSON5Scanner.isName($0) || $0 == "-" }
  if isPlain { return base.isEmpty ? key : base + "." + key }
  let escaped = key.unicodeScalars.map { $0 == "\"" || $0 == "\\" ? "\\\($0)" : "\($0)" }.joined()
  return base + "[\"" + escaped + "\"]"
}
