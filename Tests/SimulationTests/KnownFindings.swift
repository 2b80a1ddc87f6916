/// What the simulator has found and nobody has mended yet. A violation is known by what it says, so that no seed is left
/// out: the same seed failing in another way is a failure.
enum KnownFindings {
  struct Finding {
    var story: String
    /// All of them stand in the violation's message.
    var words: [String]
  }

  static let all: [Finding] = [
    Finding(
      story: "Triggers dropped, a row updated, and the server has changed it, too: the device's value is in no archive",
      words: ["(written without triggers)", "is neither in the queue, the archive nor on the server"]),
    Finding(
      story: "An entry that a recovery displaced has no reason",
      words: ["an archive entry says displaced, null"]),
    Finding(
      story: "A row that a restored server lost goes from a device with the sync, and no archive has it (seed 177)",
      words: ["which the server lost, went from", "is in no archive"]),
    Finding(
      story: "SQLite commits the dangling reference of a REPLACE; references of newly captured rows are not proved",
      words: ["whose application's REPLACE began it"]),
  ]

  /// Nil where one of the messages is of nothing known.
  static func story(of messages: [String]) -> String? {
    var story: String?
    for message in messages {
      guard let finding = all.first(where: { $0.words.allSatisfy(message.contains) }) else { return nil }
      story = story ?? finding.story
    }
    return story
  }
}
