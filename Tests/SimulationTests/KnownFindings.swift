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
      story: "The report counts a refused request that has no entry of its own in the archive (all 50082, disks 60168)",
      words: ["the report says", "refused, the archive has"]),
    Finding(
      story: "A change written while triggers were away is in no archive (all 50385)",
      words: ["(written without triggers)", "is neither in the queue, the archive nor on the server"]),
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
