import SalvorWire

/// One measured figure, the limit measured beside it, and what to reach.
struct Figure {
  enum Unit: String {
    case seconds = "s"
    case bytes = "B"
    case count = ""
    /// Of 1.
    case share = "of 1"
    case bytesEach = "B each"
  }

  enum Target {
    /// The figure divided by its limit.
    case ratio(atMost: Double)
    case value(atMost: Double)
  }

  var name: String
  var value: Double
  var unit: Unit
  var limit: Double?
  /// What the limit is.
  var limitName: String?
  var target: Target?
  /// What else was measured: medians that explain the figure.
  var details: [(String, JSONValue)] = []

  var ratio: Double? {
    guard let limit, limit > 0 else { return nil }
    return value / limit
  }

  /// Nil where there is nothing to reach.
  var isReached: Bool? {
    switch target {
    case .ratio(let most): ratio.map { $0 <= most }
    case .value(let most): value <= most
    case nil: nil
    }
  }

  var json: JSONValue {
    var members: [JSONValue.Member] = [
      .init("name", .string(name)), .init("value", .real(value)), .init("unit", .string(unit.rawValue)),
      .init("limit", limit.map(JSONValue.real) ?? .null),
      .init("limitName", limitName.map(JSONValue.string) ?? .null),
      .init("ratio", ratio.map(JSONValue.real) ?? .null),
    ]
    switch target {
    case .ratio(let most): members.append(.init("target", ["of": "ratio", "atMost": .real(most)]))
    case .value(let most): members.append(.init("target", ["of": "value", "atMost": .real(most)]))
    case nil: members.append(.init("target", .null))
    }
    members.append(.init("reached", isReached.map(JSONValue.bool) ?? .null))
    members.append(.init("details", .object(details.map { .init($0.0, $0.1) })))
    return .object(members)
  }
}

/// What one workload gave.
struct WorkloadResult {
  var name: String
  /// Sizes and number of runs, in words.
  var title: String
  var figures: [Figure]

  var json: JSONValue {
    ["name": .string(name), "title": .string(title), "figures": .array(figures.map(\.json))]
  }
}
