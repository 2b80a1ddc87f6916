import SalvorModel
import SalvorStorage
import SalvorWire

/// Prometheus' text format, version 0.0.4.
struct MetricsText {
  private(set) var text = ""

  mutating func counter(_ name: String, _ help: String, _ value: Int64) { single(name, "counter", help, "\(value)") }
  mutating func gauge(_ name: String, _ help: String, _ value: Int64) { single(name, "gauge", help, "\(value)") }
  mutating func gauge(_ name: String, _ help: String, _ value: Double) { single(name, "gauge", help, "\(value)") }

  mutating func single(_ name: String, _ type: String, _ help: String, _ value: String) {
    head(name, type, help)
    text += "\(name) \(value)\n"
  }

  /// Nothing where there are no values yet.
  mutating func labelled(_ name: String, _ type: String, _ help: String, _ values: [String: Int64]) {
    guard !values.isEmpty else { return }
    head(name, type, help)
    for (labels, value) in values.sorted(by: { $0.key < $1.key }) { text += "\(name){\(labels)} \(value)\n" }
  }

  mutating func histogram(_ name: String, _ help: String, _ histogram: Histogram) {
    let all = histogram.all
    guard !all.isEmpty else { return }
    head(name, "histogram", help)
    for (labels, series) in all.sorted(by: { $0.key < $1.key }) {
      let before = labels.isEmpty ? "" : labels + ","
      var sum: Int64 = 0
      for (place, bound) in histogram.bounds.enumerated() {
        sum += series.counts[place]
        text += "\(name)_bucket{\(before)le=\"\(Self.number(bound))\"} \(sum)\n"
      }
      sum += series.counts.last ?? 0
      let own = labels.isEmpty ? "" : "{\(labels)}"
      text +=
        "\(name)_bucket{\(before)le=\"+Inf\"} \(sum)\n\(name)_sum\(own) \(series.sum)\n\(name)_count\(own) \(sum)\n"
    }
  }

  private mutating func head(_ name: String, _ type: String, _ help: String) {
    text += "# HELP \(name) \(help).\n# TYPE \(name) \(type)\n"
  }

  private static func number(_ value: Double) -> String {
    value == value.rounded() ? "\(Int64(value))" : "\(value)"
  }

  static func label(_ name: String, _ value: String) -> String {
    let escaped = value.replacing("\\", with: "\\\\").replacing("\"", with: "\\\"").replacing("\n", with: "\\n")
    return "\(name)=\"\(escaped)\""
  }
}
