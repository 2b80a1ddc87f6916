/// Changes that two devices have to send, since one is a copy of the other. A server that knows their remote ID finds the copy. A new
/// database knows neither, and merge rule 4 decides of each (decision 158): such a note may come once more for each copy.
struct SharedQueues {
  private var copies: [RowName: [String: Int]] = [:]
  private var isReplaced = false

  /// Another device has this queue, too.
  mutating func cloned(_ notes: some Sequence<(name: RowName, note: String)>) {
    for (name, note) in notes { copies[name, default: [:]][note, default: 0] += 1 }
  }

  /// A new database stands in the server's place.
  mutating func serverWasReplaced() { isReplaced = true }

  /// How often a note may come besides its own writes.
  func more(_ note: String, in name: RowName) -> Int { isReplaced ? copies[name]?[note] ?? 0 : 0 }
}
