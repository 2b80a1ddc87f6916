import SalvorWire

/// One thing that `salvor doctor` looked at.
struct Finding {
  enum State: String {
    case good, note, bad
  }

  var state: State
  /// `configuration`, `database`, `disk` …
  var about: String
  var message: String
  /// What to do; empty where nothing is to be done.
  var way: String = ""

  var json: JSONValue {
    [
      "state": .string(state.rawValue), "about": .string(about), "message": .string(message),
      "way": way.isEmpty ? .null : .string(way),
    ]
  }

  func line(on terminal: Terminal) -> String {
    let mark =
      switch state {
      case .good: terminal.green("good")
      case .note: "note"
      case .bad: terminal.red("bad ")
      }
    return "\(mark)  \(about): \(message)" + (way.isEmpty ? "" : "\n      → \(way)")
  }
}
