/// The figures as a table for people.
enum TableReport {
  private static let header = ["", "measured", "limit", "ratio", "reach", ""]

  static func text(_ results: [WorkloadResult]) -> String {
    var out = ""
    var rows: [[String]] = [header]
    var titles: [Int: String] = [:]
    for result in results {
      titles[rows.count] = "\(result.name): \(result.title)"
      rows += result.figures.map(row)
    }
    let widths = header.indices.map { column in rows.map { $0[column].count }.max() ?? 0 }
    for (index, row) in rows.enumerated() {
      if let title = titles[index] { out += "\n\(title)\n" }
      let cells = row.indices.map { column in
        let blank = String(repeating: " ", count: widths[column] - row[column].count)
        return column == 0 ? row[column] + blank : blank + row[column]
      }
      var line = "  " + cells.joined(separator: "  ")
      while line.last == " " { line.removeLast() }
      out += line + "\n"
    }
    return out
  }

  private static func row(_ figure: Figure) -> [String] {
    var reach = ""
    switch figure.target {
    case .ratio(let most): reach = "≤ \(decimal(most, most < 1 ? 2 : 1))x"
    case .value(let most): reach = "≤ \(amount(most, figure.unit))"
    case nil: break
    }
    return [
      figure.name + (figure.limitName.map { " / \($0)" } ?? ""), amount(figure.value, figure.unit),
      figure.limit.map { amount($0, figure.unit) } ?? "",
      figure.ratio.map { "\(decimal($0, $0 < 0.1 ? 4 : 2))x" } ?? "", reach,
      figure.isReached.map { $0 ? "reached" : "NOT reached" } ?? "",
    ]
  }

  /// A value with the unit that reads best.
  static func amount(_ value: Double, _ unit: Figure.Unit) -> String {
    switch unit {
    case .seconds:
      if value >= 1 { return "\(decimal(value, 2)) s" }
      if value >= 1e-3 { return "\(decimal(value * 1e3, 1)) ms" }
      return "\(decimal(value * 1e6, 1)) µs"
    case .bytes:
      if value >= 1e6 { return "\(decimal(value / 1e6, 2)) MB" }
      if value >= 1e4 { return "\(decimal(value / 1e3, 1)) KB" }
      return "\(decimal(value, 0)) B"
    case .bytesEach: return "\(decimal(value, 1)) B"
    case .share: return "\(decimal(value * 100, 2)) %"
    case .count: return decimal(value, value == value.rounded() ? 0 : 1)
    }
  }

  static func decimal(_ value: Double, _ places: Int) -> String {
    var scale = 1.0
    for _ in 0..<places { scale *= 10 }
    let rounded = Int64((value.magnitude * scale).rounded())
    let sign = value < 0 && rounded != 0 ? "-" : ""
    guard places > 0 else { return sign + String(rounded) }
    let fraction = String(rounded % Int64(scale))
    return "\(sign)\(rounded / Int64(scale))." + String(repeating: "0", count: places - fraction.count) + fraction
  }
}

/// 207885 as 207,885.
func grouped(_ number: Int) -> String {
  var out = ""
  for (place, digit) in String(number).reversed().enumerated() {
    if place > 0, place % 3 == 0 { out.append(",") }
    out.append(digit)
  }
  return String(out.reversed())
}
